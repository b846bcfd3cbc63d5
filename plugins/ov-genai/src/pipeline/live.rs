//! The real library and a real model, with what `cargo xtask build` laid beside this test's folder.
//!
//! Ignored where plain cargo runs: neither the wheels nor g++ are needed there.

use std::path::PathBuf;

use super::sampling::Grammar;
use super::*;
use cascadia_ov_base::locate;
use cascadia_ov_base::profile::Profile;
use cascadia_ov_base::system::System;

mod assisted;
mod sampling;
mod stateful;

/// `<|im_start|>` ... of "What is the capital of France?" with SmolLM2's template and system prompt.
const FRANCE: [u32; 36] = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182,
    2, 198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531,
];
/// "The capital of France is Paris.<|im_end|>"
const PARIS: [u32; 8] = [504, 3575, 282, 4649, 314, 7042, 30, 2];
const EOS: u32 = 2;

fn beside() -> PathBuf {
    // target/PROFILE/deps/this
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf()
}

fn runtime() -> locate::Runtime {
    let beside = beside();
    let search = locate::Search {
        explicit: None,
        beside: &beside,
        site_packages: &[],
        cache: &beside.join("ov-genai-cache"),
    };
    locate::find(&search).unwrap()
}

fn shim() -> Arc<Shim> {
    let runtime = runtime();
    let shim = locate::shim(&beside(), "ov_genai", runtime.build).unwrap();
    Shim::load(&System, &runtime, &shim).unwrap()
}

/// The model as a folder with its tokenizer's networks, as the library's own loader writes it; made once.
fn folder(shim: &Arc<Shim>) -> PathBuf {
    let made = beside().join("ov-genai-folder");
    if !made.is_dir() {
        let part = beside().join(format!("ov-genai-folder.{}", std::process::id()));
        std::fs::create_dir_all(&part).unwrap();
        let model = part.join("m.gguf");
        std::os::unix::fs::symlink(options(Profile::Exact).model.canonicalize().unwrap(), &model).unwrap();
        let properties = vec![("enable_save_ov_model".to_owned(), "YES".to_owned())];
        drop(Pipeline::open(shim, &Options { model, properties, ..options(Profile::Exact) }).unwrap());
        // Another test may have been first.
        if std::fs::rename(&part, &made).is_err() {
            std::fs::remove_dir_all(&part).unwrap();
        }
    }
    made
}

fn options(profile: Profile) -> Options {
    Options {
        model: beside().join("../models/SmolLM2-135M-Instruct.Q4_1.gguf"),
        device: "CPU".to_owned(),
        profile,
        ..Options::default()
    }
}

fn france() -> Vec<u32> {
    FRANCE.iter().copied().chain([198]).collect()
}

/// Greedy, a fixed number of tokens.
fn plain_run(tokens: usize) -> Sampling {
    Sampling { max_tokens: tokens, ignore_eos: true, eos: Some(EOS), ..Sampling::default() }
}

struct Run {
    request: Request,
    tokens: Vec<Token>,
    progress: Progress,
}

impl Run {
    fn new(request: Request) -> Self {
        Self { request, tokens: Vec::new(), progress: Progress::Running }
    }

    fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }
}

fn finish(pipeline: &mut Pipeline, runs: &mut [Run]) {
    while pipeline.busy().unwrap() {
        pipeline.step().unwrap();
        for run in &mut *runs {
            run.progress = run.request.poll(&mut run.tokens).unwrap();
        }
    }
}

