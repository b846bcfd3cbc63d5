//! Answers of several choices, and what is told of each token: `n`, lists of prompts, echo, log-probabilities.

use anyhow::{Context, Result};
use cascadia_tests::client::{CHAT, COMPLETIONS, chat, completion, order, streamed, with};
use cascadia_tests::{Host, wait};
use serde_json::{Value, json};

/// The texts of a stream's choices, by index, and their finish reasons.
fn by_index(frames: &[Value], n: usize) -> (Vec<String>, Vec<Vec<String>>) {
    let (mut texts, mut finishes) = (vec![String::new(); n], vec![Vec::new(); n]);
    for choice in frames.iter().filter_map(|frame| frame["choices"].get(0)) {
        let index =
            usize::try_from(choice["index"].as_u64().expect("PANIC: an index")).expect("PANIC: small");
        let text = choice["delta"]["content"].as_str().or(choice["text"].as_str()).unwrap_or_default();
        texts[index].push_str(text);
        finishes[index].extend(choice["finish_reason"].as_str().map(str::to_owned));
    }
    (texts, finishes)
}

#[test]
fn an_answer_that_waits_for_its_last_choice_is_not_one_whose_client_does_not_read() -> Result<()> {
    let host = Host::mock(&["--set", "limits.slow_client_timeout=1s"]);
    let long = order(&vec!["word"; 40].join(" "), &json!({"token_delay_ms": 100}));
    let answer =
        host.post(COMPLETIONS, &json!({"model": "mock", "prompt": ["short", long], "max_tokens": 50}))?;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let choices = answer.json()["choices"].clone();
    assert_eq!((&choices[0]["text"], &choices[1]["finish_reason"]), (&json!("short"), &json!("stop")));
    assert_eq!(host.quiet().value("cascadia_slow_clients_total", &[]), 0.0);
    Ok(())
}

#[test]
fn a_chat_of_three_choices_is_three_generations_of_one_request() -> Result<()> {
    let host = Host::mock(&[]);
    let body = with(chat("one two"), &json!({"n": 3}));
    let answer = host.post(CHAT, &body)?;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let answer = answer.json();
    let choices = answer["choices"].as_array().context("choices")?;
    for (i, choice) in choices.iter().enumerate() {
        assert_eq!(
            (choice["index"].as_u64(), &choice["message"]["content"]),
            (Some(i as u64), &json!("one two"))
        );
    }
    // The prompt counts once, every answer counts.
    let prompt = answer["usage"]["prompt_tokens"].as_u64().context("a count")?;
    assert_eq!((choices.len(), answer["usage"]["completion_tokens"].as_u64()), (3, Some(6)));
    let single = host.post(CHAT, &chat("one two"))?.json();
    assert_eq!(single["usage"]["prompt_tokens"].as_u64(), Some(prompt));
    let told = host.told(CHAT, &streamed(body))?;
    let (texts, finishes) = by_index(&told.frames, 3);
    assert_eq!(texts, ["one two"; 3]);
    assert_eq!(finishes, [["stop"]; 3]);
    assert_eq!((told.done, told.completion_tokens()), (true, 6));
    // The role comes once for each, and the counts come once, at the end.
    let roles = told.frames.iter().filter(|f| f["choices"][0]["delta"]["role"].is_string()).count();
    assert_eq!(roles, 3);
    assert!(told.frames.last().is_some_and(|f| f["usage"].is_object()));
    assert_eq!(host.quiet().ended("stop"), 7.0);
    Ok(())
}

