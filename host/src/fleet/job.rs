//! A model with the engine that will serve it, and who asked for it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::config::schema::Model;

/// Who asked for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The configuration: a reload may let it go.
    Configuration,
    /// The `plugin.toml` beside a plugin.
    Beside,
    /// The admin API.
    Admin,
}

impl Source {
    pub(super) fn name(self) -> &'static str {
        match self {
            Source::Configuration => "configuration",
            Source::Beside => "plugin",
            Source::Admin => "admin",
        }
    }
}

/// A model and the engine that will serve it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Job {
    /// What was asked for.
    pub(super) asked: Model,
    /// The served name.
    pub(super) name: String,
    /// File or folder.
    pub(super) path: Option<PathBuf>,
    /// Id of the plugin.
    pub(super) plugin: String,
    /// Engine within it.
    pub(super) engine: String,
    /// Options, checked and completed.
    pub(super) options: BTreeMap<String, String>,
}

#[cfg(test)]
impl Job {
    pub(super) fn for_test(name: &str) -> Job {
        let options = BTreeMap::new();
        let (asked, plugin, engine) = (Model::default(), "p".to_owned(), "e".to_owned());
        Job { asked, name: name.to_owned(), path: None, plugin, engine, options }
    }
}

impl Job {
    /// What was asked for, with the name and the engine that it came to: a newer plugin does not change them.
    pub(super) fn pinned(&self) -> Model {
        let engine = Some(format!("{}/{}", self.plugin, self.engine));
        Model { name: Some(self.name.clone()), engine, ..self.asked.clone() }
    }

    /// Whether an engine built for `other` serves this one too.
    pub(super) fn is_served_by(&self, other: &Job) -> bool {
        let what =
            |job: &Job| (job.path.clone(), job.plugin.clone(), job.engine.clone(), job.options.clone());
        what(self) == what(other)
    }
}
