//! Which plugins serve which models with which options: decided from files, manifests and configuration, before any
//! plugin's code runs.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::catalog;
use super::job::{Job, Source};
use crate::config::schema::Model;
use crate::config::{Config, file};
use crate::plugins::load::{self, Candidate};
use crate::plugins::manifest::Manifest;
use crate::plugins::{find, options};
use crate::telemetry::labels::LoadStage;
use crate::telemetry::metrics::Metrics;

/// Why nothing can be served this way.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// One line.
    pub message: String,
    /// The way the host was called is at fault.
    pub usage: bool,
}

fn usage(message: impl Into<String>) -> Fault {
    Fault { message: message.into(), usage: true }
}

/// Everything that was decided at the start.
pub struct Chosen {
    /// Plugins, checked and not opened.
    pub(super) plugins: Vec<Candidate>,
    /// What to serve, and who asked for it.
    pub(super) jobs: Vec<(Job, Source)>,
    /// Models whose engine may still be dropped into a folder.
    pub(super) waiting: Vec<(Model, Source)>,
    /// Files of the plugin folders that were looked at, sound or not: they are not told again.
    pub(super) seen: Vec<PathBuf>,
}

impl Chosen {
    /// Names of the models that will be built.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.jobs.iter().map(|(job, _)| job.name.as_str())
    }

    /// Ids of the plugins.
    pub fn plugins(&self) -> impl Iterator<Item = &str> {
        self.plugins.iter().map(|plugin| plugin.manifest.id.as_str())
    }

    /// Variables that the plugins need before the process has threads; those in processes of their own get theirs there.
    pub fn environment(&self, config: &Config) -> impl Iterator<Item = (&str, &str)> {
        let here = self.plugins.iter().filter(|p| !config.plugins.isolates(&p.manifest.id));
        here.flat_map(|p| p.manifest.about.env.iter().map(|(k, v)| (k.as_str(), v.as_str())))
    }
}

/// Finds and checks the plugins, and gives each model an engine.
pub fn choose(config: &Config, executable: &Path, metrics: &Metrics) -> Result<Chosen, Fault> {
    let mut seen = Vec::new();
    let plugins = candidates(config, executable, metrics, &mut seen)?;
    if plugins.is_empty() && config.plugins.dirs.is_empty() {
        return Err(usage("no plugin to serve with; name one with --plugin or a folder with --plugin-dir"));
    }
    let manifests: Vec<&Manifest> = plugins.iter().map(|p| &p.manifest).collect();
    let strange = strangers(config, &manifests).err();
    let configured =
        config.model.iter().map(|model| (model.clone(), Source::Configuration, manifests.clone()));
    let mut wanted: Vec<Wanted<'_>> = configured.collect();
    for plugin in &plugins {
        // What lies beside a plugin is for that plugin, as when both are dropped into a running host.
        // A mistake in it is told, as one in a plugin is, and takes nothing else down.
        let named = beside(&plugin.path).unwrap_or_else(|problem| {
            tracing::error!("{problem}");
            Vec::new()
        });
        wanted.extend(named.into_iter().map(|model| (model, Source::Beside, vec![&plugin.manifest])));
    }
    if wanted.is_empty() && !plugins.is_empty() {
        wanted.push((Model::default(), Source::Configuration, manifests.clone()));
    }
    let (jobs, waiting) = match (strange, jobs(wanted, config, metrics)) {
        (None, Ok(given)) => given,
        (Some(problem), Ok(_)) | (None, Err(problem)) => return Err(usage(problem)),
        (Some(strange), Err(problem)) => return Err(usage(format!("{strange}; {problem}"))),
    };
    for (model, _) in &waiting {
        let engine = model.engine.as_deref().unwrap_or("any");
        tracing::warn!(
            model = model.name,
            engine,
            "no plugin here brings its engine; it waits for one to be dropped in"
        );
    }
    Ok(Chosen { plugins, jobs, waiting, seen })
}

/// Refuses options and isolation for plugins that are not there, unless they may still be dropped into a folder.
pub(super) fn strangers(config: &Config, manifests: &[&Manifest]) -> Result<(), String> {
    let is_strange = |id: &&String| !manifests.iter().any(|m| m.id == **id);
    let told = |what: &str, ids: Vec<&String>| {
        let ids: Vec<_> = ids.into_iter().map(String::as_str).collect();
        let loaded: Vec<_> = manifests.iter().map(|m| m.id.as_str()).collect();
        format!("{what} {}, which is not loaded; loaded: {}", ids.join(", "), loaded.join(", "))
    };
    let options: Vec<_> = config.plugin.keys().filter(is_strange).collect();
    let isolated: Vec<_> = config.plugins.isolate.iter().filter(|id| *id != "*").filter(is_strange).collect();
    let problems: Vec<_> = [("options are given for", options), ("--isolate names", isolated)]
        .into_iter()
        .filter(|(_, ids)| !ids.is_empty())
        .map(|(what, ids)| told(what, ids))
        .collect();
    if problems.is_empty() {
        return Ok(());
    }
    if config.plugins.dirs.is_empty() {
        return Err(problems.join("; "));
    }
    // It may still be dropped in; a mistyped one never will.
    for problem in problems {
        tracing::warn!("{problem}; it counts once such a plugin is dropped in");
    }
    Ok(())
}

