//! Which tables were shipped. `abi.frozen` holds their lines of `abi.lock` as they were; it only ever grows.
//!
//! A table whose line is not there is a draft: it may change, and a plugin must carry the hash of the very draft that the
//! host has. A frozen table is known by its name alone: it cannot have changed. All functions are over texts, so that a
//! release is tried before there is one.

use crate::lock;

/// The frozen lines of this build.
pub const TEXT: &str = include_str!("../abi.frozen");

/// The lines of a frozen text, without its remarks.
pub fn lines(frozen: &str) -> impl Iterator<Item = &str> {
    frozen.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The table that a line is about.
pub fn table(line: &str) -> &str {
    line.split_once(' ').map_or(line, |(name, _)| name)
}

/// Whether the table of that C name was shipped.
pub fn is_frozen(table: &str) -> bool {
    is_frozen_in(TEXT, table)
}

/// Whether `frozen` has the table of that C name.
pub fn is_frozen_in(frozen: &str, name: &str) -> bool {
    lines(frozen).any(|line| table(line) == name)
}

/// The tables of `ours` (name, hash) that `theirs` gives another hash, but for frozen ones: what a plugin was built with
/// and this host cannot speak. A table that only one side knows is no obstacle.
pub fn other_drafts<'a>(
    frozen: &str,
    ours: impl Iterator<Item = (&'a str, String)>,
    theirs: impl Fn(&str) -> Option<String>,
) -> Vec<&'a str> {
    ours.filter(|(name, _)| !is_frozen_in(frozen, name))
        .filter(|(name, hash)| theirs(name).is_some_and(|other| other != *hash))
        .map(|(name, _)| name)
        .collect()
}

/// The same for this build's tables.
pub fn drafts_unlike(theirs: impl Fn(&str) -> Option<String>) -> Vec<&'static str> {
    other_drafts(TEXT, lock::hashes(), theirs)
}

/// Holds `lock` to what was shipped: every frozen line is there as it was, and no table is there twice.
pub fn kept(frozen: &str, lock: &str) -> Result<(), String> {
    for line in lines(frozen) {
        if !lock.lines().any(|there| there == line) {
            return Err(format!(
                "a shipped table was edited or dropped: {line}\ngive the change a name and an id of its own (name/N+1), \
                 and leave the shipped table as it is"
            ));
        }
    }
    let mut names: Vec<_> = lock.lines().map(table).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("the table {} is there twice", pair[0])),
        None => Ok(()),
    }
}

/// What `abi.lock` becomes when the tables' layout is `current`; the error is why it may not.
pub fn blessed(frozen: &str, current: &str) -> Result<String, String> {
    kept(frozen, current).map(|()| current.to_owned())
}

/// What `abi.frozen` becomes when `release` ships the tables of `lock`: what was frozen stays, the rest joins it.
pub fn shipped(frozen: &str, lock: &str, release: &str) -> Result<String, String> {
    kept(frozen, lock)?;
    let new: Vec<_> = lock.lines().filter(|line| !is_frozen_in(frozen, table(line))).collect();
    if new.is_empty() {
        return Ok(frozen.to_owned());
    }
    Ok(format!("{}\n# {release}\n{}\n", frozen.trim_end(), new.join("\n")))
}
