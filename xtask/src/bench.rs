//! `cargo xtask bench` and `cargo xtask soak`: what is measured beside the tests, in release builds.
//!
//! Holds: at the boundary the host measures itself (`plugin bench`), we choose engines and targets; tokens, peers, engines
//! and the soak are programs of their own, in `benches/`. Medians are told, never means; a missed target is an error only with `--gate`, since
//! on a shared machine it is as often the neighbour's fault.

mod table;

use crate::compile::{self, Profile};
use crate::fetch::{self, Artefact};
use crate::place::Place;
use crate::proc;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use table::{Figure, Row, Target};

/// What there is to measure.
pub(crate) const LIST: &str = "\
boundary  what a token costs between host and engine
tokens    what a token costs on its whole way to a client's socket
peers     the same for servers that others wrote, beside ours
engines   whole models: OpenVINO GenAI behind the host, the same library in process, llama.cpp's server
runtime   whole models: our own batching over OpenVINO behind the host, beside the same two
exact     whole models: our own batching in f32, without guessed tokens and with them

cargo xtask bench NAME runs one; cargo xtask soak is the test of endurance.";

const ROUNDS: &str = "9";
const SECONDS: &str = "0.5";

/// One run of `plugin bench`.
struct Case {
    name: &'static str,
    library: &'static str,
    isolate: bool,
    options: &'static [&'static str],
    /// Tasks at once, and what is asked of the result.
    batches: &'static [(u64, Option<Target>)],
}

const fn at_most(figure: Figure, most: f64) -> Option<Target> {
    Some(Target { figure, most })
}

const CASES: &[Case] = &[
    Case {
        name: "null, C",
        library: "libnull_c.so",
        isolate: false,
        options: &[],
        batches: &[(1, at_most(Figure::Cpu, 10.0)), (16, at_most(Figure::Cpu, 4.0))],
    },
    Case {
        name: "null, Rust SDK",
        library: "libnull_engine.so",
        isolate: false,
        options: &[],
        batches: &[(1, None), (16, None)],
    },
    Case {
        name: "mock",
        library: "libmock.so",
        isolate: false,
        options: &[],
        batches: &[(1, None), (16, None)],
    },
    Case {
        name: "null, C",
        library: "libnull_c.so",
        isolate: true,
        options: &[],
        batches: &[(1, None), (16, None)],
    },
    Case {
        name: "null, C, 50,000/s",
        library: "libnull_c.so",
        isolate: true,
        options: &["tokens-per-second=50000"],
        batches: &[(16, at_most(Figure::Core, 0.03))],
    },
    Case {
        name: "mock",
        library: "libmock.so",
        isolate: true,
        options: &[],
        batches: &[(1, None), (16, None)],
    },
];