#[test]
fn more_choices_than_slots_wait_their_turn() -> Result<()> {
    let host = Host::mock(&["--max-concurrent", "2", "--max-queued", "10"]);
    let body = with(
        chat(&order("w", &json!({"token_delay_ms": 5, "script": [{"repeat": 10, "item": "x"}]}))),
        &json!({"n": 8}),
    );
    let told = host.told(CHAT, &streamed(body.clone()))?;
    let (texts, _) = by_index(&told.frames, 8);
    assert_eq!(texts, vec!["x".repeat(10); 8]);
    assert_eq!(host.post(CHAT, &body)?.json()["choices"].as_array().map(Vec::len), Some(8));
    // More than slots and queue hold beside another is no answer, and leaves nothing behind.
    let mut other = host.stream(CHAT, &streamed(chat(&order("a b", &json!({"stall_after": 1})))))?;
    other.pieces(1)?;
    let refused = host.post(CHAT, &with(body, &json!({"n": 12})))?;
    assert_eq!(refused.error(503)["code"], "capacity");
    drop(other);
    host.quiet();
    assert_eq!(host.chat("and on")?.content(), "and on");
    Ok(())
}

#[test]
fn a_cancelled_or_left_request_ends_all_its_choices() -> Result<()> {
    let host = Host::mock(&[]);
    let slow = json!({"token_delay_ms": 10, "script": [{"repeat": 10_000, "item": "x"}]});
    let body = streamed(with(chat(&order("w", &slow)), &json!({"n": 4, "max_tokens": 20_000})));
    let mut stream = host.stream(CHAT, &body)?;
    stream.pieces(4)?;
    host.running(4);
    let id = stream.id()?;
    host.cancel(&id)?;
    let told = stream.rest()?;
    assert!(told.done && told.error.is_none(), "{:?}", told.error);
    host.until("cancelled choices", 4.0, |s| s.ended("cancelled"));
    let mut left = host.stream(CHAT, &body)?;
    left.pieces(1)?;
    drop(left);
    host.until("cancelled choices", 8.0, |s| s.ended("cancelled"));
    host.quiet();
    Ok(())
}

#[test]
fn a_choice_that_fails_ends_the_answer_and_the_other_choices() -> Result<()> {
    // One slot: the first choice runs, the others wait.
    let host = Host::mock(&["--max-concurrent", "1", "--max-queued", "8"]);
    let failing = json!({"fail_after": 3, "token_delay_ms": 20, "repeat": 100});
    let body = with(chat(&order("a b c d e", &failing)), &json!({"n": 3}));
    host.post(CHAT, &body)?.error(500);
    let told = host.told(CHAT, &streamed(body))?;
    let error = told.error.context("an error frame")?;
    assert_eq!((error["code"].as_str(), told.done), (Some("engine_error"), true));
    assert!(told.finish.is_empty(), "no choice of it reads as finished");
    wait("the books to balance", || {
        let scrape = host.quiet();
        let (failed, given_up) = (scrape.ended("error"), scrape.ended("cancelled"));
        // A sibling that got the slot before it heard of the failure may fail by itself.
        let balances = failed >= 2.0 && failed + given_up == 6.0 && scrape.all_ended() == 6.0;
        if balances { Ok(()) } else { Err(format!("{failed} failed, {given_up} given up")) }
    });
    Ok(())
}

#[test]
fn a_list_of_prompts_is_answered_in_its_order() -> Result<()> {
    let host = Host::mock(&[]);
    let ids: Vec<u32> = "by ids".bytes().map(u32::from).collect();
    let body = with(completion(""), &json!({"prompt": ["one two", ids, "three"], "n": 2, "max_tokens": 9}));
    let answer = host.post(COMPLETIONS, &body)?.json();
    let texts: Vec<_> = answer["choices"].as_array().context("choices")?.iter().map(|c| &c["text"]).collect();
    assert_eq!(texts, ["one two", "one two", "by ids", "by ids", "three", "three"]);
    let told = host.told(COMPLETIONS, &streamed(body))?;
    assert_eq!(by_index(&told.frames, 6).0, ["one two", "one two", "by ids", "by ids", "three", "three"]);
    assert_eq!(told.usage, Some(answer["usage"].clone()));
    // A prompt of them that does not fit refuses them all, before anything runs.
    let long = "x".repeat(40_000);
    let body = with(completion(""), &json!({"prompt": ["fits", long]}));
    assert_eq!(host.post(COMPLETIONS, &body)?.error(413)["code"], "context_length_exceeded");
    assert_eq!(host.quiet().all_ended(), 12.0);
    Ok(())
}

