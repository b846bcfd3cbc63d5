//! A Python environment in a folder of its own.
//!
//! Holds: the stamp says what is in it and is written last; without it, or with another one, the environment is made anew.

use crate::proc;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

const STAMP: &str = ".stamp";

pub(super) fn python(home: &Path) -> PathBuf {
    home.join("bin/python")
}

/// Whole, with exactly what `wanted` says?
pub(super) fn is_there(home: &Path, wanted: &str) -> bool {
    std::fs::read_to_string(home.join(STAMP)).is_ok_and(|stamp| stamp == wanted) && python(home).exists()
}

/// An environment without packages.
pub(super) fn empty(home: &Path) -> Result<()> {
    super::fresh(home)?;
    let made = proc::run(Command::new("python3").args(["-m", "venv"]).arg(home));
    made.context(
        "python3 cannot make virtual environments; on Debian or Ubuntu: apt-get install python3-venv",
    )
}

/// The command that installs the packages which are named behind it, as wheels and nothing beside them.
pub(super) fn install(home: &Path) -> Command {
    let mut command = Command::new(python(home));
    command.args(["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "on"]);
    command.args(["--no-deps", "--only-binary", ":all:"]);
    command
}

/// It is whole now.
pub(super) fn seal(home: &Path, wanted: &str) -> Result<()> {
    let stamp = home.join(STAMP);
    std::fs::write(&stamp, wanted).with_context(|| format!("write {}", stamp.display()))
}
