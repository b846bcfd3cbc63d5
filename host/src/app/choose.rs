//! Which plugins serve which models with which options: decided from files, manifests and configuration, before any
//! plugin's code runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Failed;
use crate::config::Config;
use crate::config::schema::Model;
use crate::plugins::load::{self, Candidate};
use crate::plugins::{find, options};
use crate::telemetry::labels::LoadStage;
use crate::telemetry::metrics::Metrics;

/// A model and the engine that will serve it.
#[derive(Debug)]
pub(super) struct Job {
    /// The served name.
    pub(super) name: String,
    /// File or folder.
    pub(super) path: Option<PathBuf>,
    /// Which of the plugins.
    pub(super) plugin: usize,
    /// Engine within it.
    pub(super) engine: String,
    /// Options, checked and completed.
    pub(super) options: BTreeMap<String, String>,
}

/// Everything that was decided.
pub(super) struct Chosen {
    /// Plugins, checked and not opened.
    pub(super) plugins: Vec<Candidate>,
    /// What to serve.
    pub(super) jobs: Vec<Job>,
}

impl Chosen {
    /// Variables that the plugins need before the process has threads.
    pub(super) fn environment(&self) -> impl Iterator<Item = (&str, &str)> {
        self.plugins.iter().flat_map(|p| p.manifest.about.env.iter().map(|(k, v)| (k.as_str(), v.as_str())))
    }
}

/// Finds and checks the plugins, and gives each model an engine.
pub(super) fn choose(config: &Config, executable: &Path, metrics: &Metrics) -> Result<Chosen, Failed> {
    let plugins = candidates(config, executable, metrics)?;
    if plugins.is_empty() {
        return Err(Failed::usage(
            "no plugin to serve with; name one with --plugin or a folder with --plugin-dir",
        ));
    }
    let unknown: Vec<_> =
        config.plugin.keys().filter(|id| !plugins.iter().any(|p| p.manifest.id == **id)).cloned().collect();
    if !unknown.is_empty() {
        let loaded: Vec<_> = plugins.iter().map(|p| p.manifest.id.as_str()).collect();
        let message = format!(
            "options are given for {}, which is not loaded; loaded: {}",
            unknown.join(", "),
            loaded.join(", ")
        );
        return Err(Failed::usage(message));
    }
    let nothing = [Model { name: None, path: None, engine: None, device: None }];
    let models: &[Model] = if config.model.is_empty() { &nothing } else { &config.model };
    let mut jobs: Vec<Job> = Vec::new();
    for model in models {
        let job = job(model, &plugins, config, metrics)?;
        if jobs.iter().any(|j| j.name == job.name) {
            return Err(Failed::usage(format!(
                "two models are named {}; give one --model NAME=PATH",
                job.name
            )));
        }
        jobs.push(job);
    }
    Ok(Chosen { plugins, jobs })
}

/// A named plugin must be sound; one that only lies in a folder is reported and passed over.
fn candidates(config: &Config, executable: &Path, metrics: &Metrics) -> Result<Vec<Candidate>, Failed> {
    let mut found: Vec<Candidate> = Vec::new();
    let mut add = |candidate: Candidate| -> Result<(), Failed> {
        match found.iter().find(|c| c.manifest.id == candidate.manifest.id) {
            Some(other) if other.path == candidate.path => Ok(()),
            Some(other) => Err(Failed::usage(format!(
                "plugin {} is there twice: {} and {}; keep one",
                other.manifest.id,
                other.path.display(),
                candidate.path.display()
            ))),
            None => {
                found.push(candidate);
                Ok(())
            }
        }
    };
    for name in &config.plugins.load {
        let path = find::one(name, &config.plugins.dirs, executable);
        let candidate = path.and_then(|path| load::inspect(&path)).map_err(|error| {
            metrics.load_error(error.stage);
            Failed::run(error.to_string())
        })?;
        add(candidate)?;
    }
    for dir in &config.plugins.dirs {
        let files = find::all(dir).map_err(|error| Failed::usage(error.to_string()))?;
        for path in files {
            match load::inspect(&path) {
                Ok(candidate) => add(candidate)?,
                Err(error) if error.no_plugin => tracing::debug!("passed over: {error}"),
                Err(error) => {
                    metrics.load_error(error.stage);
                    tracing::warn!(stage = error.stage.name(), "{error}");
                }
            }
        }
    }
    Ok(found)
}

fn job(model: &Model, plugins: &[Candidate], config: &Config, metrics: &Metrics) -> Result<Job, Failed> {
    let (plugin, engine) = engine_for(model, plugins)?;
    let manifest = &plugins[plugin].manifest;
    let mut given = config.plugin.get(&manifest.id).cloned().unwrap_or_default();
    if let Some(device) = &model.device {
        given.insert("device".to_owned(), device.as_str().into());
    }
    let options = options::check(&manifest.id, &manifest.about.options, &given).map_err(|problems| {
        metrics.load_error(LoadStage::Options);
        Failed::usage(problems.join("; "))
    })?;
    let from_path = model.path.as_deref().and_then(|p| {
        let stem = if p.is_dir() { p.file_name() } else { p.file_stem() };
        stem.map(|s| s.to_string_lossy().into_owned())
    });
    let name = model.name.clone().or(from_path).unwrap_or_else(|| engine.clone());
    Ok(Job { name, path: model.path.clone(), plugin, engine, options })
}

/// The engine that a model names, or the only one there is.
fn engine_for(model: &Model, plugins: &[Candidate]) -> Result<(usize, String), Failed> {
    let all: Vec<(usize, &str, &str)> = plugins
        .iter()
        .enumerate()
        .flat_map(|(i, p)| {
            p.manifest.about.engines.iter().map(move |e| (i, p.manifest.id.as_str(), e.name.as_str()))
        })
        .collect();
    let names = || all.iter().map(|(_, p, e)| format!("{p}/{e}")).collect::<Vec<_>>().join(", ");
    let fits = |(_, plugin, engine): &&(usize, &str, &str)| match &model.engine {
        None => true,
        Some(asked) => asked == plugin || asked == engine || *asked == format!("{plugin}/{engine}"),
    };
    let mut fitting = all.iter().filter(fits);
    match (fitting.next(), fitting.next(), &model.engine) {
        (Some((plugin, _, engine)), None, _) => Ok((*plugin, (*engine).to_owned())),
        (Some(_), Some(_), None) => Err(Failed::usage(format!(
            "there are several engines: {}; choose with --engine or --model NAME=PATH,engine=ID",
            names()
        ))),
        (Some(_), Some(_), Some(asked)) => {
            Err(Failed::usage(format!("engine {asked} could be several of {}; write PLUGIN/ENGINE", names())))
        }
        (None, _, Some(asked)) => {
            Err(Failed::usage(format!("there is no engine {asked}; there is {}", names())))
        }
        (None, ..) => Err(Failed::usage("the plugins have no engine")),
    }
}