#[test]
fn log_probabilities_are_told_for_each_token_of_a_chat() -> Result<()> {
    let host = Host::mock(&[]);
    let body = with(chat("one two three"), &json!({"logprobs": true, "top_logprobs": 2}));
    let answer = host.post(CHAT, &body)?;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let choice = &answer.json()["choices"][0];
    let told = choice["logprobs"]["content"].as_array().context("log-probabilities")?;
    assert_eq!(told.len(), 3);
    for entry in told {
        assert!(entry["logprob"].as_f64().is_some_and(|p| p <= 0.0), "{entry}");
        assert!(entry["token"].is_string() && entry["bytes"].is_array(), "{entry}");
        let top = entry["top_logprobs"].as_array().context("alternatives")?;
        assert_eq!((top.len(), &top[0]["logprob"]), (2, &entry["logprob"]));
        // The engine makes its text itself: of the alternatives it says that of the chosen one.
        assert_eq!((&top[0]["token"], &top[0]["bytes"]), (&entry["token"], &entry["bytes"]));
    }
    let streamed = host.told(CHAT, &streamed(body))?;
    let entries: Vec<Value> = streamed
        .frames
        .iter()
        .filter_map(|f| f["choices"][0]["logprobs"]["content"].as_array().cloned())
        .flatten()
        .collect();
    assert_eq!(&entries, told, "the stream tells what the whole answer does");
    // Ids that are bytes have their text.
    let ids = order("x", &json!({"script": [{"ids": [72, 105]}, {"ids": [33]}]}));
    let answer = host.post(CHAT, &with(chat(&ids), &json!({"logprobs": true})))?.json();
    let tokens: Vec<_> = answer["choices"][0]["logprobs"]["content"]
        .as_array()
        .context("log-probabilities")?
        .iter()
        .map(|entry| (entry["token"].clone(), entry["bytes"].clone()))
        .collect();
    assert_eq!(tokens, [(json!("H"), json!([72])), (json!("i"), json!([105])), (json!("!"), json!([33]))]);
    let answer = host.post(COMPLETIONS, &with(completion("hi"), &json!({"logprobs": 1})))?.json();
    assert_eq!(answer["choices"][0]["logprobs"]["top_logprobs"], json!([{"hi": -0.5}]));
    // Without the question there is no answer, and alternatives need it.
    assert_eq!(host.chat("x")?.json()["choices"][0]["logprobs"], Value::Null);
    let alone = host.post(CHAT, &with(chat("x"), &json!({"top_logprobs": 2})))?.error(400);
    assert_eq!(alone["param"], "top_logprobs");
    Ok(())
}

#[test]
fn tokens_behind_a_stop_string_have_no_log_probabilities() -> Result<()> {
    let host = Host::mock(&[]);
    let ids = order("x", &json!({"script": [{"ids": [65]}, {"ids": [66]}, {"ids": [67]}, {"ids": [68]}]}));
    let body = with(chat(&ids), &json!({"logprobs": true, "stop": ["BC"]}));
    let answer = host.post(CHAT, &body)?.json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["content"], "A");
    assert_eq!(choice["logprobs"]["content"].as_array().map(Vec::len), Some(1), "{choice}");
    // What was held back and came after all is told with it.
    let answer = host.post(CHAT, &with(body, &json!({"stop": ["CX"]})))?.json();
    assert_eq!(answer["choices"][0]["message"]["content"], "ABCD");
    assert_eq!(answer["choices"][0]["logprobs"]["content"].as_array().map(Vec::len), Some(4));
    Ok(())
}

