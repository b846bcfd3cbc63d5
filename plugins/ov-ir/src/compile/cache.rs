//! What keeps compilations apart and their results whole: locks, partial folders, known digests.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::Target;
use crate::digest;
use crate::error::Error;
use crate::progress::{Step, Work};

/// Held by the one that compiles; the system lets go of it when the process ends, in whatever way.
pub(crate) struct Lock {
    path: PathBuf,
    file: File,
}

/// Between two looks at a lock; each asks the caller whether to go on.
const LOOK: Duration = Duration::from_millis(50);

impl Lock {
    /// Waits for the lock as long as the caller's progress says so.
    pub(super) fn take(path: &Path, work: &mut Work) -> Result<Self, Error> {
        let options = File::options().create(true).truncate(false).write(true).open(path);
        let file = options.map_err(Error::io("create", path))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { path: path.to_owned(), file }),
                Err(TryLockError::WouldBlock) => work.begin(Step::Wait, 0)?,
                Err(TryLockError::Error(error)) => return Err(Error::io("lock", path)(error)),
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The lock, unless somebody holds it.
    pub(crate) fn try_take(path: &Path) -> Result<Option<Self>, Error> {
        let options = File::options().create(true).truncate(false).write(true).open(path);
        let file = options.map_err(Error::io("create", path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { path: path.to_owned(), file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", path)(error)),
        }
    }

    /// Lets go when the result is there. In a cache the file stays; beside a folder of the user's it goes, which is
    /// safe: who still waits for it will find the result.
    pub(super) fn remove_after(self, target: &Target) {
        if matches!(target, Target::Folder(_)) {
            // Left over it does no harm.
            drop(fs::remove_file(&self.path));
        }
        drop(self.file);
    }
}

/// A folder under construction, removed unless it is published.
pub(super) struct Partial {
    path: Option<PathBuf>,
}

impl Partial {
    /// An empty folder; the lock is held, so what is there was left by one that was ended.
    pub(super) fn new(parent: &Path, name: &str) -> Result<Self, Error> {
        let path = parent.join(format!(".{name}.partial"));
        if path.exists() {
            fs::remove_dir_all(&path).map_err(Error::io("remove", &path))?;
        }
        fs::create_dir(&path).map_err(Error::io("create", &path))?;
        Ok(Self { path: Some(path) })
    }

    pub(super) fn path(&self) -> &Path {
        // PANIC: only publish and drop take the path.
        self.path.as_deref().expect("a partial folder has a path until it is published")
    }

    /// Gives the folder its name, in one step.
    pub(super) fn publish(mut self, name: &Path) -> Result<(), Error> {
        fs::rename(self.path(), name).map_err(Error::io("rename to", name))?;
        self.path = None;
        let parent = name.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        File::open(parent).and_then(|folder| folder.sync_all()).map_err(Error::io("write", parent))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // The error that brought us here is the one to tell; the next compilation removes what stays.
            drop(fs::remove_dir_all(path));
        }
    }
}

/// What is known of a file that was read before.
#[derive(Serialize, Deserialize, PartialEq)]
struct Known {
    path: PathBuf,
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: u128,
    #[serde(default)]
    sha256: String,
}

/// The bytes of all files.
pub(super) fn length(files: &[PathBuf]) -> Result<u64, Error> {
    let mut sum = 0;
    for path in files {
        sum += fs::metadata(path).map_err(Error::io("read", path))?.len();
    }
    Ok(sum)
}

/// The digests of all files. Those of files that have neither another length nor another time than when they were last
/// read are taken from `known`.
pub(super) fn digests(
    files: &[PathBuf],
    known: Option<&Path>,
    work: &mut Work,
) -> Result<Vec<String>, Error> {
    work.begin(Step::Digest, length(files)?)?;
    files.iter().map(|path| one(path, known, work)).collect()
}

fn one(path: &Path, known: Option<&Path>, work: &mut Work) -> Result<String, Error> {
    let state = || -> Result<Known, Error> {
        let path = fs::canonicalize(path).map_err(Error::io("open", path))?;
        let metadata = fs::metadata(&path).map_err(Error::io("read", &path))?;
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified = modified.map_or(0, |since| since.as_nanos());
        Ok(Known { path, bytes: metadata.len(), modified, sha256: String::new() })
    };
    let mut now = state()?;
    let note = known.map(|folder| folder.join(digest::of(now.path.as_os_str().as_encoded_bytes())));
    let old: Option<Known> = note
        .as_ref()
        .and_then(|note| fs::read(note).ok())
        .and_then(|text| serde_json::from_slice(&text).ok());
    if let Some(old) = old {
        let same = (&old.path, old.bytes, old.modified) == (&now.path, now.bytes, now.modified);
        if same && old.modified != 0 && old.sha256.len() == 64 {
            work.add(old.bytes)?;
            return Ok(old.sha256);
        }
    }
    now.sha256 = digest::file(path, &mut |bytes| work.add(bytes))?;
    let after = state()?;
    if (after.bytes, after.modified) != (now.bytes, now.modified) {
        return Err(Error::damaged(path, "changed while it was read; try again when it is complete"));
    }
    if let (Some(note), Ok(text)) = (note, serde_json::to_vec(&now)) {
        // A note that cannot be kept costs time, nothing else.
        let kept = note.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&note, text));
        drop(kept);
    }
    Ok(now.sha256)
}
