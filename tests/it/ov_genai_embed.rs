//! A folder whose network embeds: what its card says, what crosses the boundary, and what a host makes of it.

use std::path::PathBuf;

use anyhow::Result;
use cascadia_tests::boundary::Bare;
use cascadia_tests::client::COMPLETIONS;
use cascadia_tests::host::run;
use cascadia_tests::setup;
use serde_json::{Value, json};

use crate::ov_genai::{COMPILED, plugged};

fn bert() -> PathBuf {
    setup::root().join("plugins/ov-genai/tests/models/bert")
}

/// Vectors of `cases.json`, which numpy computed in f64.
fn cases() -> Result<Vec<Value>> {
    Ok(serde_json::from_slice(&std::fs::read(bert().join("cases.json"))?)?)
}

#[test]
fn vectors_that_cross_the_boundary_are_those_of_the_reference() -> Result<()> {
    let Some(openvino) = setup::openvino() else { return Ok(()) };
    let openvino = openvino.display().to_string();
    let options = [("openvino-dir", openvino.as_str()), ("profile", "exact")];
    let cases = cases()?;
    let ids = |case: &Value| -> Vec<u32> {
        case["ids"].as_array().into_iter().flatten().filter_map(|id| Some(id.as_u64()? as u32)).collect()
    };
    let inputs: Vec<Vec<u32>> = cases.iter().map(ids).collect();
    let normalized = cascadia_plugin_api::ext::draft::embeddings::EMBED_NORMALIZE;
    // The model's own way is the mean. 1 to 3 are mean, first and last of the boundary.
    for (pooling, name, flags) in
        [(0, "mean", 0), (1, "mean", normalized), (2, "first", 0), (3, "last", normalized)]
    {
        let engine = Bare::build(&setup::plugin("ov_genai"), "ov-genai", &options, &bert())?;
        let card = engine.card()?;
        assert_eq!(card["features"], json!(["embeddings", "no_generation"]), "{card}");
        assert_eq!((&card["context_length"], &card["vocab_size"]), (&json!(48), &json!(256)));
        let found = engine.embed(&inputs, |task| (task.pooling, task.flags) = (pooling, flags))?;
        assert_eq!(found.len(), cases.len());
        for ((case, input), found) in cases.iter().zip(&inputs).zip(found) {
            assert_eq!(found.tokens as usize, input.len());
            let expected: Vec<f64> =
                case[name].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
            let length = expected.iter().map(|x| x * x).sum::<f64>().sqrt();
            let scale = if flags == 0 { 1.0 } else { length };
            assert_eq!(found.numbers.len(), expected.len());
            for (at, (x, y)) in found.numbers.iter().zip(&expected).enumerate() {
                let apart = (f64::from(*x) - y / scale).abs();
                assert!(apart < 1e-5, "{name} of {} tokens, place {at}: {x} for {}", input.len(), y / scale);
            }
        }
    }
    Ok(())
}

#[test]
fn the_extension_holds_to_its_contract() {
    let Some(openvino) = setup::openvino() else { return };
    let (openvino, model) = (format!("openvino-dir={}", openvino.display()), bert().display().to_string());
    let plugin = setup::plugin("ov_genai").display().to_string();
    let fixed = ["plugin", "check", &plugin, "--model", &model, "--option", &openvino];
    let ended = run(&[&fixed[..], &["--option", "profile=exact", "--only", "^embeddings: "]].concat());
    assert!(ended.output.contains("5 passed, 0 failed, 0 skipped"), "{}{}", ended.output, ended.complaint);
}

#[test]
fn a_host_serves_beside_it_and_says_that_it_generates_nothing() -> Result<()> {
    let Some(host) = plugged(&["--model", &bert().display().to_string(), "--served-model-name", "bert"])
    else {
        return Ok(());
    };
    host.ready_within(COMPILED);
    assert!(host.log().contains("embeds, 16 dimensions, pooling the mean of all tokens"), "{}", host.log());
    let error = host.post(COMPLETIONS, &json!({"model": "bert", "prompt": [1, 2, 3]}))?.error(400);
    assert!(error["message"].as_str().is_some_and(|m| m.contains("its model embeds")), "{error}");
    Ok(())
}