#[test]
fn an_echoed_prompt_is_scored_without_generating() -> Result<()> {
    let host = Host::mock(&[]);
    let body = with(completion("ab c"), &json!({"echo": true, "max_tokens": 0, "logprobs": 1}));
    let answer = host.post(COMPLETIONS, &body)?;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let answer = answer.json();
    let choice = &answer["choices"][0];
    assert_eq!((choice["text"].as_str(), choice["finish_reason"].as_str()), (Some("ab c"), Some("length")));
    let told = &choice["logprobs"];
    assert_eq!(told["tokens"], json!(["a", "b", " ", "c"]));
    assert_eq!(told["text_offset"], json!([0, 1, 2, 3]));
    assert_eq!(told["token_logprobs"][0], Value::Null, "nothing comes before the first");
    assert!(told["token_logprobs"][3].as_f64().is_some_and(|p| p <= 0.0), "{told}");
    assert_eq!(answer["usage"], json!({"prompt_tokens": 4, "completion_tokens": 0, "total_tokens": 4}));
    // With generated text behind it, streamed: the prompt comes first.
    let body = with(completion("ab"), &json!({"echo": true, "max_tokens": 4}));
    assert_eq!(host.post(COMPLETIONS, &body)?.content(), "abab");
    let told = host.told(COMPLETIONS, &streamed(body))?;
    assert_eq!((told.pieces[0].as_str(), told.text.as_str()), ("ab", "abab"));
    Ok(())
}

#[test]
fn what_no_engine_does_yet_is_refused_by_its_name_and_never_ignored() -> Result<()> {
    let host = Host::mock(&["--set", "server.strict_max_tokens=true"]);
    for (path, field, value, code) in [
        (COMPLETIONS, "best_of", json!(3), "unsupported_parameter"),
        (COMPLETIONS, "best_of", json!(1), "invalid_value"),
        (COMPLETIONS, "best_of", json!("x"), "invalid_value"),
        (COMPLETIONS, "suffix", json!("none"), "unsupported_parameter"),
        (COMPLETIONS, "prompt_logprobs", json!(0), "unsupported_parameter"),
        (CHAT, "prompt_logprobs", json!(1), "unsupported_parameter"),
        (CHAT, "bad_words", json!(["x"]), "unsupported_parameter"),
        (CHAT, "include_stop_str_in_output", json!(true), "unsupported_parameter"),
        (CHAT, "skip_special_tokens", json!(false), "unsupported_parameter"),
        (CHAT, "continue_final_message", json!(true), "unsupported_parameter"),
        (CHAT, "chat_template", json!("{{ messages }}"), "unsupported_parameter"),
        (CHAT, "return_token_ids", json!(true), "unsupported_parameter"),
        (CHAT, "truncate_prompt_tokens", json!(5), "unsupported_parameter"),
        (CHAT, "structured_outputs", json!({"regex": "a"}), "unsupported_parameter"),
        (CHAT, "response_format", json!({"type": "json_object"}), "unsupported_parameter"),
        (CHAT, "web_search_options", json!({}), "unsupported_parameter"),
        (CHAT, "modalities", json!(["text", "audio"]), "unsupported_parameter"),
        (CHAT, "max_tokens", json!(1_000_000), "invalid_value"),
    ] {
        let body = if path == CHAT { chat("x") } else { with(completion("x"), &json!({"n": 2})) };
        let error = host.post(path, &with(body, &json!({field: value})))?.error(400);
        assert_eq!(
            (error["code"].as_str(), error["param"].as_str()),
            (Some(code), Some(field)),
            "{field}: {value}"
        );
    }
    let neutral = json!({"best_of": 2, "n": 2, "suffix": "", "prompt_logprobs": null, "bad_words": [], "max_tokens": 100});
    assert_eq!(
        host.post(COMPLETIONS, &with(completion("x"), &neutral))?.json()["choices"].as_array().map(Vec::len),
        Some(2)
    );
    // By default as many are given as there is room for.
    let host = Host::mock(&[]);
    assert_eq!(host.post(CHAT, &with(chat("x"), &json!({"max_tokens": 1_000_000})))?.content(), "x");
    // A greedy engine cannot choose among the likeliest.
    let host = Host::mock(&["--plugin-opt", "mock.features=logprobs"]);
    for (path, body, field) in [
        (CHAT, with(chat("x"), &json!({"top_p": 0.5})), "top_p"),
        (CHAT, with(chat("x"), &json!({"top_k": 5})), "top_k"),
        (COMPLETIONS, with(completion("x"), &json!({"echo": true, "logprobs": 0})), "echo"),
    ] {
        let error = host.post(path, &body)?.error(400);
        assert_eq!(
            (error["code"].as_str(), error["param"].as_str()),
            (Some("unsupported_parameter"), Some(field))
        );
    }
    assert_eq!(host.post(CHAT, &with(chat("x"), &json!({"top_p": 0.5, "temperature": 0})))?.content(), "x");
    Ok(())
}

