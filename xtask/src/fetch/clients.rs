//! The Python environment of the client tests: official clients, each package pinned.
//!
//! `CLIENTS=none` leaves it out.

use super::venv;
use crate::place::Place;
use crate::proc;
use anyhow::{Result, ensure};
use std::process::Command;

pub(crate) fn left_out() -> bool {
    proc::environment("CLIENTS").is_some_and(|value| value == "none")
}

pub(super) fn is_there(place: &Place) -> bool {
    venv::is_there(&place.clients(), &wanted(place))
}

pub(super) fn fetch(place: &Place) -> Result<()> {
    let home = place.clients();
    eprintln!("make a Python environment with {} pinned packages", place.pins.clients.packages.len());
    need_python(place)?;
    venv::empty(&home)?;
    proc::run(venv::install(&home).args(&place.pins.clients.packages))?;
    proc::run(Command::new(place.clients_python()).args([
        "-m",
        "pip",
        "--disable-pip-version-check",
        "check",
    ]))?;
    venv::seal(&home, &wanted(place))
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
