//! Keeps a cache of compiled models within a bound.
//!
//! What must hold: nothing is removed that is being compiled, or that was handed out within the last hour, since whoever
//! got it may not have opened its files yet. Files that are open stay readable after they were removed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::compile::Lock;
use crate::error::Error;
use crate::manifest::MANIFEST;

/// How long what was handed out is left alone.
const RECENT: Duration = Duration::from_secs(3600);

/// What was removed, and what is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pruned {
    /// Names of compiled models that were removed.
    pub removed: Vec<String>,
    /// Bytes of those that are left.
    pub left: u64,
}

/// A compiled model of the cache.
struct Kept {
    name: String,
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// Removes compiled models from a cache, longest unused first, until all together have at most `limit` bytes or only
/// those of the last hour are left; and what compilations left that were killed.
///
/// # Errors
/// The folder cannot be listed or something in it cannot be removed.
pub fn prune(cache: &Path, limit: u64) -> Result<Pruned, Error> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(cache).map_err(Error::io("list", cache))? {
        let path = entry.map_err(Error::io("list", cache))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let partial = name.strip_prefix('.').and_then(|rest| rest.strip_suffix(".partial"));
        if let Some(key) = partial {
            remove(cache, key, &path)?;
        } else if let Some(used) = used(&path) {
            kept.push(Kept { name: name.to_owned(), bytes: bytes(&path)?, used, path });
        }
    }
    kept.sort_by_key(|one| one.used);
    let mut left: u64 = kept.iter().map(|one| one.bytes).sum();
    let mut removed = Vec::new();
    let now = SystemTime::now();
    for one in kept {
        let old = now.duration_since(one.used).is_ok_and(|since| since >= RECENT);
        if left <= limit || !old {
            break;
        }
        if remove(cache, &one.name, &one.path)? {
            left -= one.bytes;
            removed.push(one.name);
        }
    }
    Ok(Pruned { removed, left })
}

/// Notes that a compiled model is used; without the right to do so it counts as used when it was written.
pub(crate) fn touch(folder: &Path) {
    let manifest = File::options().append(true).open(folder.join(MANIFEST));
    drop(manifest.and_then(|file| file.set_modified(SystemTime::now())));
}

/// When it was used last; none where it is no compiled model.
fn used(folder: &Path) -> Option<SystemTime> {
    fs::metadata(folder.join(MANIFEST)).ok()?.modified().ok()
}

fn bytes(folder: &Path) -> Result<u64, Error> {
    let mut sum = 0;
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        sum += entry.metadata().map_err(Error::io("read", folder))?.len();
    }
    Ok(sum)
}

/// Removes a folder unless somebody works on its key.
fn remove(cache: &Path, key: &str, folder: &Path) -> Result<bool, Error> {
    let Some(lock) = Lock::try_take(&cache.join(format!(".{key}.lock")))? else { return Ok(false) };
    fs::remove_dir_all(folder).map_err(Error::io("remove", folder))?;
    drop(lock);
    Ok(true)
}
