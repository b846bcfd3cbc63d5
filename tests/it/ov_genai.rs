//! The real engine: OpenVINO GenAI with a small real model, through the plugin.

use std::time::Duration;

use anyhow::Result;
use cascadia_tests::client::{CHAT, COMPLETIONS, Stream, streamed, with};
use cascadia_tests::http::Request;
use cascadia_tests::{Host, Scrape, TempDir, setup, sys, wait};
use serde_json::{Value, json};

/// A host with the plugin and the model; none where the test command has not brought them.
pub(crate) fn host(options: &[&str]) -> Option<Host> {
    let model = setup::model()?.display().to_string();
    let host = plugged(&[&["--model", &model, "--served-model-name", "smol"], options].concat())?;
    host.ready_within(COMPILED);
    Some(host)
}

/// A host with the plugin, listening; none where there is no OpenVINO.
pub(crate) fn plugged(options: &[&str]) -> Option<Host> {
    let openvino = format!("ov-genai.openvino-dir={}", setup::openvino()?.display());
    let cache = format!("ov-genai.cache-dir={}", setup::compiled_models().display());
    let plugin = setup::plugin("ov_genai").display().to_string();
    let fixed = ["--plugin", &plugin, "--plugin-opt", &openvino, "--plugin-opt", &cache];
    Some(Host::start(&[&fixed, options].concat()))
}

/// What a small model answers hangs on the rounding of the default precision; without it the answer is the same everywhere.
const EXACT: [&str; 2] = ["--plugin-opt", "ov-genai.profile=exact"];

/// A compilation and a load on a busy machine.
pub(crate) const COMPILED: Duration = Duration::from_secs(240);

pub(crate) fn ask(question: &str, fields: &Value) -> Value {
    let body =
        json!({"model": "smol", "temperature": 0, "messages": [{"role": "user", "content": question}]});
    with(body, fields)
}

#[test]
fn the_capital_of_france_is_answered_through_the_plugin() -> Result<()> {
    let Some(host) = host(&EXACT) else { return Ok(()) };
    let body = ask("What is the capital of France?", &json!({"max_tokens": 32}));
    let answer = host.post(CHAT, &body)?;
    assert!(answer.content().contains("Paris"), "{}", answer.content());
    let usage = answer.json()["usage"].clone();
    assert!(usage["prompt_tokens"].as_u64().is_some_and(|n| n > 5), "{usage}");
    // The same text streamed, in pieces, with the same counts.
    let told = host.told(CHAT, &streamed(body))?;
    assert_eq!((&told.text, told.finish()), (&answer.content(), answer.finish().as_str()));
    assert_eq!(told.completion_tokens(), answer.completion_tokens());
    assert!(told.pieces.len() > 1, "token by token: {:?}", told.pieces);
    let metrics = host.quiet();
    let tokens = answer.completion_tokens() + told.completion_tokens();
    assert_eq!(metrics.value("cascadia_tokens_generated_total", &[("model", "smol")]), tokens as f64);
    assert_eq!(metrics.value("cascadia_generation_ttft_seconds_count", &[("model", "smol")]), 2.0);
    assert_eq!((metrics.all_ended(), metrics.all_rejected()), (2.0, 0.0));
    assert!(metrics.value("cascadia_engine_model_load_duration_seconds", &[("model", "smol")]) > 0.0);
    // The log names plugin, version, device and model.
    let up = host.log_lines().into_iter().find(|line| line["message"] == "model is up");
    let up = up.expect("PANIC: the log says when a model is up");
    for key in ["plugin", "version", "device_name", "model", "path"] {
        assert!(up[key].as_str().is_some_and(|v| !v.is_empty()), "{key} in {up}");
    }
    Ok(())
}

/// The engine's gauges.
pub(crate) fn running(s: &Scrape) -> f64 {
    s.value("cascadia_engine_requests_running", &[]) + s.value("cascadia_engine_requests_waiting", &[])
}

