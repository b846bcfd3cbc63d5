//! A set of wheels whose chosen members are unpacked into one folder.
//!
//! Holds: the stamp is written last and removed first, so with a stamp the folder is whole. The stamp names the pins
//! and every file with its size; a changed pin, rule or size means "not there". Files of others in the folder stay.

use super::{fresh, rename, wheel};
use crate::pins::Wheel;
use crate::place::Place;
use crate::proc;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const UNWHEEL: &str = include_str!("unwheel.py");

pub(super) fn is_there(wheels: &[Wheel], home: &Path) -> bool {
    let Ok(stamp) = std::fs::read_to_string(stamp(wheels, home)) else { return false };
    let Some(rest) = stamp.strip_prefix(&head(wheels)) else { return false };
    let mut files = files(rest).peekable();
    files.peek().is_some()
        && files.all(|(size, path)| std::fs::metadata(home.join(path)).is_ok_and(|meta| meta.len() == size))
}

pub(super) fn fetch(place: &Place, wheels: &[Wheel], home: &Path) -> Result<()> {
    let cache = place.fetched().join("wheels");
    std::fs::create_dir_all(&cache).with_context(|| format!("make {}", cache.display()))?;
    let mut got = Vec::new();
    for one in wheels {
        got.push((one, wheel::get(&cache, &place.pins.wheels, one)?));
    }
    let part = home.with_added_extension("part");
    fresh(&part)?;
    for (one, path) in got {
        eprintln!("unpack {} {}", one.name, one.version);
        let rules = serde_json::to_string(&one.take).context("rules as JSON")?;
        proc::run(Command::new("python3").args(["-c", UNWHEEL]).arg(path).arg(&part).arg(rules))?;
    }
    install(wheels, &part, home)
}

/// Moves every file of `part` to `home`, then writes the stamp.
fn install(wheels: &[Wheel], part: &Path, home: &Path) -> Result<()> {
    let stamp = stamp(wheels, home);
    if let Ok(old) = std::fs::read_to_string(&stamp) {
        std::fs::remove_file(&stamp).with_context(|| format!("remove {}", stamp.display()))?;
        for (_, path) in files(&old) {
            // Best effort: what is gone already needs no removal, what stays is replaced below.
            drop(std::fs::remove_file(home.join(path)));
        }
    }
    let mut text = head(wheels);
    for path in walk(part)? {
        let rest = path.strip_prefix(part).context("a path below the part")?;
        let size = path.metadata().with_context(|| format!("look at {}", path.display()))?.len();
        let to = home.join(rest);
        let folder = to.parent().context("a file has a folder")?;
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        rename(&path, &to)?;
        writeln!(text, "file {size} {}", rest.display()).context("write to a string")?;
    }
    let unready = stamp.with_added_extension("part");
    std::fs::write(&unready, text).with_context(|| format!("write {}", unready.display()))?;
    rename(&unready, &stamp)?;
    std::fs::remove_dir_all(part).with_context(|| format!("remove {}", part.display()))
}

/// One stamp per set, named by its first wheel.
fn stamp(wheels: &[Wheel], home: &Path) -> PathBuf {
    home.join(format!(".{}.stamp", wheels.first().map_or("none", |wheel| &wheel.name)))
}

fn head(wheels: &[Wheel]) -> String {
    let mut text = String::new();
    for wheel in wheels {
        let take = serde_json::to_string(&wheel.take).unwrap_or_default();
        text += &format!("wheel {} {} {} {take}\n", wheel.name, wheel.version, wheel.sha256);
    }
    text
}

fn files(stamp: &str) -> impl Iterator<Item = (u64, &str)> {
    stamp.lines().filter_map(|line| {
        let (size, path) = line.strip_prefix("file ")?.split_once(' ')?;
        Some((size.parse().ok()?, path))
    })
}

fn walk(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wheels(hash: &str) -> Vec<Wheel> {
        let text = format!("name='w'\nversion='1'\nfile='w.whl'\nsha256='{hash}'\nmib=1\ntake=[]");
        vec![toml::from_str(&text).unwrap()]
    }

    #[test]
    fn only_a_whole_bundle_with_the_same_pins_counts_as_there() {
        let home = std::env::temp_dir().join(format!("xtask-bundle-{}", std::process::id()));
        let part = home.with_added_extension("part");
        fresh(&home).unwrap();
        fresh(&part.join("lib")).unwrap();
        std::fs::write(part.join("lib/a.so"), "abc").unwrap();
        std::fs::write(home.join("own.gguf"), "someone's").unwrap();
        assert!(!is_there(&wheels("1"), &home));

        install(&wheels("1"), &part, &home).unwrap();
        assert!(is_there(&wheels("1"), &home));
        assert!(!is_there(&wheels("2"), &home), "another hash is another bundle");
        assert!(!part.exists());

        std::fs::write(home.join("lib/a.so"), "ab").unwrap();
        assert!(!is_there(&wheels("1"), &home), "a file of another size");

        fresh(&part).unwrap();
        std::fs::write(part.join("b.so"), "b").unwrap();
        install(&wheels("2"), &part, &home).unwrap();
        assert!(is_there(&wheels("2"), &home));
        assert!(!home.join("lib/a.so").exists(), "files of the old stamp go");
        assert!(home.join("own.gguf").exists(), "other files stay");
        std::fs::remove_dir_all(&home).unwrap();
    }
}
