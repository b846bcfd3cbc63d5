//! Exactness through the real library: what its paged attention computes from our networks, against logits that numpy
//! computed from the same files in f64 (`plugins/ov-ir/reference`).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use cascadia_ov_base::{locate, system::System};
use cascadia_ov_ir as ov_ir;

use crate::ffi::Shim;
use crate::pipeline::{self, Pipeline, Profile, Progress, Sampling, Token};

/// Families, and between them every quantization type that we know; none with capped scores.
const MODELS: [&str; 13] = [
    "gemma-hf",
    "gemma3-gguf",
    "gemma3-hf",
    "llama-gguf",
    "llama-hf",
    "mistral-hf",
    "phi3-hf",
    "qwen2-gguf",
    "qwen2-hf",
    "qwen3-gguf",
    "qwen3-hf",
    "smollm3-gguf",
    "smollm3-hf",
];

/// The compiler's tiny models: one of each family.
fn model(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ov-ir/tests/models").join(name);
    let file = folder.join("model.gguf");
    if file.is_file() { file } else { folder }
}

/// A folder of its own, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("cascadia-ov-genai-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    /// A tiny model, compiled into a folder.
    fn compiled(&self, name: &str) -> PathBuf {
        let folder = self.0.join(name);
        let target = ov_ir::Target::Folder(folder.clone());
        let request =
            ov_ir::Request { source: model(name), target, layers: None, quantize: None, context: None };
        ov_ir::compile(&request, &mut ()).unwrap();
        folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn shim() -> Arc<Shim> {
    // target/PROFILE/deps/this
    let beside = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf();
    let cache = beside.join("ov-genai-cache");
    let search = locate::Search { explicit: None, beside: &beside, site_packages: &[], cache: &cache };
    let runtime = locate::find(&search).unwrap();
    let shim = locate::shim(&beside, "ov_genai", runtime.build).unwrap();
    Shim::load(&System, &runtime, &shim).unwrap()
}

fn open(shim: &Arc<Shim>, folder: PathBuf) -> Pipeline {
    let options = pipeline::Options {
        model: folder,
        device: "CPU".to_owned(),
        profile: Profile::Exact,
        ..pipeline::Options::default()
    };
    Pipeline::open(shim, &options).unwrap()
}

/// What each prompt is answered with, all at once.
fn answers(pipeline: &mut Pipeline, prompts: &[&[u32]], tokens: usize) -> Vec<Vec<Token>> {
    let sampling = Sampling {
        max_tokens: tokens,
        ignore_eos: true,
        eos: Some(0),
        logprobs: true,
        ..Sampling::default()
    };
    let mut requests: Vec<_> =
        prompts.iter().map(|prompt| pipeline.add(prompt, &sampling).unwrap()).collect();
    let mut all = vec![Vec::new(); prompts.len()];
    while pipeline.busy().unwrap() {
        pipeline.step().unwrap();
        for (request, tokens) in requests.iter_mut().zip(&mut all) {
            let progress = request.poll(tokens).unwrap();
            assert!(matches!(progress, Progress::Running | Progress::Length), "{progress:?}");
        }
    }
    all
}

struct Case {
    ids: Vec<u32>,
    logits: Vec<Vec<f32>>,
    /// Tokens of `ids` that the greedy answer follows, and the answer.
    prompt: usize,
    greedy: Vec<u32>,
}

fn case(name: &str) -> Case {
    let path = model(name);
    let folder = if path.is_file() { path.parent().unwrap().to_owned() } else { path };
    let case: Value = serde_json::from_slice(&fs::read(folder.join("case.json")).unwrap()).unwrap();
    let numbers = |key: &str| -> Vec<u32> {
        case[key].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
    };
    let bytes = fs::read(folder.join("logits.bin")).unwrap();
    let logits: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    Case {
        ids: numbers("ids"),
        logits: logits.chunks_exact(case["vocab"].as_u64().unwrap() as usize).map(<[f32]>::to_vec).collect(),
        prompt: case["prompt"].as_u64().unwrap() as usize,
        greedy: numbers("greedy"),
    }
}

/// The likeliest token and its log-probability.
fn best(row: &[f32]) -> (u32, f64) {
    let at = (0..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best });
    let sum: f64 = row.iter().map(|x| f64::from(x - row[at]).exp()).sum();
    (at as u32, -sum.ln())
}

#[test]
#[ignore = "needs cargo xtask build"]
fn every_family_chooses_the_tokens_of_the_reference() {
    let (shim, scratch) = (shim(), Scratch::new("exact"));
    for name in MODELS {
        let case = case(name);
        let mut pipeline = open(&shim, scratch.compiled(name));
        // Every beginning of the sequence at once: they share blocks, and each has its own length in one batch.
        let prompts: Vec<&[u32]> = (1..=case.ids.len()).map(|n| &case.ids[..n]).collect();
        for (at, (found, row)) in answers(&mut pipeline, &prompts, 1).iter().zip(&case.logits).enumerate() {
            let (token, logprob) = best(row);
            assert_eq!((found.len(), found[0].id), (1, token), "{name}, position {at}");
            let apart = (f64::from(found[0].logprob) - logprob).abs();
            assert!(
                apart < 1e-4,
                "{name}, position {at}: log-probability {} for {logprob}",
                found[0].logprob
            );
        }
        // And on its own feet: each token from those that it chose before.
        let found = answers(&mut pipeline, &[&case.ids[..case.prompt]], case.greedy.len());
        let found: Vec<u32> = found[0].iter().map(|token| token.id).collect();
        assert_eq!(found, case.greedy, "{name}");
    }
}
