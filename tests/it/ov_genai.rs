//! The real engine: OpenVINO GenAI with a small real model, through the plugin.

use std::time::Duration;

use anyhow::Result;
use cascadia_tests::client::{CHAT, Stream, streamed, with};
use cascadia_tests::http::Request;
use cascadia_tests::{Host, Scrape, setup, sys, wait};
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

/// A compilation and a load on a busy machine.
pub(crate) const COMPILED: Duration = Duration::from_secs(240);

pub(crate) fn ask(question: &str, fields: &Value) -> Value {
    let body =
        json!({"model": "smol", "temperature": 0, "messages": [{"role": "user", "content": question}]});
    with(body, fields)
}

#[test]
fn the_capital_of_france_is_answered_through_the_plugin() -> Result<()> {
    let Some(host) = host(&[]) else { return Ok(()) };
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
    let Some(host) = host(&["--plugin-opt", "ov-genai.cb=true", "--max-concurrent", "16"]) else {
        return Ok(());
    };
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
    assert_eq!(running(&host.scrape()), 16.0, "all sixteen at once");
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
fn an_isolated_engine_that_is_killed_comes_back_and_answers() -> Result<()> {
    let Some(host) = host(&["--isolate"]) else { return Ok(()) };
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
