//! Exactness through the real library: what it computes from our networks, with paged attention and with the model in one
//! piece, against logits that numpy computed from the same files in f64 (`plugins/ov-ir/reference`).

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cascadia_ov_base::source::{Loader, Source};
use cascadia_ov_base::{locate, system::System};
use cascadia_ov_ir as ov_ir;

use crate::ffi::Shim;
use crate::pipeline::sampling::Sampling;
use crate::pipeline::setup;
use crate::pipeline::stateful::Stateful;
use crate::pipeline::{Pipeline, Progress, Token};
use cascadia_ov_base::profile::Profile;

/// Those of the tiny models that can be paged, which lacks only those with capped scores.
fn pageable() -> Vec<String> {
    let mut names = models::all();
    let all = names.len();
    names.retain(|name| Source::of(&model(name), Loader::Own).unwrap().capped.is_none());
    assert_eq!(all - names.len(), 2, "Gemma 2 in both forms is left out, nothing else: {names:?}");
    names
}

/// The compiler's tiny models.
#[path = "../../ov-ir/tests/it/models.rs"]
mod models;

use models::source as model;

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
        let request = ov_ir::Request::whole(model(name), target);
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

fn exact(folder: PathBuf) -> setup::Options {
    setup::Options {
        model: folder,
        device: "CPU".to_owned(),
        profile: Profile::Exact,
        ..setup::Options::default()
    }
}

fn greedy(tokens: usize) -> Sampling {
    Sampling { max_tokens: tokens, ignore_eos: true, eos: Some(0), ..Sampling::default() }
}

/// What each prompt is answered with, all at once.
fn answers(pipeline: &mut Pipeline, prompts: &[&[u32]], tokens: usize) -> Vec<Vec<Token>> {
    let sampling = Sampling { logprobs: true, ..greedy(tokens) };
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
    let (case, logits) = models::case(name);
    let numbers = |key: &str| -> Vec<u32> {
        case[key].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
    };
    let (ids, greedy) = (numbers("ids"), numbers("greedy"));
    Case { ids, logits, prompt: case["prompt"].as_u64().unwrap() as usize, greedy }
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
    for name in &pageable() {
        let case = case(name);
        let mut pipeline = Pipeline::open(&shim, &exact(scratch.compiled(name))).unwrap();
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

/// What a model in one piece answers.
fn answer(model: &mut Stateful, prompt: &[u32], tokens: usize) -> Vec<u32> {
    model.begin(prompt, &greedy(tokens)).unwrap();
    let mut found = Vec::new();
    loop {
        match model.poll(&mut found, Duration::from_secs(60)).unwrap() {
            Progress::Running => {}
            progress => {
                assert_eq!(progress, Progress::Length);
                return found;
            }
        }
    }
}

#[test]
#[ignore = "needs cargo xtask build"]
fn a_model_in_one_piece_chooses_the_tokens_of_the_reference() {
    let (shim, scratch) = (shim(), Scratch::new("piece"));
    // Both that have no other way to be served, and some that have.
    for name in ["gemma2-gguf", "gemma2-hf", "llama-gguf", "qwen3-hf"] {
        let case = case(name);
        let thread = |body| std::thread::Builder::new().spawn(body);
        let mut model = Stateful::open(&shim, &exact(scratch.compiled(name)), thread).unwrap();
        for (at, row) in case.logits.iter().enumerate() {
            assert_eq!(answer(&mut model, &case.ids[..=at], 1), [best(row).0], "{name}, position {at}");
        }
        let found = answer(&mut model, &case.ids[..case.prompt], case.greedy.len());
        assert_eq!(found, case.greedy, "{name}");
    }
}
