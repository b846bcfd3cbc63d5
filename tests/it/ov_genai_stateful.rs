//! The real engine with the model in one piece: one generation at a time, nothing kept, and nothing claimed that it lacks.

use anyhow::Result;
use cascadia_tests::client::{CHAT, streamed};
use cascadia_tests::host::run;
use cascadia_tests::http::Request;
use cascadia_tests::setup;
use serde_json::json;

use crate::ov_genai::{ask, host};

const STATEFUL: [&str; 4] =
    ["--plugin-opt", "ov-genai.attention=stateful", "--plugin-opt", "ov-genai.profile=exact"];

#[test]
fn a_model_in_one_piece_streams_and_a_generation_that_is_given_up_makes_room_for_the_next() -> Result<()> {
    let Some(host) = host(&STATEFUL) else { return Ok(()) };
    let question = ask("What is the capital of France?", &json!({"max_tokens": 32}));
    let answer = host.post(CHAT, &question)?;
    assert!(answer.content().contains("Paris"), "{}", answer.content());
    let told = host.told(CHAT, &streamed(question.clone()))?;
    assert_eq!((&told.text, told.finish()), (&answer.content(), answer.finish().as_str()));
    assert_eq!(told.completion_tokens(), answer.completion_tokens());
    assert!(told.pieces.len() > 2, "token by token: {:?}", told.pieces);
    // One is given up by the route, one by leaving; those that wait behind each come to their turn.
    let long = ask("Count upwards.", &json!({"max_tokens": 4000, "ignore_eos": true}));
    let begin = |id: &str| -> Result<_> {
        host.begin(&Request::post(CHAT, &streamed(long.clone())).header("x-request-id", id))?.stream()
    };
    let mut first = begin("first")?;
    first.pieces(3)?;
    let mut second = begin("second")?;
    host.cancel("first")?;
    assert_eq!(first.rest()?.finish(), "stop");
    second.pieces(3)?;
    second.reset();
    assert_eq!(host.post(CHAT, &question)?.content(), answer.content());
    let metrics = host.quiet();
    assert_eq!((metrics.ended("cancelled"), metrics.all_ended()), (2.0, 5.0));
    assert_eq!(metrics.value("cascadia_tasks_failed_total", &[]), 0.0);
    // There are no blocks, and nothing is kept of a prompt.
    for name in ["cascadia_engine_kv_blocks", "cascadia_engine_tokens_cached"] {
        assert_eq!(metrics.value(name, &[]), 0.0, "{name}");
    }
    assert!(metrics.named("cascadia_plugin_ov_genai_kv_cache_bytes").is_empty(), "no cache is measured");
    // A token that was given up may have been computed.
    let inferences = metrics.value("cascadia_plugin_ov_genai_inferences_total", &[]);
    assert!(inferences >= metrics.generated(), "{inferences} for {} tokens", metrics.generated());
    Ok(())
}

#[test]
fn a_model_in_one_piece_claims_what_it_has() -> Result<()> {
    let Some(host) = host(&STATEFUL) else { return Ok(()) };
    let drawn = json!({"temperature": 1.5, "top_p": 0.95, "top_k": 200, "min_p": 0.001, "seed": 7, "n": 2,
        "frequency_penalty": 0.2, "presence_penalty": 0.2, "repetition_penalty": 1.05, "min_tokens": 4,
        "max_tokens": 12, "ignore_eos": true});
    let draw = || -> Result<Vec<String>> {
        let answer = host.post(CHAT, &ask("Tell a story.", &drawn))?.json();
        let choices = answer["choices"].as_array().cloned().unwrap_or_default();
        Ok(choices.iter().map(|choice| choice["message"]["content"].to_string()).collect())
    };
    let first = draw()?;
    assert!(first.len() == 2 && first[0] != first[1], "{first:?}");
    assert_eq!(draw()?, first, "the same seed again");
    for (field, value) in [("logprobs", json!(true)), ("logit_bias", json!({"5": 1.0}))] {
        let error = host.post(CHAT, &ask("Hi", &json!({(field): value})))?.error(400);
        assert!(error["message"].as_str().is_some_and(|m| m.contains(field)), "{field}: {error}");
    }
    Ok(())
}

#[test]
fn what_needs_paged_attention_is_refused_where_there_is_none() {
    // Refused before anything is opened, so neither runtime nor device is needed.
    let model = setup::root().join("plugins/ov-ir/tests/models/qwen2-gguf/model.gguf").display().to_string();
    let plugin = setup::plugin("ov_genai").display().to_string();
    let fixed = ["--plugin", &plugin, "--model", &model, "--api", "127.0.0.1:0"];
    let ended = run(&[&fixed[..], &["--attention", "stateful", "--cb"]].concat());
    ended.complains(1, &["cb needs paged attention", "as --attention asks", "leave out cb"]);
    let ended = run(&[&fixed[..], &["--device", "AUTO:NPU,CPU"]].concat());
    ended.complains(1, &["on AUTO:NPU,CPU", "exported for NPU, or choose another device"]);
    let gemma = setup::root().join("plugins/ov-ir/tests/models/gemma2-hf").display().to_string();
    let ended =
        run(&["--plugin", &plugin, "--model", &gemma, "--api", "127.0.0.1:0", "--attention", "paged"]);
    ended.complains(1, &["gemma2 caps its attention scores", "leave out --attention paged"]);
}
