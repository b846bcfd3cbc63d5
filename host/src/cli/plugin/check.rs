//! `plugin check`: runs the tests one by one and prints a line for each.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use regex::{Regex, RegexBuilder};
use serde_json::{Value, json};

use super::{has_engine, library, model, pairs, say};
use crate::config::env;
use crate::plugins::check::{self, Plan, Verdict, alone};
use crate::plugins::manifest::Manifest;
use crate::plugins::{load, options};

/// What to check, and how.
#[derive(Args)]
pub(in crate::cli) struct Flags {
    #[command(flatten)]
    subject: Subject,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Run the tests in this process, for a debugger: a crash or a hang ends them all.
    #[arg(long)]
    in_process: bool,
    /// Only the tests in whose name this regular expression matches, in letters of either case.
    #[arg(long, value_name = "RE", value_parser = pattern)]
    only: Option<Regex>,
}

fn pattern(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(text).case_insensitive(true).build().map_err(|error| error.to_string())
}

/// What both processes are told.
#[derive(Args)]
struct Subject {
    /// The plugin: a path with a /, or a name.
    #[arg(value_name = "LIB")]
    library: String,
    /// Engine of the plugin; the first when left out.
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Option of the plugin. Repeatable.
    #[arg(long = "option", value_name = "KEY=VALUE")]
    options: Vec<String>,
    /// Model for the engine, where it needs one.
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Adapter (LoRA) that fits the model, as the engine wants its path.
    #[arg(long, value_name = "PATH")]
    adapter: Option<String>,
    /// Try random sequences of calls too; the same seed makes the same ones.
    #[arg(long, value_name = "SEED")]
    fuzz: Option<u64>,
    /// Seconds that one test may take; an engine without a sign of life for a sixth of it has hung.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

/// One test.
#[derive(Args)]
pub(in crate::cli) struct One {
    #[command(flatten)]
    subject: Subject,
    /// Its name.
    #[arg(long, value_name = "NAME")]
    test: String,
}

impl Subject {
    fn plan(&self) -> Result<(Plan, Option<Manifest>), String> {
        let library = library(&self.library, &[])?;
        let given = pairs(&self.options)?;
        // A library that cannot be read at all is for the tests to say.
        let manifest = load::inspect(&library).ok().map(|candidate| candidate.manifest);
        let options = match &manifest {
            None => BTreeMap::new(),
            Some(m) => options::check(&m.id, &m.about.options, &given).map_err(|all| all.join("\n"))?,
        };
        if let (Some(engine), Some(m)) = (&self.engine, &manifest) {
            has_engine(m, engine)?;
        }
        let model = model(self.model.as_deref())?;
        let timeout = Duration::from_secs(self.timeout.max(1));
        let engine = self.engine.clone();
        let adapter = self.adapter.clone();
        Ok((Plan { library, engine, options, model, adapter, fuzz: self.fuzz, timeout }, manifest))
    }

    /// The command line of the process for one test.
    fn arguments(&self, plan: &Plan, test: &str) -> Vec<OsString> {
        let mut all: Vec<OsString> = ["plugin", "check-one", "--test", test].map(OsString::from).into();
        let mut flag = |name: &str, value: OsString| all.extend([OsString::from(name), value]);
        for option in &self.options {
            flag("--option", option.into());
        }
        if let Some(engine) = &self.engine {
            flag("--engine", engine.into());
        }
        if let Some(model) = &plan.model {
            flag("--model", model.into());
        }
        if let Some(adapter) = &self.adapter {
            flag("--adapter", adapter.into());
        }
        if let Some(seed) = self.fuzz {
            flag("--fuzz", seed.to_string().into());
        }
        flag("--timeout", self.timeout.to_string().into());
        flag("--", plan.library.clone().into());
        all
    }
}

/// The process of one test.
pub(super) fn one(flags: &One) -> Result<i32, String> {
    alone::child(&flags.subject.plan()?.0, &flags.test);
    Ok(0)
}

struct Line {
    name: &'static str,
    verdict: Verdict,
    took: Duration,
}

pub(super) fn run(flags: &Flags) -> Result<i32, String> {
    let (plan, manifest) = flags.subject.plan()?;
    let names = check::names(flags.only.as_ref());
    if let (true, Some(only)) = (names.is_empty(), &flags.only) {
        return Err(format!(
            "no test has a name that {:?} matches; without --only all are run",
            only.as_str()
        ));
    }
    let executable = env::executable().map_err(|e| format!("own path is not known: {e}"))?;
    let environment = manifest.as_ref().map(|m| m.about.env.clone()).unwrap_or_default();
    let mut lines = Vec::new();
    for name in names {
        let begun = Instant::now();
        let verdict = if flags.in_process {
            check::here(&plan, name)
        } else {
            // A little more than the test's own clocks have, so that what they say is heard.
            let limit = plan.timeout + Duration::from_secs(5);
            alone::run(&executable, &flags.subject.arguments(&plan, name), &environment, limit)
        };
        let line = Line { name, verdict, took: begun.elapsed() };
        if !flags.json {
            say(&text(&line));
        }
        lines.push(line);
    }
    let count = |wanted: fn(&Verdict) -> bool| lines.iter().filter(|l| wanted(&l.verdict)).count();
    let passed = count(|v| matches!(v, Verdict::Passed(_)));
    let failed = count(|v| matches!(v, Verdict::Failed(_)));
    let skipped = count(|v| matches!(v, Verdict::Skipped(_)));
    let unbuilt = plan.model.is_none() && lines.iter().any(|l| check::needs_model(&l.verdict));
    let (id, version) = manifest.map_or_else(Default::default, |m| (m.id, m.version));
    if flags.json {
        let tests: Vec<_> = lines.iter().map(object).collect();
        let all = json!({
            "file": plan.library.display().to_string(), "id": id, "version": version,
            "host": env!("CARGO_PKG_VERSION"), "passed": passed, "failed": failed, "skipped": skipped,
            "engine_built": !unbuilt,
            "tests": tests,
        });
        say(&serde_json::to_string_pretty(&all).map_err(|e| e.to_string())?);
    } else {
        let what = if id.is_empty() { plan.library.display().to_string() } else { format!("{id} {version}") };
        let host = env!("CARGO_PKG_VERSION");
        say(&format!("\n{what}: {passed} passed, {failed} failed, {skipped} skipped (cascadia-host {host})"));
        if unbuilt {
            say("the engine was not built, so most was not tested: give --model PATH");
        }
    }
    Ok(i32::from(failed > 0 || unbuilt))
}

fn text(line: &Line) -> String {
    let (word, remark) = parts(&line.verdict);
    let name = line.name;
    match &line.verdict {
        Verdict::Passed(remark) if remark.is_empty() => format!("{word}  {name}"),
        Verdict::Passed(_) | Verdict::Skipped(_) => format!("{word}  {name} ({remark})"),
        Verdict::Failed(_) => format!("{word}  {name}\n      {remark}"),
    }
}

fn parts(verdict: &Verdict) -> (&'static str, &str) {
    match verdict {
        Verdict::Passed(text) => ("pass", text),
        Verdict::Failed(text) => ("FAIL", text),
        Verdict::Skipped(text) => ("skip", text),
    }
}

fn object(line: &Line) -> Value {
    let (word, remark) = parts(&line.verdict);
    let took = u64::try_from(line.took.as_millis()).unwrap_or(u64::MAX);
    json!({ "name": line.name, "verdict": word.to_lowercase(), "remark": remark, "ms": took })
}
