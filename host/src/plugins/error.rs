//! Why a plugin could not be brought up: one variant per stage, each naming the file and the way out.

use std::path::PathBuf;

use crate::telemetry::labels::LoadStage;

/// A plugin that was not brought up.
#[derive(Debug, thiserror::Error)]
#[error("plugin {plugin}: {message}")]
pub struct LoadError {
    /// File name or id.
    pub plugin: String,
    /// The stage that failed.
    pub stage: LoadStage,
    /// One line.
    pub message: String,
    /// A code of the boundary, when the plugin itself refused.
    pub code: Option<u32>,
    /// The file is sound and simply not a plugin, as the dependencies are that lie beside one.
    pub no_plugin: bool,
}

impl LoadError {
    /// A failure of `plugin` in `stage`.
    pub fn new(plugin: impl Into<String>, stage: LoadStage, message: impl Into<String>) -> LoadError {
        LoadError { plugin: plugin.into(), stage, message: message.into(), code: None, no_plugin: false }
    }

    /// A failure with that file.
    pub fn file(path: &std::path::Path, stage: LoadStage, message: impl Into<String>) -> LoadError {
        LoadError::new(path.display().to_string(), stage, message)
    }
}

/// A file that was looked for in vain.
pub(super) fn not_found(name: &str, tried: &[PathBuf]) -> LoadError {
    let tried: Vec<_> = tried.iter().map(|p| p.display().to_string()).collect();
    let message =
        format!("not found; looked at {}; give a path with a / or a --plugin-dir", tried.join(", "));
    LoadError::new(name, LoadStage::Find, message)
}
