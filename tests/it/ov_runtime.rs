//! Our own batching over OpenVINO, through the plugin: what it serves, what it counts, what it refuses.

use std::path::Path;

use anyhow::Result;
use cascadia_tests::client::{CHAT, COMPLETIONS, Stream, streamed};
use cascadia_tests::host::run;
use cascadia_tests::http::Request;
use cascadia_tests::{Host, Scrape, TempDir, setup};
use serde_json::{Value, json};

use crate::ov_genai::{COMPILED, ask, running};

/// A host with the plugin, a model and these options; none where the test command has not brought them.
pub(crate) fn host(options: &[&str]) -> Option<Host> {
    let model = setup::model()?.display().to_string();
    let host = plugged(&[&["--model", &model, "--served-model-name", "smol"], options].concat())?;
    host.ready_within(COMPILED);
    Some(host)
}

/// A host with the plugin, listening; none where there is no OpenVINO.
pub(crate) fn plugged(options: &[&str]) -> Option<Host> {
    let fixed = fixed()?;
    let fixed: Vec<&str> = fixed.iter().map(String::as_str).collect();
    Some(Host::start(&[&fixed, options].concat()))
}

/// The plugin and where it finds what it needs.
pub(crate) fn fixed() -> Option<[String; 6]> {
    let openvino = format!("ov-runtime.openvino-dir={}", setup::openvino()?.display());
    let cache = format!("ov-runtime.cache-dir={}", setup::compiled_models().display());
    let plugin = setup::plugin("ov_runtime").display().to_string();
    let option = || "--plugin-opt".to_owned();
    Some(["--plugin".to_owned(), plugin, option(), openvino, option(), cache])
}

/// Blocks of the cache by state.
pub(crate) fn blocks(metrics: &Scrape, state: &str) -> f64 {
    metrics.value("cascadia_plugin_ov_runtime_kv_blocks", &[("state", state)])
}

#[test]
fn the_capital_of_france_is_answered_by_our_own_batching() -> Result<()> {
    let Some(host) = host(&["--profile", "exact"]) else { return Ok(()) };
    let body = ask("What is the capital of France?", &json!({"max_tokens": 32}));
    let answer = host.post(CHAT, &body)?;
    assert_eq!(answer.content(), "The capital of France is Paris.");
    let told = host.told(CHAT, &streamed(body))?;
    assert_eq!((told.text.as_str(), told.finish()), ("The capital of France is Paris.", "stop"));
    assert_eq!(told.completion_tokens(), answer.completion_tokens());
    assert!(told.pieces.len() > 1, "token by token: {:?}", told.pieces);
    let metrics = host.quiet();
    let own = |name: &str| metrics.sum(&format!("cascadia_plugin_ov_runtime_{name}"), &[]);
    assert_eq!(
        own("step_rows_sum"),
        own("prefix_query_tokens_total") - own("prefix_hit_tokens_total") + 14.0
    );
    // Two prompts, and the one token of the host's own trial.
    assert_eq!(own("prefix_query_tokens_total"), 75.0);
    assert_eq!(own("prefix_hit_tokens_total"), 32.0, "the second began as the first did");
    for part in ["plan", "bind", "infer", "sample"] {
        let count = metrics.value("cascadia_plugin_ov_runtime_step_seconds_count", &[("part", part)]);
        assert_eq!(count, own("step_rows_count"), "{part}");
    }
    assert_eq!((blocks(&metrics, "held"), own("waiting")), (0.0, 0.0));
    assert!(blocks(&metrics, "cached") > 0.0 && blocks(&metrics, "free") > 0.0);
    assert_eq!(metrics.value("cascadia_engine_tokens_cached", &[]), 32.0 * blocks(&metrics, "cached"));
    let up = host.log_lines().into_iter().find(|line| line["message"] == "model is up");
    let up = up.expect("PANIC: the log says when a model is up");
    assert_eq!(up["quantization"], "f32 inference, f32 KV cache");
    Ok(())
}

