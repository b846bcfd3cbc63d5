//! The documents that the host's code writes: the references of metrics, configuration and errors.
//!
//! Holds: a committed file is exactly what the host prints; its first line tells not to edit it.

use crate::compile::{self, Profile};
use crate::place::Place;
use crate::proc;
use anyhow::{Context, Result, bail};
use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    Write,
    Check,
}

/// A document whose first line is a comment that names the command; `tidy` lets such files be long.
pub(crate) fn is_generated(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first.starts_with("<!--") && first.contains("cargo xtask gen")
}

/// What the host calls each document, and where it lies.
const DOCUMENTS: [(&str, &str); 3] =
    [("metrics", "docs/METRICS.md"), ("config", "docs/CONFIG.md"), ("errors", "docs/ERRORS.md")];

pub(crate) fn all(place: &Place, mode: Mode) -> Result<()> {
    compile::host(place, Profile::Dev)?;
    let host = Profile::Dev.folder(place).join("cascadia-host");
    let mut stale = Vec::new();
    for (name, file) in DOCUMENTS {
        let fresh = proc::output(Command::new(&host).args(["gen-docs", name]))?;
        if !is_generated(&fresh) {
            bail!(
                "the output of `cascadia-host gen-docs {name}` does not open with <!-- ... cargo xtask gen ... -->"
            );
        }
        let path = place.root.join(file);
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        if old == fresh {
            continue;
        }
        match mode {
            Mode::Write => {
                std::fs::write(&path, fresh).with_context(|| format!("write {}", path.display()))?;
            }
            Mode::Check => stale.push(format!("{file}:{}", differs(&old, &fresh))),
        }
    }
    match stale.is_empty() {
        true => Ok(()),
        false => bail!("{} differs from the code; run cargo xtask gen", stale.join(", ")),
    }
}

/// Number of the first line that is not the same.
fn differs(old: &str, fresh: &str) -> usize {
    let same = old.lines().zip(fresh.lines()).take_while(|(a, b)| a == b).count();
    same + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_document_says_so_in_its_first_line() {
        assert!(is_generated("<!-- Made by `cargo xtask gen`; do not edit. -->\n# Metrics\n"));
        assert!(!is_generated("# Metrics\n<!-- cargo xtask gen -->"));
        assert!(!is_generated(""));
    }

    #[test]
    fn the_first_different_line_is_counted_from_one() {
        assert_eq!(differs("a\nb\n", "a\nc\n"), 2);
        assert_eq!(differs("", "a\n"), 1);
        assert_eq!(differs("a\n", "a\nb\n"), 2);
    }
}
