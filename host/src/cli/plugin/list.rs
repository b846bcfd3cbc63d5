//! `plugin list`: each library found, a line each.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::{library, say};
use crate::config::env;
use crate::plugins::load::Candidate;
use crate::plugins::{LoadError, find, load};

/// Where to look.
#[derive(Args)]
pub(in crate::cli) struct Flags {
    /// Plugin to show: a path with a /, or a name. Repeatable.
    #[arg(long, value_name = "PATH|NAME")]
    plugin: Vec<String>,
    /// Folder whose plugins are shown. Repeatable. Without any flag: the executable's folder and its plugins/.
    #[arg(long, value_name = "DIR")]
    plugin_dir: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

type Found = (PathBuf, Result<Candidate, LoadError>);

pub(super) fn run(flags: &Flags) -> Result<i32, String> {
    let found = find(flags)?;
    if flags.json {
        let all: Vec<_> = found.iter().map(|(path, read)| object(path, read)).collect();
        say(&serde_json::to_string_pretty(&Value::Array(all)).map_err(|e| e.to_string())?);
    } else if found.is_empty() {
        say("no plugins found; name one with --plugin, or a folder with --plugin-dir");
    } else {
        found.iter().for_each(|(path, read)| say(&line(path, read)));
    }
    Ok(0)
}

fn find(flags: &Flags) -> Result<Vec<Found>, String> {
    let mut paths = Vec::new();
    for name in &flags.plugin {
        paths.push(library(name, &flags.plugin_dir)?);
    }
    if flags.plugin.is_empty() && flags.plugin_dir.is_empty() {
        let executable = env::executable().map_err(|e| format!("own path is not known: {e}"))?;
        let beside = executable.parent().map(Path::to_path_buf).unwrap_or_default();
        for dir in [beside.clone(), beside.join("plugins")] {
            // Neither folder needs to be there.
            paths.extend(find::all(&dir).unwrap_or_default());
        }
    }
    for dir in &flags.plugin_dir {
        paths.extend(find::all(dir).map_err(|e| e.to_string())?);
    }
    paths.dedup();
    let read = paths.into_iter().map(|path| {
        let read = load::inspect(&path);
        (path, read)
    });
    // What a plugin needs lies in its bundle or beside the host, and nothing is wrong with it.
    let is_loose = |path: &Path| flags.plugin_dir.iter().any(|dir| find::is_loose(path, dir));
    let passes = |path: &Path, read: &Result<_, LoadError>| {
        read.as_ref().err().is_none_or(|error| !error.no_plugin || is_loose(path))
    };
    Ok(read.filter(|(path, read)| passes(path, read)).collect())
}

fn line(path: &Path, read: &Result<Candidate, LoadError>) -> String {
    match read {
        Ok(Candidate { manifest, .. }) => {
            let engines: Vec<_> = manifest.about.engines.iter().map(|e| e.name.as_str()).collect();
            let (id, version) = (&manifest.id, &manifest.version);
            format!("{id} {version}  engines: {}  {}", engines.join(", "), path.display())
        }
        Err(error) => format!("{}  {} error: {}", path.display(), error.stage.name(), error.message),
    }
}

fn object(path: &Path, read: &Result<Candidate, LoadError>) -> Value {
    let file = path.display().to_string();
    match read {
        Ok(Candidate { manifest, .. }) => {
            let engines: Vec<_> = manifest.about.engines.iter().map(|e| e.name.as_str()).collect();
            json!({ "file": file, "id": manifest.id, "version": manifest.version, "engines": engines,
                    "description": manifest.about.description })
        }
        Err(error) => json!({ "file": file, "stage": error.stage.name(), "error": error.message }),
    }
}
