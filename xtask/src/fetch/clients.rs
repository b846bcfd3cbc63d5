//! The Python environment of the client tests: official clients, each package pinned.
//!
//! Holds: the stamp is written last; without it the environment is made anew. `CLIENTS=none` leaves it out.

use crate::place::Place;
use crate::proc;
use anyhow::{Context, Result, ensure};
use std::process::Command;

const STAMP: &str = ".stamp";

pub(crate) fn left_out() -> bool {
    proc::environment("CLIENTS").is_some_and(|value| value == "none")
}

pub(super) fn is_there(place: &Place) -> bool {
    let stamp = std::fs::read_to_string(place.clients().join(STAMP));
    stamp.is_ok_and(|stamp| stamp == wanted(place)) && place.clients_python().exists()
}

pub(super) fn fetch(place: &Place) -> Result<()> {
    let home = place.clients();
    eprintln!("make a Python environment with {} pinned packages", place.pins.clients.packages.len());
    need_python(place)?;
    super::fresh(&home)?;
    let venv = proc::run(Command::new("python3").args(["-m", "venv"]).arg(&home));
    venv.context(
        "python3 cannot make virtual environments; on Debian or Ubuntu: apt-get install python3-venv",
    )?;
    proc::run(
        Command::new(place.clients_python())
            .args(["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "on"])
            .args(["--no-deps", "--only-binary", ":all:"])
            .args(&place.pins.clients.packages),
    )?;
    proc::run(Command::new(place.clients_python()).args([
        "-m",
        "pip",
        "--disable-pip-version-check",
        "check",
    ]))?;
    let stamp = home.join(STAMP);
    std::fs::write(&stamp, wanted(place)).with_context(|| format!("write {}", stamp.display()))
}

fn wanted(place: &Place) -> String {
    place.pins.clients.packages.join("\n")
}

fn need_python(place: &Place) -> Result<()> {
    let script = "import sys; print('%d.%d' % sys.version_info[:2])";
    let found = proc::output(Command::new("python3").args(["-c", script]))?;
    let (found, least) = (found.trim(), &place.pins.clients.python);
    ensure!(
        minor(found) >= minor(least),
        "the client tests need Python {least}, python3 is {found}; install a newer one or set CLIENTS=none"
    );
    Ok(())
}

fn minor(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert!(minor("3.9") < minor("3.11"));
        assert!(minor("3.11") <= minor("3.11"));
    }
}