/// A model, who asked for it, and the plugins that may serve it.
pub(super) type Wanted<'a> = (Model, Source, Vec<&'a Manifest>);

/// Jobs with who asked for them, and the models that wait for their engine.
type Jobs = (Vec<(Job, Source)>, Vec<(Model, Source)>);

/// Gives each model an engine.
///
/// # Errors
/// What is wrong with the first one that cannot have one, and never will.
pub(super) fn jobs(wanted: Vec<Wanted<'_>>, config: &Config, metrics: &Metrics) -> Result<Jobs, String> {
    let hot = !config.plugins.dirs.is_empty();
    let (mut jobs, mut waiting): Jobs = Default::default();
    for (model, source, manifests) in wanted {
        match job(&model, &manifests, config, metrics) {
            Ok(job) if jobs.iter().any(|(j, _)| j.name == job.name) => {
                return Err(format!("two models are named {}; give one --model NAME=PATH", job.name));
            }
            Ok(job) => jobs.push((job, source)),
            Err(Misfit::NoEngine(_)) if hot => waiting.push((model, source)),
            Err(misfit) => return Err(misfit.message()),
        }
    }
    Ok((jobs, waiting))
}

/// What a `plugin.toml` beside a plugin says.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Beside {
    model: Vec<Model>,
}

/// The models named by the `plugin.toml` beside a plugin's file; none without one.
pub(super) fn beside(plugin: &Path) -> Result<Vec<Model>, String> {
    let path = plugin.with_file_name("plugin.toml");
    match std::fs::read_to_string(&path) {
        Err(_) => Ok(Vec::new()),
        Ok(text) => match toml::from_str::<Beside>(&text) {
            Ok(beside) => Ok(beside.model),
            Err(error) => Err(file::fault(&path, &text, &error)),
        },
    }
}

/// A named plugin must be sound; one that only lies in a folder is reported and passed over.
fn candidates(
    config: &Config,
    executable: &Path,
    metrics: &Metrics,
    seen: &mut Vec<PathBuf>,
) -> Result<Vec<Candidate>, Fault> {
    let mut found: Vec<Candidate> = Vec::new();
    for name in &config.plugins.load {
        let path = find::one(name, &config.plugins.dirs, executable);
        let candidate = path.and_then(|path| load::inspect(&path)).map_err(|error| {
            metrics.load_error(error.stage);
            Fault { message: error.to_string(), usage: false }
        })?;
        match found.iter().find(|c| c.manifest.id == candidate.manifest.id) {
            Some(other) if other.path == candidate.path => {}
            Some(other) => {
                return Err(usage(format!(
                    "plugin {} is there twice: {} and {}; keep one",
                    other.manifest.id,
                    other.path.display(),
                    candidate.path.display()
                )));
            }
            None => found.push(candidate),
        }
    }
    let named = found.len();
    for dir in &config.plugins.dirs {
        for path in find::all(dir).map_err(|error| usage(error.to_string()))? {
            // One that is still being copied is left to those who follow the folder's files.
            if catalog::is_being_copied(&path) {
                continue;
            }
            seen.push(path.clone());
            let Some(mut candidate) = look_at(&path, &config.plugins.dirs, metrics) else { continue };
            match found.iter().position(|c| c.manifest.id == candidate.manifest.id) {
                None => found.push(candidate),
                // What was named stays; of those that only lie there the newest version is taken.
                Some(at)
                    if at >= named && newer(&candidate.manifest.version, &found[at].manifest.version) =>
                {
                    std::mem::swap(&mut found[at], &mut candidate);
                    twice(&candidate, &found[at]);
                }
                Some(at) => twice(&candidate, &found[at]),
            }
        }
    }
    Ok(found)
}

fn twice(passed_over: &Candidate, kept: &Candidate) {
    let (file, kept) = (passed_over.path.display(), kept.path.display());
    tracing::info!(%file, %kept, "passed over: plugin {} is there twice", passed_over.manifest.id);
}

/// Reads a file of the plugin folders; what is wrong with it is counted and logged here.
pub(super) fn look_at(path: &Path, dirs: &[PathBuf], metrics: &Metrics) -> Option<Candidate> {
    match load::inspect(path) {
        Ok(candidate) => Some(candidate),
        // In a bundle it is what a plugin needs.
        Err(error) if error.no_plugin && !dirs.iter().any(|dir| find::is_loose(path, dir)) => {
            tracing::debug!("passed over: {error}");
            None
        }
        Err(error) => {
            metrics.load_error(error.stage);
            tracing::warn!(stage = error.stage.name(), "{error}");
            None
        }
    }
}

/// Whether version `a` comes after `b`: number by number, the rest as text.
pub(super) fn newer(a: &str, b: &str) -> bool {
    let parts = |v: &str| -> Vec<(u64, String)> {
        v.split(['.', '-', '+']).map(|p| (p.parse().unwrap_or(0), p.to_owned())).collect()
    };
    parts(a) > parts(b)
}

