//! `POST /v1/chat/completions`: what a sound request gets, whole and streamed.

use anyhow::Result;
use cascadia_tests::client::{CHAT, chat, order, streamed, with};
use cascadia_tests::http::Request;
use cascadia_tests::sse::Event;
use cascadia_tests::{Host, Scrape};
use serde_json::{Value, json};

#[test]
fn a_chat_is_answered_whole_with_its_counts() -> Result<()> {
    let host = Host::mock(&[]);
    let request = Request::post(CHAT, &chat("one two three")).header("x-request-id", "my-own-id");
    let answer = host.call(&request)?;
    assert_eq!(answer.content(), "one two three");
    assert_eq!(answer.head.header("x-request-id"), Some("my-own-id"));
    let body = answer.json();
    assert_eq!(body["object"], "chat.completion");
    assert!(body["id"].as_str().is_some_and(|id| id.starts_with("chatcmpl-")), "{body}");
    assert!(body["created"].as_u64().is_some_and(|at| at > 1_600_000_000), "{body}");
    assert_eq!(body["model"], "mock");
    let choices = body["choices"].as_array().map_or(0, Vec::len);
    assert_eq!((choices, &body["choices"][0]["index"]), (1, &json!(0)));
    assert_eq!(body["choices"][0]["message"]["role"], "assistant");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    // The mock's prompt tokens are its bytes.
    assert_eq!(body["usage"], json!({"prompt_tokens": 13, "completion_tokens": 3, "total_tokens": 16}));
    let metrics = host.quiet();
    assert_eq!((metrics.ended("stop"), metrics.all_ended()), (1.0, 1.0));
    assert_eq!(metrics.generated(), 3.0);
    assert_eq!(metrics.value("cascadia_tokens_prompt_total", &[("model", "mock")]), 13.0);
    Ok(())
}

#[test]
fn a_streamed_chat_is_role_text_finish_usage_done() -> Result<()> {
    let host = Host::mock(&[]);
    let mut stream = host.stream(CHAT, &streamed(chat("one two three")))?;
    assert!(stream.head.header("x-request-id").is_some());
    let mut events = Vec::new();
    while let Some(event) = stream.event()? {
        events.push(event);
    }
    let frames: Vec<&Value> =
        events.iter().filter_map(|e| if let Event::Data(v) = e { Some(v) } else { None }).collect();
    assert_eq!(frames[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let text: Vec<_> = frames[1..4].iter().map(|f| f["choices"][0]["delta"]["content"].clone()).collect();
    assert_eq!(text, ["one", " two", " three"]);
    assert_eq!(frames[4]["choices"][0]["delta"], json!({}));
    assert_eq!(frames[4]["choices"][0]["finish_reason"], "stop");
    assert_eq!(frames[5]["choices"], json!([]));
    assert_eq!(frames[5]["usage"], json!({"prompt_tokens": 13, "completion_tokens": 3, "total_tokens": 16}));
    assert_eq!((frames.len(), events.last()), (6, Some(&Event::Done)));
    for frame in frames {
        assert_eq!(frame["object"], "chat.completion.chunk");
        for key in ["id", "created", "model"] {
            assert_eq!(frame[key], stream.told().frames[0][key], "{key} is the same in all frames");
        }
    }
    Ok(())
}

#[test]
fn a_stream_without_include_usage_tells_no_counts() -> Result<()> {
    let host = Host::mock(&[]);
    let told = host.told(CHAT, &with(chat("a b"), &json!({"stream": true})))?;
    assert_eq!((told.text.as_str(), told.finish(), &told.usage), ("a b", "stop", &None));
    assert!(told.frames.iter().all(|f| f.get("usage").is_none()), "{:?}", told.frames);
    Ok(())
}

#[test]
fn the_token_limit_ends_an_answer_with_length_in_both_forms() -> Result<()> {
    let host = Host::mock(&[]);
    for field in ["max_tokens", "max_completion_tokens"] {
        let body = with(chat("a b c d"), &json!({field: 2}));
        let answer = host.post(CHAT, &body)?;
        assert_eq!((answer.content().as_str(), answer.finish().as_str()), ("a b", "length"));
        let told = host.told(CHAT, &streamed(body))?;
        assert_eq!((told.text.as_str(), told.finish(), told.completion_tokens()), ("a b", "length", 2));
    }
    assert_eq!(host.quiet().ended("length"), 4.0);
    Ok(())
}

#[test]
fn what_clients_send_besides_is_accepted() -> Result<()> {
    let host = Host::mock(&[]);
    let messages = json!([
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": null, "tool_calls": []},
        {"role": "user", "content": "c", "name": "someone"},
    ]);
    let body = json!({
        "model": "mock", "messages": messages, "temperature": 0.5, "top_p": 0.9, "seed": 7, "user": "u", "n": 1,
        "store": false, "metadata": {"a": "b"}, "service_tier": "auto", "stop": null, "tools": [],
        "response_format": {"type": "text"}, "parallel_tool_calls": true, "invented": {"x": [1]},
    });
    let answer = host.post(CHAT, &body)?;
    assert_eq!(answer.content(), "ab c");
    Ok(())
}

#[test]
fn cached_and_prompt_tokens_are_those_the_engine_reports() -> Result<()> {
    let host = Host::mock(&[]);
    let prompt = order("x", &json!({"prompt_tokens": 100, "cached_tokens": 60}));
    let usage = host.chat(&prompt)?.json()["usage"].clone();
    assert_eq!(usage["prompt_tokens"], 100);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 60);
    let metrics: Scrape = host.quiet();
    assert_eq!(metrics.value("cascadia_tokens_prompt_total", &[]), 100.0);
    Ok(())
}

#[test]
fn the_list_of_models_names_what_is_served() -> Result<()> {
    let host = Host::mock(&["--model", "/nowhere/some.gguf", "--served-model-name", "smol"]);
    let list = host.get("/v1/models")?.json();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"].as_array().map_or(0, Vec::len), 1);
    let model = &list["data"][0];
    assert_eq!((&model["id"], &model["object"]), (&json!("smol"), &json!("model")));
    assert_eq!(model["max_model_len"], 32768);
    let body = with(chat("x"), &json!({"model": "smol"}));
    assert_eq!(host.post(CHAT, &body)?.json()["model"], "smol");
    assert_eq!(host.quiet().value("cascadia_tokens_generated_total", &[("model", "smol")]), 1.0);
    Ok(())
}