#[test]
fn a_compiled_folder_is_served_by_itself() -> Result<()> {
    let Some(model) = setup::model() else { return Ok(()) };
    let place = TempDir::new();
    let (model, folder) = (model.display().to_string(), place.path().join("smol").display().to_string());
    let compiled = run(&["model", "compile", &model, &folder]);
    assert_eq!(compiled.status.code(), Some(0), "{}", compiled.complaint);
    let options = ["--model", &folder, "--served-model-name", "smol", "--profile", "exact"];
    for start in [plugged, crate::ov_genai::plugged] {
        let Some(host) = start(&options) else { return Ok(()) };
        host.ready_within(COMPILED);
        let answer = host.post(CHAT, &ask("What is the capital of France?", &json!({"max_tokens": 32})))?;
        assert_eq!(answer.content(), "The capital of France is Paris.");
        assert_eq!(answer.json()["usage"]["prompt_tokens"], 37);
    }
    Ok(())
}

#[test]
fn everything_that_the_card_promises_is_done() -> Result<()> {
    let Some(host) = host(&["--profile", "exact"]) else { return Ok(()) };
    let drawn = json!({"temperature": 1.5, "top_p": 0.95, "top_k": 200, "min_p": 0.001, "seed": 7,
        "n": 3, "frequency_penalty": 0.2, "presence_penalty": 0.2, "repetition_penalty": 1.05, "min_tokens": 4,
        "max_tokens": 12, "ignore_eos": true, "logprobs": true, "top_logprobs": 3});
    let draw = || -> Result<Value> { Ok(host.post(CHAT, &ask("Tell a story.", &drawn))?.json()) };
    let texts = |answer: &Value| -> Vec<String> {
        let choices = answer["choices"].as_array().cloned().unwrap_or_default();
        choices.iter().map(|choice| choice["message"]["content"].to_string()).collect()
    };
    let first = draw()?;
    let found = texts(&first);
    assert_eq!(found.len(), 3, "{first}");
    assert!(found[0] != found[1] && found[1] != found[2], "{found:?}");
    assert_eq!(texts(&draw()?), found, "the same seed again");
    for token in first["choices"][0]["logprobs"]["content"].as_array().into_iter().flatten() {
        let top = token["top_logprobs"].as_array().cloned().unwrap_or_default();
        assert_eq!(top.len(), 3, "{token}");
        let p = |token: &Value| token["logprob"].as_f64().unwrap_or(1.0);
        assert!(p(token) <= p(&top[0]) && p(&top[0]) >= p(&top[1]) && p(&top[1]) >= p(&top[2]), "{token}");
    }
    // Typical sampling with no share leaves one token, whatever the seed; the same draw without it differs.
    let wild = |seed: u32, typical: f64| -> Result<String> {
        let fields = json!({"temperature": 1.5, "seed": seed, "typical_p": typical, "max_tokens": 12});
        Ok(host.post(CHAT, &ask("Tell a story.", &fields))?.content())
    };
    assert_eq!(wild(1, 0.0)?, wild(2, 0.0)?);
    assert_ne!(wild(1, 1.0)?, wild(2, 1.0)?);
    // Token 7042 is " Paris": banned by its bias, something else is said.
    let france = |fields: &Value| -> Result<String> {
        Ok(host.post(CHAT, &ask("What is the capital of France?", fields))?.content())
    };
    assert!(france(&json!({"max_tokens": 8}))?.contains("Paris"));
    assert!(!france(&json!({"max_tokens": 8, "logit_bias": {"7042": -100}}))?.contains("Paris"));
    let echo = json!({"model": "smol", "prompt": "The capital of France is", "max_tokens": 1, "temperature": 0,
        "echo": true, "logprobs": 1});
    let told = host.post(COMPLETIONS, &echo)?.json()["choices"][0]["logprobs"]["token_logprobs"].clone();
    let told = told.as_array().cloned().unwrap_or_default();
    assert!(
        told.len() > 4 && told[0].is_null() && told[1..].iter().all(|p| p.as_f64() < Some(0.0)),
        "{told:?}"
    );
    Ok(())
}