#[test]
fn of_sixteen_streams_in_one_batch_five_are_given_up_and_freed() -> Result<()> {
    let batched = ["--plugin-opt", "ov-genai.cb=true", "--max-concurrent", "16"];
    let Some(host) = host(&[&EXACT[..], &batched].concat()) else { return Ok(()) };
    let limit = 160;
    let begin = |i: usize| -> Result<Stream> {
        // They would all go on for longer than the test needs to give five of them up.
        let body =
            ask(&format!("Count upwards from {i}."), &json!({"max_tokens": limit, "ignore_eos": true}));
        host.begin(&Request::post(CHAT, &streamed(body)).header("x-request-id", &format!("s{i}")))?.stream()
    };
    let mut streams: Vec<Stream> = (0..16).map(begin).collect::<Result<_>>()?;
    for stream in &mut streams {
        stream.pieces(1)?;
    }
    let all = host.scrape();
    assert_eq!(running(&all), 16.0, "all sixteen at once");
    assert!(all.value("cascadia_engine_kv_blocks", &[]) > 16.0, "the library's blocks are counted");
    let usage = |s: &Scrape| s.value("cascadia_engine_kv_cache_usage_ratio", &[]);
    assert!((0.01..=1.0).contains(&usage(&all)), "{}", usage(&all));
    let five: Vec<Stream> = streams.drain(..5).collect();
    let mut cancelled = Vec::new();
    for (i, stream) in five.into_iter().enumerate() {
        match i {
            0 | 1 => {
                host.cancel(&format!("s{i}"))?;
                cancelled.push(stream);
            }
            2 | 3 => stream.reset(),
            _ => drop(stream),
        }
    }
    // The engine holds eleven while those still run: the five are free before any of the others has ended.
    let metrics = host.until("tasks in the engine", 11.0, running);
    assert_eq!((metrics.ended("cancelled"), metrics.all_ended()), (5.0, 5.0));
    assert_eq!(metrics.value("cascadia_inflight_tasks", &[]), 11.0);
    let mut tokens = 0;
    for stream in cancelled {
        let told = stream.rest()?;
        assert_eq!(told.finish(), "stop");
        tokens += told.completion_tokens();
    }
    for stream in streams {
        let told = stream.rest()?;
        assert_eq!((told.finish(), told.completion_tokens()), ("length", limit));
        tokens += told.completion_tokens();
    }
    let metrics = host.until("generations", 0.0, |s| s.value("cascadia_inflight_tasks", &[]));
    assert_eq!(running(&host.until("tasks in the engine", 0.0, running)), 0.0);
    host.until("used part of the cache", 0.0, usage);
    assert_eq!((metrics.ended("length"), metrics.ended("cancelled"), metrics.all_ended()), (11.0, 5.0, 16.0));
    assert_eq!(metrics.value("cascadia_tasks_cancelled_total", &[]), 5.0);
    assert_eq!(metrics.value("cascadia_tasks_failed_total", &[]), 0.0);
    assert_eq!(metrics.value("cascadia_generation_ttft_seconds_count", &[]), 16.0);
    // Those who left have received some too.
    assert!(metrics.generated() >= (tokens + 3) as f64, "{} of at least {tokens}", metrics.generated());
    // The places are usable again.
    let answer = host.post(CHAT, &ask("What is the capital of France?", &json!({"max_tokens": 32})))?;
    assert!(answer.content().contains("Paris"), "{}", answer.content());
    Ok(())
}

