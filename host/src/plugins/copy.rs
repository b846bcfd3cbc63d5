//! A private copy of a plugin's file, made of the bytes that were checked. A file that is overwritten in place would change
//! under running code; and of a path that was opened before, the linker would give the old library again.
//!
//! It lies beside the original, so that `$ORIGIN` holds, or in the plugin cache where the folder may not be written. Its
//! name is gone once it is open.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// How the names of copies begin; a scan of plugin folders passes them over.
pub(super) const PREFIX: &str = ".gen-";

/// A copy; its name is removed when dropped.
pub(super) struct Copy {
    path: PathBuf,
    /// The original itself is opened.
    in_place: bool,
}

impl Copy {
    /// Copies `image` beside `original`, or into `cache` when nothing may be written there.
    pub(super) fn make(original: &Path, image: &[u8], cache: Option<&Path>) -> Result<Copy, String> {
        let beside = original.parent().unwrap_or(Path::new("."));
        sweep(beside);
        let refused = match write(beside, image) {
            Ok(path) => return Ok(Copy { path, in_place: false }),
            Err(error) => error,
        };
        let may_not = matches!(refused.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem);
        match cache {
            Some(cache) if may_not => {
                let made = std::fs::create_dir_all(cache).and_then(|()| write(cache, image));
                let path = made.map_err(|e| {
                    format!("cannot be copied into the plugin cache {}: {e}", cache.display())
                })?;
                Ok(Copy { path, in_place: false })
            }
            // A folder that nobody may write to is one where nothing is overwritten either; what lies there must be what
            // was checked.
            None if may_not && std::fs::read(original).is_ok_and(|now| now == image) => {
                tracing::debug!(file = %original.display(), error = %refused, "opened in place: no private copy");
                Ok(Copy { path: original.to_path_buf(), in_place: true })
            }
            _ => Err(format!(
                "cannot be copied beside itself, as it must be before it is opened: {refused}; make room there, or give a \
                 --plugin-cache for folders that may not be written"
            )),
        }
    }

    /// The linker's words without the copy's name, which says nothing to a person.
    pub(super) fn unnamed(&self, words: &str) -> String {
        words.replace(&format!("{}: ", self.path.display()), "")
    }

    /// What to open.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.in_place
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(file = %self.path.display(), %error, "private copy of a plugin not removed");
        }
    }
}

fn write(folder: &Path, image: &[u8]) -> std::io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let (id, n) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(format!("{PREFIX}{id}-{n}.so"));
        match OpenOptions::new().write(true).create_new(true).mode(0o700).open(&path) {
            // Left behind by a process that had this id.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(e),
            Ok(mut file) => {
                return match file.write_all(image) {
                    Ok(()) => Ok(path),
                    Err(error) => {
                        // Half a copy is of no use to anyone; that it stays is said by the error that follows.
                        drop(std::fs::remove_file(&path));
                        Err(error)
                    }
                };
            }
        }
    }
}

/// Removes copies that processes left behind which ended while they opened one.
fn sweep(folder: &Path) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|n| n.strip_prefix(PREFIX)).and_then(|n| n.split('-').next());
        let Some(owner) = owner.and_then(|id| id.parse::<u32>().ok()) else { continue };
        if !Path::new(&format!("/proc/{owner}")).exists() && std::fs::remove_file(entry.path()).is_ok() {
            tracing::debug!(file = %entry.path().display(), "removed a private copy that was left behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_made_beside_the_file_and_go_with_their_owner() {
        let dir = std::env::temp_dir().join(format!("cascadia-copy-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        // No process has this id: the system's largest is 4194304.
        let stale = dir.join(".gen-4294967295-0.so");
        std::fs::write(&stale, "old").expect("written");
        let copy = Copy::make(&dir.join("libx.so"), b"bytes", None).expect("copied");
        assert!(!stale.exists(), "what was left behind is gone");
        assert_eq!(std::fs::read(copy.path()).expect("read"), b"bytes");
        let path = copy.path().to_path_buf();
        drop(copy);
        assert!(!path.exists());
        std::fs::remove_dir_all(dir).expect("removed");
    }
}
