//! What OpenVINO computes from compiled models, against logits that numpy computed from the same files in f64.

use std::path::PathBuf;

use cascadia_ov_ir::{Bits, Quantize, Request, compile};
use serde_json::Value;

use crate::ffi::{Feed, Running, Runtime};
use crate::fixture::{Scratch, case, ids, request, whole};
use crate::models::{self, source};

#[expect(clippy::disallowed_methods, reason = "the test runner says where things are")]
fn given(name: &str) -> PathBuf {
    std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set; run cargo xtask test")).into()
}

fn runtime() -> Runtime {
    Runtime::open(&given("CASCADIA_OPENVINO"))
}

/// What the layers before have computed, or the ids.
enum Input<'a> {
    Ids(&'a [i64]),
    Hidden(&'a [f32]),
}

/// The output for tokens `from..to` of a sequence whose earlier tokens the model has seen.
fn run(model: &mut Running, input: Input, from: usize, to: usize) -> Vec<f32> {
    let count = to - from;
    let positions: Vec<i64> = (from as i64..to as i64).collect();
    let mask = vec![1; to];
    let new = [1, count as i64];
    let first = match input {
        Input::Ids(ids) => ("input_ids", Feed::I64(&ids[from..to], new)),
        Input::Hidden(x) => ("inputs_embeds", Feed::F32(x, [1, count as i64, (x.len() / count) as i64])),
    };
    model.infer(&[
        first,
        ("attention_mask", Feed::I64(&mask, [1, to as i64])),
        ("position_ids", Feed::I64(&positions, new)),
        ("beam_idx", Feed::I32(&[0])),
    ])
}

/// Mean KL divergence in f64, the largest difference, and positions whose best token differs though the reference's
/// margin exceeds twice that difference.
fn difference(reference: &[Vec<f32>], found: &[f32]) -> (f64, f64, usize) {
    let logs = |row: &[f32]| -> Vec<f64> {
        let largest = row.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = row.iter().map(|x| f64::from(x - largest).exp()).sum();
        row.iter().map(|x| f64::from(x - largest) - sum.ln()).collect()
    };
    let best = |row: &[f32]| (0..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best });
    let rows: Vec<&[f32]> = found.chunks_exact(reference[0].len()).collect();
    assert_eq!(rows.len(), reference.len());
    let pairs = || reference.iter().zip(&rows);
    let apart = |(a, b): (&f32, &f32)| f64::from((a - b).abs());
    let largest = pairs().flat_map(|(r, f)| r.iter().zip(*f).map(apart)).fold(0.0, f64::max);
    let (mut kl, mut wrong) = (0.0, 0);
    for (r, f) in pairs() {
        kl += logs(r).iter().zip(logs(f)).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
        let first = best(r);
        let second =
            r.iter().enumerate().filter(|(at, _)| *at != first).map(|(_, x)| *x).fold(f32::MIN, f32::max);
        wrong += usize::from(f64::from(r[first] - second) > 2.0 * largest && best(f) != first);
    }
    (kl / reference.len() as f64, largest, wrong)
}

#[test]
#[ignore = "needs OpenVINO"]
fn every_family_computes_what_the_reference_does() {
    let (runtime, scratch) = (runtime(), Scratch::new("families"));
    for name in &models::all() {
        let (ids, reference) = case(name);
        whole(name, &scratch.path(name));
        let mut model = runtime.load(&scratch.path(name));
        let at_once = run(&mut model, Input::Ids(&ids), 0, ids.len());
        let mut model = runtime.load(&scratch.path(name));
        let one_by_one: Vec<f32> =
            (0..ids.len()).flat_map(|at| run(&mut model, Input::Ids(&ids), at, at + 1)).collect();
        for (how, found) in [("at once", at_once), ("one by one", one_by_one)] {
            let (kl, largest, wrong) = difference(&reference, &found);
            assert!(kl.abs() < 1e-9, "{name} {how}: KL {kl:e}, largest difference {largest:e}");
            assert!(largest < 1e-4, "{name} {how}: largest difference {largest:e}");
            assert_eq!(wrong, 0, "{name} {how}");
        }
    }
}

#[test]
#[ignore = "needs OpenVINO"]
fn operations_are_fused_and_weights_stay_compressed() {
    let (runtime, scratch) = (runtime(), Scratch::new("fused"));
    // Layers, compressed products and others (the values of llama-gguf are f32), norms.
    for (name, layers, compressed, plain, norms) in
        [("llama-gguf", 2, 13, 2, 5), ("qwen2-gguf", 1, 8, 0, 3), ("gemma3-gguf", 7, 50, 0, 43)]
    {
        let (ids, _) = case(name);
        whole(name, &scratch.path(name));
        let mut model = runtime.load(&scratch.path(name));
        run(&mut model, Input::Ids(&ids), 0, 4);
        let expected = [
            ("FullyConnectedCompressed", compressed),
            ("FullyConnected", plain),
            ("GatherCompressed", 1),
            ("RMS", norms),
            ("RoPE", 2 * layers),
            ("ScaledDotProductAttentionWithKVCache", layers),
            ("MatMul", 0),
            ("Softmax", 0),
        ];
        check(&model, name, &expected);
    }
}

#[test]
#[ignore = "needs OpenVINO"]
fn matrices_that_others_packed_stay_compressed_too() {
    let (runtime, scratch) = (runtime(), Scratch::new("fused-packed"));
    for name in ["llama-gptq-hf", "mistral-gptq-hf", "qwen2-awq-hf", "qwen3-packed-hf"] {
        let (ids, _) = case(name);
        whole(name, &scratch.path(name));
        let mut model = runtime.load(&scratch.path(name));
        run(&mut model, Input::Ids(&ids), 0, 4);
        // Seven in each of two layers, and the head, which is not packed.
        check(&model, name, &[("FullyConnectedCompressed", 14), ("FullyConnected", 1), ("MatMul", 0)]);
    }
}

