//! A note on disk of which plugins run in this process, gone after an end in good order. One that is found at the start
//! tells of a run that a plugin may have crashed; then `--isolate` is suggested.
//!
//! It is a hint and nothing depends on it: without a place for state, or when it cannot be written, there is none.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

const PREFIX: &str = "running-";

/// The note of this run.
#[derive(Debug, Default)]
pub struct Marker {
    file: Option<PathBuf>,
    plugins: Mutex<BTreeSet<String>>,
}

impl Marker {
    /// A note in `folder`; answers beside it the plugins of runs that did not end in good order, and forgets those runs.
    pub fn new(folder: Option<PathBuf>) -> (Marker, Vec<String>) {
        let Some(folder) = folder else { return (Marker::default(), Vec::new()) };
        let suspects = suspects(&folder);
        let file = folder.join(format!("{PREFIX}{}", std::process::id()));
        (Marker { file: Some(file), plugins: Mutex::default() }, suspects)
    }

    /// A plugin is opened in this process.
    pub fn add(&self, plugin: &str) {
        let mut plugins = self.plugins.lock();
        if !plugins.insert(plugin.to_owned()) {
            return;
        }
        let Some(file) = &self.file else { return };
        let text: String = plugins.iter().flat_map(|id| [id, "\n"]).collect();
        let written =
            file.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(file, text));
        if let Err(error) = written {
            tracing::debug!(file = %file.display(), %error, "no note of this run is kept");
        }
    }

    /// The run ends in good order.
    pub fn end(&self) {
        if let Some(file) = &self.file
            && !self.plugins.lock().is_empty()
            && let Err(error) = std::fs::remove_file(file)
        {
            tracing::debug!(file = %file.display(), %error, "the note of this run stays");
        }
    }
}

/// The plugins of runs whose process is gone and whose note is not.
fn suspects(folder: &Path) -> Vec<String> {
    let mut found = BTreeSet::new();
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|n| n.strip_prefix(PREFIX)) else { continue };
        // Another program may have the number by now.
        let comm = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        if comm.trim_end() == "cascadia-host" {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        found.extend(text.lines().take(64).map(str::to_owned));
        if let Err(error) = std::fs::remove_file(entry.path()) {
            tracing::debug!(file = %entry.path().display(), %error, "the note of an earlier run stays");
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_stayed_is_told_once() {
        let dir = std::env::temp_dir().join(format!("cascadia-marker-{}", std::process::id()));
        let (marker, none) = Marker::new(Some(dir.clone()));
        assert!(none.is_empty());
        marker.add("mock");
        marker.add("ov-genai");
        // As if the process had gone: the note bears a number that no process has.
        let note = dir.join(format!("{PREFIX}{}", std::process::id()));
        std::fs::rename(&note, dir.join(format!("{PREFIX}4294967295"))).expect("renamed");
        let (second, suspects) = Marker::new(Some(dir.clone()));
        assert_eq!(suspects, ["mock", "ov-genai"]);
        second.add("mock");
        second.end();
        let (_, suspects) = Marker::new(Some(dir.clone()));
        assert!(suspects.is_empty());
        std::fs::remove_dir_all(dir).expect("removed");
    }
}
