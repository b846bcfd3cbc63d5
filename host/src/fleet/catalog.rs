//! The files of the plugin folders, and what changed among them since the last look.
//!
//! A file counts once it has been quiet: the same size and time at two looks half a second apart. So a copy that is still
//! being written is left alone. One that is shorter than its own header says gets longer: its writer may only have paused.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::plugins::precheck;

/// How long a file must not change before it is read.
pub const QUIET: Duration = Duration::from_millis(500);
/// How long one that is not whole must not change before it is taken for what it will stay.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What tells one content of a path from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Owner and rights: a file that was refused for them may be sound now.
    rights: (u32, u32),
    /// Time of the `plugin.toml` beside it, which says what it serves.
    beside: Option<(i64, i64)>,
}

impl Stamp {
    /// Whether only what is beside the file may be another.
    fn is_same_file(&self, other: &Stamp) -> bool {
        *self == Stamp { beside: self.beside, ..*other }
    }
}

#[derive(Debug)]
struct Seen {
    stamp: Stamp,
    since: Instant,
    /// It was reported in this state.
    told: bool,
    /// As it was when it came, where only what is beside it has changed since.
    came: Option<Stamp>,
    /// Whether it is whole, once that was looked at in this state.
    whole: Option<bool>,
    /// It was reported as being copied, in this state or an earlier one.
    copying: bool,
}

impl Seen {
    fn new(stamp: Stamp, since: Instant) -> Seen {
        Seen { stamp, since, told: false, came: None, whole: None, copying: false }
    }
}

/// A change of a file that has become quiet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// New, or of new content.
    Came(PathBuf),
    /// It has been quiet, and is not whole. Told once for a file, until it came.
    Copying(PathBuf),
    /// It is as it was when it came; the `plugin.toml` beside it is another.
    Beside(PathBuf),
    /// It was reported and is gone.
    Went(PathBuf),
}

/// The files of some folders.
#[derive(Debug, Default)]
pub struct Catalog {
    dirs: Vec<PathBuf>,
    files: BTreeMap<PathBuf, Seen>,
}

impl Catalog {
    /// The folders' files; those there now count as reported when they are in `known`.
    pub fn new(dirs: Vec<PathBuf>, known: &[PathBuf], now: Instant) -> Catalog {
        let mut catalog = Catalog { dirs, files: BTreeMap::new() };
        for (path, stamp) in catalog.scan() {
            let told = known.contains(&path);
            catalog.files.insert(path, Seen { told, ..Seen::new(stamp, now) });
        }
        catalog
    }

    /// Looks again; answers what has become quiet since.
    pub fn look(&mut self, now: Instant) -> Vec<Change> {
        let found = self.scan();
        let mut changes = Vec::new();
        self.files.retain(|path, seen| {
            let there = found.contains_key(path);
            if !there && seen.told {
                changes.push(Change::Went(path.clone()));
            }
            there
        });
        for (path, stamp) in found {
            let seen = self.files.entry(path.clone()).or_insert(Seen::new(stamp, now));
            if seen.stamp != stamp {
                let before = if seen.told { Some(seen.stamp) } else { seen.came };
                let came = before.filter(|before| before.is_same_file(&stamp));
                *seen = Seen { came, copying: seen.copying, ..Seen::new(stamp, now) };
                continue;
            }
            let quiet = now.saturating_duration_since(seen.since);
            if seen.told || quiet < QUIET {
                continue;
            }
            let whole = *seen.whole.get_or_insert_with(|| !precheck::is_unfinished(&path));
            if whole || quiet >= PATIENCE {
                (seen.told, seen.copying) = (true, false);
                let known = seen.came.take().is_some();
                changes.push(if known { Change::Beside(path) } else { Change::Came(path) });
            } else if !std::mem::replace(&mut seen.copying, true) {
                changes.push(Change::Copying(path));
            }
        }
        changes
    }

    /// The files that were reported and are there.
    pub fn told(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().filter(|(_, seen)| seen.told).map(|(path, _)| path.as_path())
    }

    /// Whether a file has not been quiet long enough.
    pub fn is_restless(&self) -> bool {
        self.files.values().any(|seen| !seen.told)
    }

    fn scan(&self) -> BTreeMap<PathBuf, Stamp> {
        let mut found = BTreeMap::new();
        for dir in &self.dirs {
            for path in list(dir) {
                if path.is_dir() {
                    // A bundle: one folder with a plugin and what it needs.
                    for inner in list(&path) {
                        keep(inner, &mut found);
                    }
                } else {
                    keep(path, &mut found);
                }
            }
        }
        found
    }
}

/// Whether a file that is seen for the first time is not whole and was written to a moment ago.
pub fn is_being_copied(path: &Path) -> bool {
    let written = path.metadata().and_then(|meta| meta.modified()).ok();
    let fresh = written.and_then(|at| at.elapsed().ok()).is_some_and(|age| age < PATIENCE);
    fresh && precheck::is_unfinished(path)
}

