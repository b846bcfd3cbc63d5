//! Plugins and models: what `serve` would find, whether it opens, whether each model's files are what they should be.

use std::path::{Path, PathBuf};

use super::probe::Tried;
use super::{Line, devices, machine, probe};
use crate::config::{Config, env};
use crate::fleet::choose::choose;
use crate::fleet::probe::{Depth, Subject};
use crate::plugins::{find, load};
use crate::prompt::source::{self, Source};
use crate::prompt::{LoadError, Text};
use crate::telemetry::metrics::Metrics;

pub(super) fn lines(config: &Config, build: bool) -> Vec<Line> {
    let executable = env::executable().unwrap_or_default();
    let mut lines = plugins(config, &executable);
    let chosen = match choose(config, &executable, &Metrics::new()) {
        Ok(chosen) => chosen,
        Err(fault) => {
            // What is wrong with a plugin has its own line already.
            if !lines.iter().any(|line| line.found.contains(&fault.message)) {
                lines.push(Line::fault("models", fault.message));
            }
            return lines;
        }
    };
    let depth = if build { Depth::Whole } else { Depth::Runtime };
    let subjects: Vec<_> = chosen.subjects().collect();
    for subject in &subjects {
        of_model(subject, depth, &executable, &mut lines);
    }
    lines.extend(devices::lines(&subjects, &executable));
    for name in chosen.waiting() {
        let found = "no plugin brings its engine yet";
        lines.push(Line::warn(format!("model {name}"), found, "drop one into a --plugin-dir"));
    }
    lines
}

/// Each plugin that is named, and each that lies in a folder.
fn plugins(config: &Config, executable: &Path) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut paths: Vec<PathBuf> = Vec::new();
    for name in &config.plugins.load {
        match find::one(name, &config.plugins.dirs, executable) {
            Ok(path) => paths.push(path),
            Err(error) => lines.push(Line::fault(format!("plugin {name}"), error.to_string())),
        }
    }
    let named = paths.clone();
    for dir in &config.plugins.dirs {
        match find::all(dir) {
            Ok(all) => paths.extend(all),
            Err(error) => lines.push(Line::fault("plugin folder", error.to_string())),
        }
    }
    paths.sort();
    paths.dedup();
    for path in paths {
        match load::inspect(&path) {
            Ok(candidate) => {
                let manifest = candidate.manifest;
                let found =
                    format!("version {} speaks this host's boundary ({})", manifest.version, path.display());
                lines.push(Line::ok(format!("plugin {}", manifest.id), found));
            }
            // What lies in a bundle for its plugin to use is no plugin, and nothing is wrong with it.
            Err(error)
                if error.no_plugin && !config.plugins.dirs.iter().any(|dir| find::is_loose(&path, dir)) => {}
            Err(error) if named.contains(&path) => lines.push(Line::fault("plugin", error.to_string())),
            // A start passes it over.
            Err(error) => lines.push(Line::warn(
                "plugin",
                error.to_string(),
                "take it out of the folder, or put a whole one there",
            )),
        }
    }
    lines
}

fn of_model(subject: &Subject<'_>, depth: Depth, executable: &Path, lines: &mut Vec<Line>) {
    let label = format!("model {}", subject.name);
    let files = subject.path.map(|path| files(&label, path));
    let broken = files.as_ref().is_some_and(|line| line.verdict == super::Verdict::Fail);
    lines.extend(files);
    lines.extend(machine::device(&label, subject.device));
    if broken {
        // The engine would say the same in other words.
        return;
    }
    let engine = format!("{}/{}", subject.plugin, subject.engine);
    lines.push(match probe::run(executable, subject.name, depth) {
        Tried::Well { device, took_ms, said, .. } => {
            let device = if device.is_empty() { String::new() } else { format!(" on {device}") };
            let done = match depth {
                Depth::Whole => format!("{engine} was built and warmed{device} in {took_ms} ms"),
                Depth::Runtime | Depth::Devices => format!("{engine} opens and finds what it needs"),
            };
            let said = if said.is_empty() { String::new() } else { format!(" ({})", said.join("; ")) };
            Line::ok(label, format!("{done}{said}"))
        }
        Tried::Failed(why) => Line::fault(label, why),
    });
}

/// Whether the files can be read, and are a model's.
fn files(label: &str, path: &Path) -> Line {
    let shown = path.display();
    if let Err(error) = path.metadata() {
        return Line::fail(
            label,
            format!("{shown} cannot be read: {error}"),
            "name an existing file or folder",
        );
    }
    let read = match source::read(path) {
        Ok(read) => read,
        Err(error) => return unrecognised(label, path, &error),
    };
    if let Source::Gguf(gguf) = &read {
        let length = path.metadata().map_or(0, |meta| meta.len());
        if let Err(error) = gguf.check_len(length) {
            return Line::fail(label, format!("{shown}: {error}"), "check that its download ended");
        }
    }
    match Text::from_source(&read) {
        Ok(text) => {
            let (tokenizer, _) = text.describe();
            let template =
                if text.has_template() { "with a chat template" } else { "without a chat template" };
            Line::ok(label, format!("{shown} is readable: tokenizer {tokenizer}, {template}"))
        }
        Err(error @ LoadError::Source(_)) => unrecognised(label, path, &error),
        Err(error) => Line::warn(
            label,
            format!("{shown}: {error}"),
            "only an engine with a tokenizer of its own can serve it",
        ),
    }
}

/// An engine with a tokenizer of its own may know files that the host does not; nobody can read those that are closed.
fn unrecognised(label: &str, path: &Path, error: &dyn std::error::Error) -> Line {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    let closed = match path.is_dir() {
        true => path.read_dir().err(),
        false => std::fs::File::open(path).err(),
    };
    match closed {
        Some(reason) => Line::fail(
            label,
            format!("{} cannot be read: {reason}", path.display()),
            "give this user the right to",
        ),
        None => Line::warn(
            label,
            format!("{error}{cause}"),
            "only an engine with a tokenizer of its own can serve it",
        ),
    }
}