#[test]
fn choices_are_drawn_by_seed_and_what_the_library_lacks_is_refused_by_name() -> Result<()> {
    let Some(host) = host(&["--plugin-opt", "ov-genai.cb=true", "--plugin-opt", "ov-genai.profile=exact"])
    else {
        return Ok(());
    };
    let drawn = json!({"temperature": 1.5, "top_p": 0.95, "top_k": 200, "min_p": 0.001, "seed": 7, "n": 3,
        "frequency_penalty": 0.2, "presence_penalty": 0.2, "repetition_penalty": 1.05, "min_tokens": 4,
        "max_tokens": 12, "ignore_eos": true, "logprobs": true});
    let draw = || -> Result<Value> { Ok(host.post(CHAT, &ask("Tell a story.", &drawn))?.json()) };
    let first = draw()?;
    let texts = |answer: &Value| -> Vec<String> {
        let choices = answer["choices"].as_array().cloned().unwrap_or_default();
        choices.iter().map(|choice| choice["message"]["content"].to_string()).collect()
    };
    let found = texts(&first);
    assert_eq!(found.len(), 3, "{first}");
    assert!(found[0] != found[1] && found[1] != found[2], "{found:?}");
    for token in first["choices"][0]["logprobs"]["content"].as_array().into_iter().flatten() {
        assert!(token["logprob"].as_f64().is_some_and(|p| p < 0.0), "{token}");
    }
    let again = draw()?;
    assert_eq!(texts(&again), found, "the same seed again");
    // Each of the three begins with the same block of 32 tokens, which is there by now.
    let details = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    assert!(details(&first) < details(&again), "{first} {again}");
    assert!(details(&again).is_some_and(|n| n >= 32), "{again}");
    assert!(host.scrape().value("cascadia_engine_tokens_cached", &[]) >= 64.0);
    for (field, value) in
        [("logit_bias", json!({"5": 1.0})), ("top_logprobs", json!(2)), ("typical_p", json!(0.5))]
    {
        let refused = ask("Hi", &json!({"logprobs": true, "temperature": 1.0, (field): value}));
        let error = host.post(CHAT, &refused)?.error(400);
        assert!(error["message"].as_str().is_some_and(|m| m.contains(field)), "{field}: {error}");
    }
    let completion = json!({"prompt": "Hi", "max_tokens": 1, "logprobs": 1});
    let error = host.post(COMPLETIONS, &completion)?.error(400);
    assert_eq!(error["param"], "logprobs", "{error}");
    Ok(())
}

#[test]
fn proposed_and_accepted_tokens_are_counted_and_the_text_stays() -> Result<()> {
    let Some(plain) = host(&EXACT) else { return Ok(()) };
    // Beyond its end it repeats itself, as small models do.
    let fields = json!({"max_tokens": 80, "ignore_eos": true});
    let question = ask("Count from one to five, three times.", &fields);
    let expected = plain.post(CHAT, &question)?.content();
    drop(plain);
    let options = [&EXACT[..], &["--plugin-opt", "ov-genai.cb-prompt-lookup=true"]].concat();
    let Some(host) = host(&options) else { return Ok(()) };
    let answer = host.post(CHAT, &question)?;
    assert_eq!(answer.content(), expected);
    let metrics = host.quiet();
    let count = |name: &str| metrics.value(&format!("cascadia_plugin_ov_genai_{name}_total"), &[]);
    let (proposed, accepted, steps) =
        (count("proposed_tokens"), count("accepted_tokens"), count("inferences"));
    let tokens = answer.completion_tokens() as f64;
    assert!(accepted > 0.0 && accepted <= proposed, "{accepted} of {proposed}");
    assert!(steps < tokens, "{steps} steps for {tokens} tokens");
    Ok(())
}

#[test]
fn an_isolated_engine_that_is_killed_comes_back_and_answers() -> Result<()> {
    let Some(host) = host(&[&EXACT[..], &["--isolate"]].concat()) else { return Ok(()) };
    let question = ask("What is the capital of France?", &json!({"max_tokens": 32}));
    assert!(host.post(CHAT, &question)?.content().contains("Paris"));
    let long = ask("Count upwards.", &json!({"max_tokens": 500, "ignore_eos": true}));
    let mut running = host.stream(CHAT, &streamed(long))?;
    running.pieces(3)?;
    let lines = host.log_lines();
    let told = lines.iter().find(|line| line["message"] == "engine runs in a process of its own");
    let pid = told.and_then(|line| line["pid"].as_u64()).expect("PANIC: the log tells the process");
    sys::signal_id(u32::try_from(pid)?, libc::SIGKILL);
    let error = running.rest()?.error.expect("PANIC: the stream ends with an error frame");
    assert!(error["message"].as_str().is_some_and(|m| m.contains("SIGKILL")), "{error}");
    let answer = wait("the engine to serve again", || match host.post(CHAT, &question) {
        Ok(answer) if answer.status() == 200 => Ok(answer),
        other => Err(format!("{other:?}")),
    });
    assert!(answer.content().contains("Paris"), "{}", answer.content());
    Ok(())
}