/// Why a model has no job.
#[derive(Debug)]
pub(super) enum Misfit {
    /// No plugin brings its engine.
    NoEngine(String),
    /// Several engines could be meant.
    Several(String),
    /// What is asked for is wrong.
    Wrong(String),
}

impl Misfit {
    pub(super) fn message(self) -> String {
        match self {
            Misfit::NoEngine(message) | Misfit::Several(message) | Misfit::Wrong(message) => message,
        }
    }
}

/// Gives a model an engine of one of these plugins.
pub(super) fn job(
    model: &Model,
    plugins: &[&Manifest],
    config: &Config,
    metrics: &Metrics,
) -> Result<Job, Misfit> {
    let (manifest, engine) = engine_for(model, plugins)?;
    let mut given = config.plugin.get(&manifest.id).cloned().unwrap_or_default();
    if let Some(device) = &model.device {
        given.insert("device".to_owned(), device.as_str().into());
    }
    given.extend(model.options.clone());
    let options = options::check(&manifest.id, &manifest.about.options, &given).map_err(|problems| {
        metrics.load_error(LoadStage::Options);
        Misfit::Wrong(problems.join("; "))
    })?;
    let from_path = model.path.as_deref().and_then(|p| {
        let name = p.file_name()?.to_string_lossy().into_owned();
        if p.is_dir() {
            return Some(name);
        }
        // A model that is split over files has one name.
        let whole = cascadia_gguf::model_name(&name).map(str::to_owned);
        whole.or_else(|| p.file_stem().map(|stem| stem.to_string_lossy().into_owned()))
    });
    let name = model.name.clone().or(from_path).unwrap_or_else(|| engine.clone());
    Ok(Job {
        asked: model.clone(),
        name,
        path: model.path.clone(),
        plugin: manifest.id.clone(),
        engine,
        options,
    })
}

/// Whether one of these plugins is the one that a model asks for, whatever else may be wrong with it.
pub(super) fn has_engine(model: &Model, plugins: &[&Manifest]) -> bool {
    !matches!(engine_for(model, plugins), Err(Misfit::NoEngine(_)))
}

/// The engine that a model names, or the only one there is.
fn engine_for<'a>(model: &Model, plugins: &[&'a Manifest]) -> Result<(&'a Manifest, String), Misfit> {
    let all: Vec<(&Manifest, &str)> =
        plugins.iter().flat_map(|m| m.about.engines.iter().map(move |e| (*m, e.name.as_str()))).collect();
    let names = || all.iter().map(|(m, e)| format!("{}/{e}", m.id)).collect::<Vec<_>>().join(", ");
    // A plugin's id goes before the name of an engine that another plugin has.
    let by_id = |asked: &str, (m, engine): &(&Manifest, &str)| {
        *asked == m.id || *asked == format!("{}/{engine}", m.id)
    };
    let is_id = |asked: &str| all.iter().any(|one| by_id(asked, one));
    let fits = |one: &&(&Manifest, &str)| match model.engine.as_deref() {
        None => true,
        Some(asked) if is_id(asked) => by_id(asked, one),
        Some(asked) => asked == one.1,
    };
    let mut fitting = all.iter().filter(fits);
    match (fitting.next(), fitting.next(), &model.engine) {
        (Some((manifest, engine)), None, _) => Ok((manifest, (*engine).to_owned())),
        (Some(_), Some(_), None) => Err(Misfit::Several(format!(
            "there are several engines: {}; choose with --engine or --model NAME=PATH,engine=ID",
            names()
        ))),
        (Some(_), Some(_), Some(asked)) => Err(Misfit::Several(format!(
            "engine {asked} could be several of {}; write PLUGIN/ENGINE",
            names()
        ))),
        (None, _, Some(asked)) => {
            Err(Misfit::NoEngine(format!("there is no engine {asked}; there is {}", names())))
        }
        (None, ..) => Err(Misfit::NoEngine("the plugins have no engine".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_that_is_not_found_is_counted_as_such() {
        let (mut config, metrics) = (Config::default(), Metrics::new());
        config.plugins.load = vec!["no-such-engine".to_owned()];
        let fault = candidates(&config, Path::new("/nowhere/cascadia-host"), &metrics, &mut Vec::new())
            .expect_err("absent");
        assert!(!fault.usage && fault.message.contains("not found"), "{}", fault.message);
        let text = String::from_utf8(metrics.expose()).expect("text");
        assert!(text.contains("cascadia_plugin_load_errors_total{stage=\"find\"} 1"), "{text}");
    }

    #[test]
    fn versions_are_compared_by_number() {
        for (a, b, expected) in [
            ("0.10.0", "0.9.9", true),
            ("1.0.0", "1.0.0", false),
            ("0.1.0", "0.1.1", false),
            ("2", "1.9", true),
        ] {
            assert_eq!(super::newer(a, b), expected, "{a} against {b}");
        }
    }
}