fn list(dir: &Path) -> Vec<PathBuf> {
    dir.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn keep(path: PathBuf, found: &mut BTreeMap<PathBuf, Stamp>) {
    let is_library =
        path.file_name().and_then(|n| n.to_str()).is_some_and(crate::plugins::find::is_library_name);
    let Some(meta) = path.metadata().ok().filter(|m| is_library && m.is_file()) else { return };
    let Ok(path) = path.canonicalize() else { return };
    let beside = path.with_file_name("plugin.toml").metadata().ok().map(|m| (m.mtime(), m.mtime_nsec()));
    let stamp = Stamp {
        inode: meta.ino(),
        size: meta.len(),
        modified: (meta.mtime(), meta.mtime_nsec()),
        rights: (meta.uid(), meta.mode()),
        beside,
    };
    found.insert(path, stamp);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("cascadia-catalog-{}-{name}", std::process::id()));
        std::fs::create_dir_all(dir.join("bundle")).expect("a folder");
        dir.canonicalize().expect("a path")
    }

    #[test]
    fn a_file_is_told_once_quiet_again_when_changed_and_when_gone() {
        let dir = folder("quiet");
        let start = Instant::now();
        let mut catalog = Catalog::new(vec![dir.clone()], &[], start);
        let file = dir.join("bundle/libx.so");
        std::fs::write(&file, "a").expect("written");
        std::fs::write(dir.join("notes.txt"), "a").expect("written");
        assert_eq!(catalog.look(start), []);
        assert!(catalog.is_restless());
        std::fs::write(&file, "more").expect("written");
        assert_eq!(catalog.look(start + QUIET), [], "it changed since the first look");
        assert_eq!(catalog.look(start + QUIET * 2), [Change::Came(file.clone())]);
        assert_eq!(catalog.look(start + QUIET * 3), []);
        assert!(!catalog.is_restless());
        std::fs::remove_file(&file).expect("removed");
        assert_eq!(catalog.look(start + QUIET * 4), [Change::Went(file)]);
        std::fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn a_file_that_is_not_whole_is_told_once_as_copied_and_later_as_it_is() {
        let dir = folder("slow");
        let file = dir.join("libz.so");
        let whole = std::fs::read(std::env::current_exe().expect("a path")).expect("this very program");
        let start = Instant::now();
        let mut catalog = Catalog::new(vec![dir.clone()], &[], start);
        let mut now = start;
        for (round, part) in [0, 10, 5000].into_iter().enumerate() {
            std::fs::write(&file, &whole[..part]).expect("written");
            assert_eq!(catalog.look(now), [], "{part} bytes");
            now += QUIET;
            let told = if round == 0 { vec![Change::Copying(file.clone())] } else { Vec::new() };
            assert_eq!(catalog.look(now), told, "{part} bytes");
            now += PATIENCE - QUIET - Duration::from_millis(1);
            assert_eq!(catalog.look(now), [], "{part} bytes");
            assert!(catalog.is_restless());
        }
        // It stays as it is: cut.
        assert_eq!(catalog.look(now + Duration::from_millis(1)), [Change::Came(file.clone())]);
        std::fs::write(&file, &whole).expect("written");
        assert_eq!(catalog.look(now), []);
        assert_eq!(catalog.look(now + QUIET), [Change::Came(file)], "whole, it waits no longer than others");
        std::fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn what_changes_beside_a_file_is_told_apart_from_the_file() {
        let dir = folder("beside");
        let (file, beside) = (dir.join("libx.so"), dir.join("plugin.toml"));
        std::fs::write(&file, "a").expect("written");
        let start = Instant::now();
        let (mut catalog, mut looks) = (Catalog::new(vec![dir.clone()], &[], start), 0);
        let mut quiet = |catalog: &mut Catalog| {
            let first = catalog.look(start + QUIET * looks);
            looks += 1;
            [first, catalog.look(start + QUIET * looks)].concat()
        };
        assert_eq!(quiet(&mut catalog), [Change::Came(file.clone())]);
        std::fs::write(&beside, "b").expect("written");
        assert_eq!(quiet(&mut catalog), [Change::Beside(file.clone())]);
        std::fs::write(&file, "more").expect("written");
        std::fs::remove_file(&beside).expect("removed");
        assert_eq!(quiet(&mut catalog), [Change::Came(file.clone())], "the file is another too");
        std::fs::write(&beside, "c").expect("written");
        assert_eq!(catalog.look(start + QUIET * 3), []);
        std::fs::write(&file, "even more").expect("written");
        assert_eq!(quiet(&mut catalog), [Change::Came(file)], "and here, one after the other");
        std::fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn what_was_known_at_the_start_is_not_told_again() {
        let dir = folder("known");
        let file = dir.join("liby.so");
        std::fs::write(&file, "a").expect("written");
        let start = Instant::now();
        let mut catalog = Catalog::new(vec![dir.clone()], &[file], start);
        assert_eq!(catalog.look(start + QUIET * 2), []);
        std::fs::remove_dir_all(dir).expect("removed");
    }
}
