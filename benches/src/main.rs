//! `cargo xtask soak`: a host under load while everything that may go wrong does, and what is left of it afterwards.
//!
//! Two soaks: the mock, with faults ([`mocks`]), and our own batching over OpenVINO with a real model ([`engine`]). Clients ask
//! without a pause, [`books`] judges each request, and [`watch`] looks at the host. Afterwards gauges, memory, descriptors, threads and
//! children must be back ([`verdict`]).
#![expect(clippy::print_stderr, reason = "a command that talks to its terminal")]

mod answers;
mod books;
mod engine;
mod faults;
mod load;
mod mocks;
mod verdict;
mod vitals;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use cascadia_tests::setup;

/// Minutes of the longest soak: a week.
const MOST: f64 = 10_080.0;

struct Options {
    /// The file of a real model, for the soak of our own engine.
    engine: Option<PathBuf>,
    minutes: f64,
    seed: u64,
    isolate: bool,
    json: bool,
}

impl Options {
    fn parse(words: impl Iterator<Item = String>) -> Result<Options> {
        let mut words = words.peekable();
        let mut options = Options { engine: None, minutes: 30.0, seed: 0, isolate: false, json: false };
        if words.next_if(|word| word == "ov-runtime").is_some() {
            let file =
                words.next_if(|word| !word.starts_with('-')).context("ov-runtime takes a model's file")?;
            (options.engine, options.minutes) = (Some(PathBuf::from(file)), 60.0);
        }
        let mut seed = None;
        while let Some(word) = words.next() {
            match word.as_str() {
                "--minutes" => {
                    let told = words.next().unwrap_or_default();
                    let minutes = told.parse().ok().filter(|n: &f64| (0.0..=MOST).contains(n));
                    options.minutes = minutes
                        .with_context(|| format!("--minutes takes a number from 0 to {MOST}, got {told:?}"))?
                }
                "--seed" => {
                    let told = words.next().unwrap_or_default();
                    seed = Some(told.parse().with_context(|| format!("--seed takes a number, got {told:?}"))?)
                }
                "--isolate" => options.isolate = true,
                "--json" => options.json = true,
                other => bail!("unknown word {other}; there are --minutes, --seed, --isolate and --json"),
            }
        }
        options.seed = seed.unwrap_or_else(setup::seed);
        Ok(options)
    }
}

fn main() -> ExitCode {
    let done = Options::parse(std::env::args().skip(1)).and_then(|options| match &options.engine {
        None => mocks::soak(&options),
        Some(model) => engine::soak(model, &options),
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