fn generate(pipeline: &mut Pipeline, prompt: &[u32], sampling: &Sampling) -> Run {
    let mut runs = [Run::new(pipeline.add(prompt, sampling).unwrap())];
    finish(pipeline, &mut runs);
    let [run] = runs;
    run
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn sixteen_requests_at_once_give_what_each_gives_alone() {
    let mut pipeline = Pipeline::open(&shim(), &options(Profile::Exact)).unwrap();
    // Different prompts of different lengths, some with a common beginning.
    let prompt = |n: u32| -> Vec<u32> {
        france().into_iter().take(5 + 2 * n as usize).chain([1000 + n % 4]).collect()
    };
    let alone: Vec<Vec<u32>> =
        (0..16).map(|n| generate(&mut pipeline, &prompt(n), &plain_run(32)).ids()).collect();
    let mut runs: Vec<Run> =
        (0..16).map(|n| Run::new(pipeline.add(&prompt(n), &plain_run(32)).unwrap())).collect();
    finish(&mut pipeline, &mut runs);
    for (n, (run, alone)) in runs.iter().zip(&alone).enumerate() {
        assert_eq!(run.progress, Progress::Length);
        assert_eq!((run.ids(), run.tokens.len()), (alone.clone(), 32), "request {n}");
    }
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn the_capital_of_france_is_paris_and_the_stop_id_comes_last() {
    let shim = shim();
    for profile in [Profile::Exact, Profile::Default] {
        let mut pipeline = Pipeline::open(&shim, &options(profile)).unwrap();
        let sampling = Sampling { max_tokens: 24, eos: Some(EOS), logprobs: true, ..Sampling::default() };
        let run = generate(&mut pipeline, &france(), &sampling);
        assert_eq!((run.ids(), run.progress), (PARIS.to_vec(), Progress::Stop), "{profile:?}");
        assert!(
            run.tokens.iter().all(|token| token.logprob < 0.0 && token.logprob > -3.0),
            "{:?}",
            run.tokens
        );
    }
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn stop_ids_hold_where_the_end_of_text_is_ignored() {
    let mut pipeline = Pipeline::open(&shim(), &options(Profile::Exact)).unwrap();
    // " Paris" is in the answer; the token behind `EOS` is reached only by ignoring that.
    let paris = Sampling { stop_ids: vec![PARIS[5]], ..plain_run(20) };
    let run = generate(&mut pipeline, &france(), &paris);
    assert_eq!((run.ids(), run.progress), (PARIS[..6].to_vec(), Progress::Stop));
    let beyond = generate(&mut pipeline, &france(), &plain_run(20)).ids();
    let at = 7 + beyond[7..].iter().position(|id| !PARIS.contains(id)).unwrap();
    let past_eos = Sampling { stop_ids: vec![beyond[at]], ..plain_run(20) };
    let run = generate(&mut pipeline, &france(), &past_eos);
    assert_eq!((run.ids(), run.progress), (beyond[..=at].to_vec(), Progress::Stop));
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn a_cancelled_or_dropped_request_is_gone_after_one_step() {
    let mut opts = options(Profile::Exact);
    opts.scheduler.prefix_caching = false;
    let mut pipeline = Pipeline::open(&shim(), &opts).unwrap();
    let mut kept = Run::new(pipeline.add(&france(), &plain_run(12)).unwrap());
    let mut cancelled = Run::new(pipeline.add(&france(), &plain_run(500)).unwrap());
    let dropped = pipeline.add(&france(), &plain_run(500)).unwrap();
    for _ in 0..4 {
        pipeline.step().unwrap();
    }
    assert_eq!(pipeline.metrics().unwrap().requests, 3);
    cancelled.request.cancel().unwrap();
    drop(dropped);
    pipeline.step().unwrap();
    assert_eq!(pipeline.metrics().unwrap().scheduled_requests, 1, "{:?}", pipeline.metrics());
    cancelled.progress = cancelled.request.poll(&mut cancelled.tokens).unwrap();
    assert_eq!(cancelled.progress, Progress::Cancelled);
    finish(&mut pipeline, std::slice::from_mut(&mut kept));
    assert_eq!((kept.progress, kept.tokens.len()), (Progress::Length, 12));

    // The pipeline goes first, its request later; the request then gives nothing more.
    let mut orphan = pipeline.add(&france(), &plain_run(500)).unwrap();
    pipeline.step().unwrap();
    drop(pipeline);
    let mut tokens = Vec::new();
    orphan.poll(&mut tokens).unwrap();
    assert_eq!(tokens.len(), 1);
    orphan.cancel().unwrap();
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn what_the_library_refuses_is_an_error_with_its_words() {
    let shim = shim();
    let refused = |options: &Options| {
        let Err(error) = Pipeline::open(&shim, options) else { panic!("opened") };
        error.to_string()
    };
    let none = refused(&Options { model: "nowhere.gguf".into(), ..options(Profile::Default) });
    assert!(none.contains("nowhere.gguf") && none.contains("no such file"), "{none}");
    let folder = refused(&Options { model: beside(), ..options(Profile::Default) });
    assert!(folder.contains("Could not find a model"), "{folder}");
    let device = refused(&Options { device: "TPU".into(), ..options(Profile::Default) });
    assert!(device.contains("TPU"), "{device}");
    let unknown = vec![("NO_SUCH_PROPERTY".to_owned(), "1".to_owned())];
    let property = refused(&Options { properties: unknown, ..options(Profile::Default) });
    assert!(property.contains("NO_SUCH_PROPERTY"), "{property}");
    let half = vec![("INFERENCE_PRECISION_HINT".to_owned(), "f16".to_owned())];
    let precision = refused(&Options { properties: half, ..options(Profile::Exact) });
    assert!(precision.contains("use bf16 or f32"), "{precision}");

    let mut pipeline = Pipeline::open(&shim, &options(Profile::Default)).unwrap();
    let hot = Sampling { temperature: 1.0, top_p: 7.0, ..Sampling::default() };
    let Err(error) = pipeline.add(&france(), &hot) else { panic!("added") };
    assert!(error.to_string().contains("top_p"), "{error}");
    assert_eq!(generate(&mut pipeline, &france(), &plain_run(3)).tokens.len(), 3, "it still works");
}

#[test]
#[ignore = "needs cargo xtask build"]
fn the_library_reads_the_scheduler_as_the_shim_wrote_it() {
    let shim = shim();
    shim.check(false).unwrap();
    let dump = shim.scheduler_dump().unwrap();
    for line in
        ["max_num_batched_tokens: 1111", "num_kv_blocks: 2222", "cache_size: 3333", "max_num_seqs: 4444"]
    {
        assert!(dump.contains(line), "{dump}");
    }
    let (version, build) = shim.version();
    assert!(build.starts_with(&format!("{}.{}.", version / 100, version % 100)), "{version} {build}");
}