pub(crate) fn boundary(place: &Place, gate: bool) -> Result<ExitCode> {
    compile::some(
        place,
        Profile::Release,
        &["cascadia-host", "cascadia-plugin-mock", "cascadia-null-engine"],
    )?;
    let (built, folder) = (Profile::Release.folder(place), folder(place)?);
    compile::c_plugin(place, &place.root.join("benches/null-engine/null.c"), &built.join("libnull_c.so"))?;
    let load = || std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned();
    let before = load();
    let (mut rows, mut reports) = (Vec::new(), Vec::new());
    for case in CASES {
        let report = run(&built, case)?;
        for (batch, target) in case.batches {
            let found = report["batches"].as_array().into_iter().flatten().find(|one| one["batch"] == *batch);
            let found = found.with_context(|| format!("no batch {batch} in the report of {}", case.name))?;
            rows.push(Row::new(case.name, case.isolate, *batch, found, *target));
        }
        reports.push(json!({ "case": case.name, "options": case.options, "report": report }));
    }
    println!("\nmedian (quartiles) of {ROUNDS} rounds of {SECONDS} s; ns are per token\n\n{}", table::head());
    rows.iter().for_each(|row| println!("{}", row.text()));
    println!("\nload average before and after: {before}; {}", load());
    let missed: Vec<_> = rows.iter().filter_map(Row::missed).collect();
    for line in &missed {
        println!("missed: {line}");
    }
    let file = folder.join("boundary.json");
    let all = json!({ "load_before": before, "load_after": load(), "cases": reports, "missed": missed });
    let text = serde_json::to_string_pretty(&all).context("write the report")?;
    std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
    println!("{} targets missed; all numbers are in {}", missed.len(), file.display());
    Ok(if gate && !missed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn run(built: &Path, case: &Case) -> Result<Value> {
    eprintln!("measure {}{}", case.name, if case.isolate { ", isolated" } else { "" });
    let mut command = Command::new(built.join("cascadia-host"));
    command.args(["plugin", "bench", "--json", "--rounds", ROUNDS, "--seconds", SECONDS]);
    for (batch, _) in case.batches {
        command.args(["--batch", &batch.to_string()]);
    }
    command.args(case.options.iter().flat_map(|option| ["--option", option]));
    if case.isolate {
        command.arg("--isolate");
    }
    let text = proc::output(command.arg(built.join(case.library)))?;
    serde_json::from_str(&text).with_context(|| format!("read the report of {}", case.name))
}

/// Where reports lie.
fn folder(place: &Place) -> Result<PathBuf> {
    let folder = place.target.join("bench");
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    Ok(folder)
}

/// The cost of a streamed token; its report lies beside the boundary's.
pub(crate) fn tokens(place: &Place, words: &[String]) -> Result<ExitCode> {
    let report = folder(place)?.join("tokens.json");
    let out = ["--out".to_owned(), report.display().to_string()];
    hand_over(place, "cascadia-bench-tokens", &[words, &out].concat())
}

/// The same of others' servers. Who cannot be installed is named in the report.
pub(crate) fn peers(place: &Place, words: &[String]) -> Result<ExitCode> {
    compared(place, "peers", fetch::SERVERS, words)
}

/// Whole models, ours beside others', by the plan of that name.
pub(crate) fn engines(place: &Place, plan: &str, words: &[String]) -> Result<ExitCode> {
    whole(place, plan, fetch::ENGINES, words)
}

/// Whole models, ours alone: nothing of others is fetched.
pub(crate) fn exact(place: &Place, words: &[String]) -> Result<ExitCode> {
    whole(place, "exact", &[], words)
}

/// The folder of compiled models stays, as it does for users.
fn whole(place: &Place, plan: &str, names: &'static [&'static str], words: &[String]) -> Result<ExitCode> {
    let cache = ["--cache".to_owned(), folder(place)?.join("ir").display().to_string()];
    compared(place, plan, names, &[&cache, words].concat())
}

/// Ours beside what is fetched under `names`.
fn compared(
    place: &Place,
    bench: &str,
    names: &'static [&'static str],
    words: &[String],
) -> Result<ExitCode> {
    fetch::need(place, &[Artefact::Openvino, Artefact::Model])?;
    let report = folder(place)?.join(bench).with_added_extension("json").display().to_string();
    let mut all = vec![bench.to_owned(), "--out".to_owned(), report];
    all.extend(["--model".to_owned(), place.gguf().display().to_string()]);
    for (name, found) in fetch::peers(place, names)? {
        all.extend(match found {
            Ok(python) => ["--python".to_owned(), format!("{name}={}", python.display())],
            Err(reason) => ["--absent".to_owned(), format!("{name}={reason:#}")],
        });
    }
    all.extend_from_slice(words);
    compile::all(place, Profile::Release)?;
    start(place, "cascadia-bench-tokens", &all)
}

/// Load without a pause, and what is left afterwards: of the mock with faults, of our own engine with the model, or of its scheduler
/// alone.
pub(crate) fn soak(place: &Place, words: &[String]) -> Result<ExitCode> {
    match words {
        [engine, words @ ..] if engine == "ov-runtime" => {
            fetch::need(place, &[Artefact::Openvino, Artefact::Model])?;
            compile::all(place, Profile::Release)?;
            let model = [engine.clone(), place.gguf().display().to_string()];
            start(place, "cascadia-soak", &[&model, words].concat())
        }
        [scheduler, ..] if scheduler == "scheduler" => {
            let mut command = proc::cargo(&place.root);
            command.args(["test", "--release", "-p", "cascadia-batching", "--lib", "ten_million"]);
            proc::run(command.args(["--", "--ignored", "--nocapture"]))?;
            Ok(ExitCode::SUCCESS)
        }
        words => hand_over(place, "cascadia-soak", words),
    }
}

/// Builds in release and hands over.
fn hand_over(place: &Place, program: &str, words: &[String]) -> Result<ExitCode> {
    compile::some(place, Profile::Release, &["cascadia-host", "cascadia-plugin-mock", "cascadia-benches"])?;
    start(place, program, words)
}

/// Runs a program of the benches, whose exit status is ours.
fn start(place: &Place, program: &str, words: &[String]) -> Result<ExitCode> {
    let built = Profile::Release.folder(place);
    let mut command = Command::new(built.join(program));
    let status = command.args(words).env("CASCADIA_BIN_DIR", &built).status();
    let status = status.map_err(|error| proc::missing(&command, error))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