#[test]
fn the_window_is_what_the_cache_holds_and_ends_what_goes_beyond_it() -> Result<()> {
    let Some(host) = host(&["--profile", "exact", "--cb-num-kv-blocks", "2"]) else { return Ok(()) };
    let told = host.post(CHAT, &ask("Count upwards.", &json!({"ignore_eos": true})))?;
    assert_eq!(told.finish(), "length");
    assert_eq!(told.json()["usage"]["total_tokens"], 64);
    let error = host.post(CHAT, &ask(&"word ".repeat(96), &json!({})))?.error(413);
    assert_eq!(error["code"], "context_length_exceeded");
    assert!(error["message"].as_str().is_some_and(|m| m.contains("64")), "{error}");
    assert_eq!(blocks(&host.quiet(), "held"), 0.0);
    Ok(())
}

#[test]
fn a_cancelled_stream_frees_its_blocks_within_one_step() -> Result<()> {
    let Some(host) = host(&["--profile", "exact", "--cb-prefix-caching=false", "--max-concurrent", "8"])
    else {
        return Ok(());
    };
    let begin = |i: usize, tokens: u64| -> Result<Stream> {
        let body = ask(&format!("Count from {i}."), &json!({"max_tokens": tokens, "ignore_eos": true}));
        host.begin(&Request::post(CHAT, &streamed(body)).header("x-request-id", &format!("s{i}")))?.stream()
    };
    let mut witness = begin(0, 2000)?;
    witness.pieces(1)?;
    let mut streams: Vec<Stream> = (1..8).map(|i| begin(i, 2000)).collect::<Result<_>>()?;
    for stream in &mut streams {
        stream.pieces(1)?;
    }
    // Two blocks each, once a generation is past the first.
    host.until("16 blocks are held", 1.0, |s| f64::from(blocks(s, "held") >= 16.0));
    for (i, stream) in streams.into_iter().enumerate() {
        match i % 3 {
            0 => host.cancel(&format!("s{}", i + 1))?,
            1 => stream.reset(),
            _ => drop(stream),
        }
    }
    let steps = |s: &Scrape| s.sum("cascadia_plugin_ov_runtime_step_rows_count", &[]);
    let known = steps(&host.until("cancelled generations", 7.0, |s| s.ended("cancelled")));
    let metrics = host.until("tasks in the engine", 1.0, running);
    assert!(steps(&metrics) <= known + 2.0, "{} after {known}", steps(&metrics));
    drop(witness);
    let metrics = host.quiet();
    assert_eq!((blocks(&metrics, "held"), blocks(&metrics, "cached")), (0.0, 0.0));
    Ok(())
}

#[test]
fn what_is_not_there_is_named_with_the_way_out() -> Result<()> {
    let (Some(openvino), Some(model)) = (setup::openvino(), setup::model()) else { return Ok(()) };
    let model = model.display().to_string();
    let temp = TempDir::new();
    let own = temp.path().join("libov_runtime.so");
    std::fs::copy(setup::plugin("ov_runtime"), &own)?;
    let cache = setup::compiled_models().display().to_string();
    let told = |folder: &Path, more: &[&str], words: &[&str]| {
        let folder = folder.display().to_string();
        let own = own.display().to_string();
        let known = [
            "--plugin",
            &own,
            "--model",
            &model,
            "--openvino-dir",
            &folder,
            "--cache-dir",
            &cache,
            "--api",
            "127.0.0.1:0",
        ];
        cascadia_tests::host::run(&[&known, more].concat()).complains(1, words);
    };
    // Before anything is opened.
    told(temp.path(), &["--draft-model", "/no/such.gguf"], &["draft-model /no/such.gguf: no such file"]);
    let complains = |folder: &Path, words: &[&str]| told(folder, &[], words);
    complains(temp.path(), &["OpenVINO not found", "openvino-dir", "install openvino with pip"]);
    complains(&openvino, &["libov_runtime_shim.so", "build it with cargo xtask"]);
    let lacking = temp.file("libov_runtime_shim.so", "\0libopenvino.so.1\0");
    complains(&openvino, &["linked to build 1"]);
    // A library that is none of ours.
    std::fs::copy(setup::plugin("mock"), lacking)?;
    complains(&openvino, &["the shim has no ovr_abi"]);
    Ok(())
}