/// Texts that tokenizers get wrong.
const HARD: [&str; 14] = [
    "",
    " ",
    "  two  spaces ",
    "a\n\n\tb\r\n",
    "naïve café e\u{301}\u{200d}",
    "日本語のテキスト。中文，한국어",
    "🦀🏳️‍🌈👩‍👩‍👧‍👦",
    "3.14159 0x1F 1,000,000 2026-11-30",
    "fn main() { println!(\"{}\", 1 << 3); }",
    "don't I'll we've SHOULDN'T",
    "<|im_start|>user\nhi<|im_end|>",
    "<|im_start |> <|im_end| >",
    "العربية עברית हिन्दी ไทย",
    "\u{feff}\u{a0}\u{3000}zero\u{200b}width",
];

#[test]
fn a_folder_with_no_tokenizer_but_networks_is_served_by_the_engines_own() -> Result<()> {
    let (Some(openvino), Some(model)) = (setup::openvino(), setup::model()) else { return Ok(()) };
    let temp = TempDir::new();
    let gguf = temp.path().join("m.gguf");
    std::os::unix::fs::symlink(std::fs::canonicalize(model)?, &gguf)?;
    let plugin = setup::plugin("ov_genai").display().to_string();
    let openvino = format!("ov-genai.openvino-dir={}", openvino.display());
    let start = |model: &std::path::Path, more: &[&str]| {
        let model = model.display().to_string();
        let exact = "ov-genai.profile=exact";
        let fixed =
            ["--plugin", &plugin, "--plugin-opt", &openvino, "--plugin-opt", exact, "--model", &model];
        let host = Host::start(&[&fixed[..], &["--served-model-name", "smol"], more].concat());
        host.ready();
        host
    };
    let ask = |host: &Host| -> Result<(Vec<Value>, String)> {
        let mut ids = Vec::new();
        for text in HARD {
            let found = host.post("/tokenize", &json!({"model": "smol", "prompt": text}))?;
            assert_eq!(found.status(), 200, "{text:?}: {}", found.text());
            let tokens = found.json()["tokens"].clone();
            let back = host.post("/detokenize", &json!({"model": "smol", "tokens": tokens}))?.json();
            assert!(text.contains("<|im_start|>") || back["prompt"] == text, "{text:?}: {back}");
            ids.push(json!([text, tokens, back["prompt"]]));
        }
        let body = json!({"model": "smol", "temperature": 0, "max_tokens": 12, "prompt": "The capital of France is"});
        Ok((ids, host.post("/v1/completions", &body)?.json()["choices"][0]["text"].to_string()))
    };
    // The library writes the networks of model and tokenizer beside the file that it was given.
    let library = ["ov-genai.gguf-loader=library", "ov-genai.properties=enable_save_ov_model=YES"];
    let host = start(&gguf, &["--plugin-opt", library[0], "--plugin-opt", library[1]]);
    let ours = ask(&host)?;
    drop(host);
    std::fs::remove_file(&gguf)?;
    assert!(temp.path().join("openvino_detokenizer.xml").is_file());
    let host = start(temp.path(), &[]);
    let up = host.log_lines().into_iter().find(|line| line["message"] == "model is up");
    assert_eq!(up.expect("PANIC: the log says when a model is up")["tokenizer"], "engine");
    assert_eq!(ask(&host)?, ours);
    Ok(())
}
