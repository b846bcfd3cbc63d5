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
    /// A note in `folder`; answers beside it those of the plugins `mine` that ran where a run did not end in good order, and
    /// forgets such runs. The notes of hosts with other plugins are left to them.
    pub fn new<'a>(
        folder: Option<PathBuf>,
        mine: impl IntoIterator<Item = &'a str>,
    ) -> (Marker, Vec<String>) {
        let Some(folder) = folder else { return (Marker::default(), Vec::new()) };
        let suspects = suspects(&folder, &mine.into_iter().collect());
        let process = std::process::id();
        let file = folder.join(format!("{PREFIX}{process}-{}", begun(process).unwrap_or(0)));
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

/// Those of the plugins `mine` that ran where the process is gone and its note is not.
fn suspects(folder: &Path, mine: &BTreeSet<&str>) -> Vec<String> {
    let mut found = BTreeSet::new();
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(run) = name.to_str().and_then(|n| n.strip_prefix(PREFIX)) else { continue };
        if is_alive(run) {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let ran: Vec<_> = text.lines().take(64).filter(|id| mine.contains(id)).map(str::to_owned).collect();
        if ran.is_empty() {
            continue;
        }
        found.extend(ran);
        if let Err(error) = std::fs::remove_file(entry.path()) {
            tracing::debug!(file = %entry.path().display(), %error, "the note of an earlier run stays");
        }
    }
    found.into_iter().collect()
}

/// Whether the run of a note goes on: its number may be another's by now, and in a container it is the same one each time.
fn is_alive(run: &str) -> bool {
    let Some((process, at)) = run.split_once('-') else { return false };
    let now = process.parse().ok().and_then(begun);
    now.is_some_and(|begun| at == begun.to_string())
}

/// When a process that has not ended began, in clock ticks since the system did (proc(5), `/proc/PID/stat`).
fn begun(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The program's name may hold anything; behind it come the state and, as the twentieth, the time.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    match fields.next()? {
        // It has ended, and nobody has asked how.
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_its_beginning() {
        let process = std::process::id();
        let at = begun(process).expect("runs");
        assert!(is_alive(&format!("{process}-{at}")));
        assert!(!is_alive(&format!("{process}-{}", at + 1)), "another one had the number");
        assert!(!is_alive(&process.to_string()) && !is_alive("x-1") && !is_alive("4294967295-1"));
        let mut child = std::process::Command::new("true").spawn().expect("starts");
        let ended = || begun(child.id()).is_none();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !ended() && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(ended(), "it has ended, asked after or not");
        child.wait().expect("waits");
    }

    #[test]
    fn a_note_that_stayed_is_told_once() {
        let dir = std::env::temp_dir().join(format!("cascadia-marker-{}", std::process::id()));
        let mine = ["mock", "ov-genai"];
        let (marker, none) = Marker::new(Some(dir.clone()), mine);
        assert!(none.is_empty());
        marker.add("mock");
        marker.add("ov-genai");
        let (_, alive) = Marker::new(Some(dir.clone()), mine);
        assert!(alive.is_empty(), "it runs");
        // As if the process had gone: an earlier one had its number, as in a container.
        let note = marker.file.clone().expect("has a place");
        std::fs::rename(&note, dir.join(format!("{PREFIX}{}-1", std::process::id()))).expect("renamed");
        let (_, others) = Marker::new(Some(dir.clone()), ["ov-runtime"]);
        assert!(others.is_empty(), "it is left to who has such a plugin");
        let (second, suspects) = Marker::new(Some(dir.clone()), ["mock"]);
        assert_eq!(suspects, ["mock"]);
        second.add("mock");
        second.end();
        let (_, suspects) = Marker::new(Some(dir.clone()), mine);
        assert!(suspects.is_empty());
        std::fs::remove_dir_all(dir).expect("removed");
    }
}
