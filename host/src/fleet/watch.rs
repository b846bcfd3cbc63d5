//! Says when something in a folder changed. The one place that knows how this system tells.

use std::path::PathBuf;

use notify::{RecursiveMode, Watcher};

/// Calls `changed` whenever something in one of the folders, or in a folder in it, changed. Dropping the answer ends it.
pub(super) fn folders(dirs: &[PathBuf], changed: impl Fn() + Send + 'static) -> Option<impl Watcher> {
    if dirs.is_empty() {
        return None;
    }
    let told = notify::recommended_watcher(move |_: notify::Result<notify::Event>| changed());
    let mut watcher = match told {
        Ok(watcher) => watcher,
        Err(error) => {
            tracing::warn!(%error, "plugin folders are not watched; they are looked at every few seconds");
            return None;
        }
    };
    for dir in dirs {
        if let Err(error) = watcher.watch(dir, RecursiveMode::Recursive) {
            tracing::warn!(dir = %dir.display(), %error, "plugin folder is not watched; it is looked at every few seconds");
        }
    }
    Some(watcher)
}
