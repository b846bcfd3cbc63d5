//! Tries whether a model would come up, without serving it. In this process: the caller gives it one of its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::choose::Chosen;
use crate::config::Config;
use crate::plugins::build::Order;
use crate::plugins::services;
use crate::plugins::{Built, Opened};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::plugin_metrics::PluginMetrics;

/// How far to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The plugin opens and finds its libraries; no weights are read.
    Runtime,
    /// As [`Depth::Runtime`], and the plugin tells in the log which devices its libraries find.
    Devices,
    /// The engine is built and warmed.
    Whole,
}

/// The option of an engine that can tell its devices: one line of the log each, of the part `devices`.
const LIST_DEVICES: &str = "list-devices";

/// A model that was chosen, as far as files and manifests tell.
#[derive(Debug)]
pub struct Subject<'a> {
    /// The served name.
    pub name: &'a str,
    /// File or folder.
    pub path: Option<&'a Path>,
    /// Id of the plugin.
    pub plugin: &'a str,
    /// Engine within it.
    pub engine: &'a str,
    /// Device as the engine names it; empty when the engine has no such option.
    pub device: &'a str,
    /// Whether the engine can tell which devices there are.
    pub lists_devices: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Full name of the device, when the engine was built and says so.
    pub device: String,
    /// How long it took to build and to warm.
    pub took: Duration,
}

impl Chosen {
    /// The models that would be built.
    pub fn subjects(&self) -> impl Iterator<Item = Subject<'_>> {
        self.jobs.iter().map(|(job, _)| Subject {
            name: &job.name,
            path: job.path.as_deref(),
            plugin: &job.plugin,
            engine: &job.engine,
            device: job.options.get("device").map_or("", String::as_str),
            lists_devices: job.options.contains_key(LIST_DEVICES),
        })
    }

    /// Names of the models that wait for a plugin which brings their engine.
    pub fn waiting(&self) -> impl Iterator<Item = &str> {
        self.waiting.iter().map(|(model, _)| model.name.as_deref().unwrap_or("(no name)"))
    }

    /// Builds the engine of the model of that name. The plugin's environment must be set.
    ///
    /// # Errors
    /// Why it would not come up, in one line.
    pub fn probe(self, name: &str, depth: Depth, config: &Config) -> Result<Found, String> {
        let level = config.level().unwrap_or(tracing::Level::INFO);
        services::start(Arc::new(PluginMetrics::new(Arc::new(Metrics::new()))), level);
        let mut jobs = self.jobs.into_iter().map(|(job, _)| job);
        let mut job = jobs.find(|job| job.name == name).ok_or("there is no such model")?;
        if depth == Depth::Devices {
            job.options.insert(LIST_DEVICES.to_owned(), "true".to_owned());
        }
        let mut plugins = self.plugins.into_iter();
        let mut candidate =
            plugins.find(|p| p.manifest.id == job.plugin).ok_or("its plugin is not there any more")?;
        candidate.cache.clone_from(&config.plugins.cache);
        let opened = Opened::here(candidate).map_err(|e| e.to_string())?;
        let (never, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
        let order = Order {
            engine: &job.engine,
            options: &job.options,
            path: job.path.as_deref(),
            model: &job.name,
            give_up: &never,
            stop_before_weights: (depth != Depth::Whole).then_some(&stopped),
        };
        match opened.build(&order) {
            Ok(Built { card, load, warmup, .. }) => Ok(Found { device: card.device, took: load + warmup }),
            Err(_) if stopped.load(Ordering::Relaxed) => {
                Ok(Found { device: String::new(), took: Duration::ZERO })
            }
            Err(error) => Err(error.to_string()),
        }
    }
}
