//! `cargo xtask test`: every check and every test, in an order in which cheap ones fail first.
//!
//! Holds: a failed check does not hide the next one; a failed build ends the run. The last line has numbers only if
//! the test runner printed them.

mod counts;

use crate::args::TestOptions;
use crate::compile::{self, Profile};
use crate::docs::{self, Mode};
use crate::fetch;
use crate::place::Place;
use crate::{proc, tidy};
use anyhow::{Context, Result, bail, ensure};
use counts::Counts;
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) fn run(place: &Place, options: &TestOptions) -> Result<()> {
    let mut steps = Steps::default();
    let mut counts = Counts::default();
    let outcome = walk(place, options, &mut steps, &mut counts);
    steps.print();
    if let Some(filter) = &options.filter {
        println!("left out: all checks but the tests that match {filter}");
    }
    if fetch::clients_left_out() {
        println!("left out: tests with third-party clients (CLIENTS=none)");
    }
    outcome.context("the run ended early")?;
    let failed = steps.failed();
    ensure!(failed.is_empty(), "failed: {}{}", failed.join(", "), counts.in_brackets());
    ensure!(
        !counts.is_empty(),
        "no test ran; no name contains {}",
        options.filter.as_deref().unwrap_or_default()
    );
    println!("{counts}");
    Ok(())
}

/// Err only where going on makes no sense.
fn walk(place: &Place, options: &TestOptions, steps: &mut Steps, counts: &mut Counts) -> Result<()> {
    let full = options.filter.is_none();
    let wanted = fetch::wanted_by_default();
    let fetching = if options.no_fetch { fetch::demand } else { fetch::need };
    steps.must("fetch", || fetching(place, &wanted))?;
    if full {
        steps.step("fmt", || proc::run(proc::cargo(&place.root).args(["fmt", "--all", "--check"])));
        steps.step("tidy", || tidy::run(place));
        steps.step("clippy", || {
            let lints = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
            proc::run(proc::cargo(&place.root).args(lints))
        });
    }
    steps.must("build", || compile::all(place, Profile::Dev))?;
    if full {
        steps.step("gen --check", || docs::all(place, Mode::Check));
    }
    let nextest = proc::works(proc::cargo(&place.root).args(["nextest", "--version"]));
    steps.step("tests", || tests(place, &mut runner(place, nextest, options.filter.as_deref()), counts));
    if full {
        let mut command = proc::cargo(&place.root);
        steps.step("doc tests", || tests(place, command.args(["test", "--workspace", "--doc"]), counts));
    }
    Ok(())
}

/// Ignored tests are those that need what we have just set up, so they run here. Documentation's examples do not: there
/// `ignore` means what it says.
fn runner(place: &Place, nextest: bool, filter: Option<&str>) -> Command {
    let mut command = proc::cargo(&place.root);
    if nextest {
        command.args(["nextest", "run", "--workspace", "--run-ignored", "all"]).args(filter);
    } else {
        command.args(["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"]);
        command.args(filter).args(["--", "--include-ignored"]);
    }
    command
}

fn tests(place: &Place, command: &mut Command, counts: &mut Counts) -> Result<()> {
    for (name, value) in environment(place) {
        command.env(name, value);
    }
    let (status, lines) = proc::tee(command)?;
    let found = counts.add(&lines);
    ensure!(status.success(), "the test runner ended with {status}");
    if !found {
        bail!("the test runner printed no closing line, so nothing is known about the tests");
    }
    Ok(())
}

/// What the integration tests are told. Their harness reads these and nothing else of ours.
fn environment(place: &Place) -> Vec<(&'static str, std::path::PathBuf)> {
    let mut all = vec![
        ("CASCADIA_BIN_DIR", Profile::Dev.folder(place)),
        ("CASCADIA_OPENVINO", place.openvino()),
        ("CASCADIA_MODEL", place.gguf()),
        ("CASCADIA_TEST_GGUF", place.gguf()),
        ("CASCADIA_PROMETHEUS_DIR", fetch::prometheus_folder(place)),
    ];
    if !fetch::clients_left_out() {
        all.push(("CASCADIA_PYTHON", place.clients_python()));
    }
    all
}

#[derive(Default)]
struct Steps {
    done: Vec<(&'static str, Duration, bool)>,
}

impl Steps {
    fn must(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        eprintln!("== {name}");
        let start = Instant::now();
        let outcome = work();
        self.done.push((name, start.elapsed(), outcome.is_ok()));
        outcome.context(name)
    }

    fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) {
        if let Err(error) = self.must(name, work) {
            eprintln!("error: {error:#}");
        }
    }

    fn failed(&self) -> Vec<&'static str> {
        self.done.iter().filter(|(_, _, good)| !good).map(|(name, ..)| *name).collect()
    }

    fn print(&self) {
        println!("\nsteps:");
        for (name, took, good) in &self.done {
            println!("  {name:<12} {:>7.1} s  {}", took.as_secs_f32(), if *good { "ok" } else { "FAILED" });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_is_listed_and_the_next_one_runs() {
        let mut steps = Steps::default();
        let mut ran = false;
        steps.step("a", || bail!("no"));
        steps.step("b", || {
            ran = true;
            Ok(())
        });
        assert!(ran);
        assert_eq!(steps.failed(), ["a"]);
        assert!(steps.must("c", || bail!("no")).is_err());
    }
}
