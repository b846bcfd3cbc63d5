//! `cascadia-host plugin …`: what there is, what it says of itself, whether it keeps the contract, and a new one.

mod bench;
mod check;
mod create;
mod describe;
mod list;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::say;
use crate::config::env;
use crate::plugins::find;
use crate::plugins::manifest::Manifest;

/// The commands.
#[derive(Subcommand)]
pub(super) enum Command {
    /// Show the plugins found, or why each cannot be loaded. Runs none of their code.
    List(list::Flags),
    /// Show what a plugin says of itself. Runs none of its code.
    Describe(describe::Flags),
    /// Hold a plugin to the boundary's contract: one test at a time, each in a process of its own.
    Check(check::Flags),
    /// Measure what a plugin's tokens cost at the boundary: time and processor time per token.
    Bench(bench::Flags),
    /// One test of `check`, as the process of its own.
    #[command(hide = true)]
    CheckOne(check::One),
    /// Write a project for a new plugin, with all that it needs to build.
    New(create::Flags),
}

/// Runs a command; answers the exit status.
pub(super) fn run(command: &Command) -> i32 {
    let done = match command {
        Command::List(flags) => list::run(flags),
        Command::Describe(flags) => describe::run(flags),
        Command::Check(flags) => check::run(flags),
        Command::Bench(flags) => bench::run(flags),
        Command::CheckOne(flags) => check::one(flags),
        Command::New(flags) => create::run(flags),
    };
    done.unwrap_or_else(|problem| super::complain(&problem, super::USAGE))
}

/// The file that a LIB argument means, as `--plugin` takes it.
fn library(name: &str, dirs: &[PathBuf]) -> Result<PathBuf, String> {
    let executable = env::executable().map_err(|e| format!("own path is not known: {e}"))?;
    find::one(name, dirs, &executable).map_err(|e| e.to_string())
}

/// The options that `--option KEY=VALUE` gave, not checked yet.
fn pairs(given: &[String]) -> Result<BTreeMap<String, toml::Value>, String> {
    let pair = |text: &String| {
        let (key, value) =
            text.split_once('=').ok_or_else(|| format!("--option {text:?} is not KEY=VALUE"))?;
        Ok((key.to_owned(), toml::Value::from(value)))
    };
    given.iter().map(pair).collect()
}

/// That a plugin has the engine that was asked for.
fn has_engine(manifest: &Manifest, engine: &str) -> Result<(), String> {
    let mut names = manifest.about.engines.iter().map(|e| e.name.as_str());
    if names.clone().any(|name| name == engine) {
        return Ok(());
    }
    let all = names.by_ref().collect::<Vec<_>>().join(", ");
    Err(format!("{} has no engine {engine}; there is {all}", manifest.id))
}

/// The file or folder of a model, by its full path.
fn model(path: Option<&Path>) -> Result<Option<PathBuf>, String> {
    let full = |path: &Path| {
        path.canonicalize().map_err(|e| format!("model {} cannot be read: {e}", path.display()))
    };
    path.map(full).transpose()
}
