//! `cascadia-host plugin …`: what there is, what it says of itself, whether it keeps the contract, and a new one.

mod check;
mod create;
mod describe;
mod list;

use std::path::PathBuf;

use clap::Subcommand;

use super::say;
use crate::config::env;
use crate::plugins::find;

/// The commands.
#[derive(Subcommand)]
pub(super) enum Command {
    /// Show the plugins found, or why each cannot be loaded. Runs none of their code.
    List(list::Flags),
    /// Show what a plugin says of itself. Runs none of its code.
    Describe(describe::Flags),
    /// Hold a plugin to the boundary's contract: one test at a time, each in a process of its own.
    Check(check::Flags),
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