#[test]
fn what_the_card_lacks_is_refused_by_its_name() -> Result<()> {
    let host = Host::mock(&["--plugin-opt", "mock.features=sampling,seed"]);
    for (path, field, value, body) in [
        (CHAT, "logprobs", json!(true), chat("x")),
        (COMPLETIONS, "logprobs", json!(1), completion("x")),
        (CHAT, "logit_bias", json!({"5": 1}), chat("x")),
        (CHAT, "allowed_token_ids", json!([5]), chat("x")),
        (CHAT, "frequency_penalty", json!(1), chat("x")),
        (CHAT, "tools", json!([{"type": "function"}]), chat("x")),
    ] {
        let error = host.post(path, &with(body, &json!({field: value})))?.error(400);
        assert_eq!(
            (error["code"].as_str(), error["param"].as_str()),
            (Some("unsupported_parameter"), Some(field))
        );
    }
    // Neutral values ask for nothing.
    let neutral = json!({"logprobs": false, "logit_bias": {}, "n": 1, "frequency_penalty": 0, "tools": [], "tool_choice": "none"});
    assert_eq!(host.post(CHAT, &with(chat("x"), &neutral))?.content(), "x");
    // Keys that are no token are a mistake whatever the engine can do.
    let host = Host::mock(&["--plugin-opt", "mock.accept-features=logit_bias"]);
    for bad in [json!({"x": 1}), json!({"99999999": 1}), json!({"5": 101}), json!({"5": "1"})] {
        let error = host.post(CHAT, &with(chat("x"), &json!({"logit_bias": bad})))?.error(400);
        assert_eq!(
            (error["code"].as_str(), error["param"].as_str()),
            (Some("invalid_value"), Some("logit_bias"))
        );
    }
    assert_eq!(host.post(CHAT, &with(chat("x"), &json!({"logit_bias": {"5": -100}})))?.content(), "x");
    Ok(())
}

#[test]
fn a_request_that_could_not_even_run_alone_is_refused_for_good() -> Result<()> {
    let host = Host::mock(&["--max-concurrent", "2", "--max-queued", "1"]);
    let prompts = with(completion("x"), &json!({"prompt": ["a", "b"], "n": 2}));
    for (path, body) in [(COMPLETIONS, prompts), (CHAT, with(streamed(chat("x")), &json!({"n": 4})))] {
        let error = host.post(path, &body)?.error(400);
        assert_eq!((&error["code"], &error["param"]), (&json!("multi_prompt"), &json!("n")));
        let message = error["message"].as_str().unwrap_or_default();
        for part in ["4 generations", "runs 2 at once", "1 more may wait", "--max-queued"] {
            assert!(message.contains(part), "{message}");
        }
    }
    let metrics = host.quiet();
    assert_eq!((metrics.rejected("multi_prompt"), metrics.all_rejected()), (2.0, 2.0));
    // As many as there are places for are answered.
    let answer = host.post(CHAT, &with(chat("x"), &json!({"n": 3})))?;
    assert_eq!(answer.json()["choices"].as_array().map(Vec::len), Some(3));
    // The bound is named where a number is below it.
    let error = host.post(CHAT, &with(chat("x"), &json!({"n": 0})))?.error(400);
    assert_eq!(error["message"], "n is 0; it must be from 1 to 128");
    Ok(())
}