fn check(model: &Running, name: &str, expected: &[(&str, usize)]) {
    let all = model.operations();
    for (kind, count) in expected {
        assert_eq!(all.get(*kind).copied().unwrap_or(0), *count, "{kind} of {name}: {all:?}");
    }
}

#[test]
#[ignore = "needs OpenVINO"]
fn stages_in_a_row_compute_the_very_numbers_of_the_whole() {
    let (name, cuts) = ("gemma3-gguf", [0, 2, 6, 7]);
    staged("stages", name, &cuts, |_| source(name));
    // Cut out of the finished network, the stages are the same again.
    staged("cuts", name, &cuts, |scratch| scratch.path("whole"));
    staged("cuts-gqa", "llama-gguf", &[0, 1, 2], |scratch| scratch.path("whole"));
}

/// Compares a chain of stages, made of what `from` says, with the whole.
fn staged(title: &str, name: &str, cuts: &[usize], from: impl Fn(&Scratch) -> PathBuf) {
    let (runtime, scratch) = (runtime(), Scratch::new(title));
    let (ids, _) = case(name);
    whole(name, &scratch.path("whole"));
    let mut model = runtime.load(&scratch.path("whole"));
    let mut stages: Vec<Running> = cuts
        .windows(2)
        .map(|cut| {
            let folder = scratch.path(&format!("{}", cut[0]));
            let part = Request { layers: Some(cut[0]..cut[1]), ..request(&from(&scratch), &folder) };
            compile(&part, &mut ()).unwrap_or_else(|error| panic!("{title} {cut:?}: {error}"));
            runtime.load(&folder)
        })
        .collect();
    for (from, to) in [(0, 10), (10, 11), (11, 24)] {
        let expected = run(&mut model, Input::Ids(&ids), from, to);
        let mut state = run(&mut stages[0], Input::Ids(&ids), from, to);
        for stage in &mut stages[1..] {
            state = run(stage, Input::Hidden(&state), from, to);
        }
        assert!(expected == state, "tokens {from}..{to} differ");
    }
}

#[test]
#[ignore = "needs OpenVINO"]
fn weights_rounded_on_request_stay_near_the_reference() {
    let (runtime, scratch) = (runtime(), Scratch::new("rounded"));
    let (ids, reference) = case("llama-hf");
    for (bits, limit) in [(Bits::Eight, 1e-3), (Bits::Four, 0.2)] {
        let folder = scratch.path(&format!("{bits:?}"));
        let quantize = Some(Quantize { bits, group: std::num::NonZeroUsize::new(16) });
        let request = Request { quantize, ..request(&source("llama-hf"), &folder) };
        let report = compile(&request, &mut ()).unwrap();
        assert_eq!(report.manifest.weights.quantized.len(), 16, "14 matrices, embeddings and head");
        let found = run(&mut runtime.load(&folder), Input::Ids(&ids), 0, ids.len());
        let (kl, _, _) = difference(&reference, &found);
        assert!(kl > 0.0 && kl < limit, "{bits:?}: KL {kl:e}");
    }
}

/// The outline of a large model's logits: the largest of each row, every 1024th, and the logarithm of the sum of all
/// exponentials, rounded to 1e-5. The divergence is that of the listed tokens and the rest taken together.
#[test]
#[ignore = "needs OpenVINO and the model"]
fn a_real_model_computes_what_the_reference_does() {
    let (runtime, scratch) = (runtime(), Scratch::new("real"));
    let text = std::fs::read(models::folder().join("smollm2.json")).unwrap();
    let outline: Value = serde_json::from_slice(&text).unwrap();
    let ids = ids(&outline);
    compile(&request(&given("CASCADIA_MODEL"), &scratch.path("model")), &mut ()).unwrap();
    let mut model = runtime.load(&scratch.path("model"));
    let found = run(&mut model, Input::Ids(&ids), 0, ids.len());
    let vocab = outline["vocab"].as_u64().unwrap() as usize;
    for (row, outline) in found.chunks_exact(vocab).zip(outline["rows"].as_array().unwrap()) {
        let numbers = |key: &str| -> Vec<f64> {
            outline[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
        };
        let (at, logits, total) = (numbers("at"), numbers("logits"), outline["total"].as_f64().unwrap());
        let largest = row.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = row.iter().map(|x| f64::from(x - largest).exp()).sum();
        let (mut kl, mut p_rest, mut q_rest) = (0.0, 1.0, 1.0);
        for (at, logit) in at.iter().zip(&logits) {
            let ours = f64::from(row[*at as usize]);
            assert!((ours - logit).abs() < 1e-3, "token {at}: {ours} for {logit}");
            let (p, q) = ((logit - total).exp(), (ours - f64::from(largest)).exp() / sum);
            kl += p * (p / q).ln();
            (p_rest, q_rest) = (p_rest - p, q_rest - q);
        }
        kl += p_rest * (p_rest / q_rest).ln();
        assert!(kl.abs() < 1e-5, "KL {kl:e}");
        let best =
            logits.iter().zip(&at).fold((f64::MIN, 0.0), |a, (x, at)| if *x > a.0 { (*x, *at) } else { a });
        assert_eq!(row[best.1 as usize], largest, "the best token is {}", best.1);
    }
    let expected = [
        ("FullyConnectedCompressed", 211),
        ("GatherCompressed", 1),
        ("RMS", 61),
        ("RoPE", 60),
        ("ScaledDotProductAttentionWithKVCache", 30),
    ];
    check(&model, "smollm2", &expected);
}
