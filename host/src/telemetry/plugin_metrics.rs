//! Series that plugins register: names forced under `cascadia_plugin_<id>_`, their number bounded.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus::{Counter, Gauge, Histogram, HistogramOpts, Opts};

use super::metrics::Metrics;

/// What kind of series a plugin asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// Why a series was not made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Too many series.
    #[error("plugin {0} has {MAX_SERIES} series already")]
    TooMany(String),
    /// A name, label or bucket that Prometheus does not take, or a clash of types.
    #[error("{0}")]
    Invalid(#[from] prometheus::Error),
}

/// Most series of one plugin.
pub const MAX_SERIES: usize = 1000;

enum Series {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

/// Full name, kind and labels of a series.
type Key = (String, Kind, Vec<(String, String)>);

#[derive(Default)]
struct State {
    handles: HashMap<Key, u64>,
    series: Vec<Series>,
    per_plugin: HashMap<String, usize>,
}

/// The series of all plugins.
pub struct PluginMetrics {
    metrics: Arc<Metrics>,
    state: RwLock<State>,
}

impl PluginMetrics {
    /// No series yet.
    pub fn new(metrics: Arc<Metrics>) -> PluginMetrics {
        PluginMetrics { metrics, state: RwLock::default() }
    }

    /// The host's own metrics.
    pub fn host(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// A handle (from 1) for the series; the same request gives the same handle.
    pub fn register(
        &self,
        plugin: &str,
        kind: Kind,
        name: &str,
        help: &str,
        labels: Vec<(String, String)>,
        buckets: Vec<f64>,
    ) -> Result<u64, Error> {
        let full = format!("cascadia_plugin_{}_{name}", plugin.replace('-', "_"));
        let mut state = self.state.write();
        let key = (full.clone(), kind, labels.clone());
        if let Some(handle) = state.handles.get(&key) {
            return Ok(*handle);
        }
        if state.per_plugin.get(plugin).is_some_and(|n| *n >= MAX_SERIES) {
            return Err(Error::TooMany(plugin.to_owned()));
        }
        let opts = Opts::new(full, help).const_labels(labels.into_iter().collect());
        let registry = self.metrics.registry();
        let series = match kind {
            Kind::Counter => {
                let c = Counter::with_opts(opts)?;
                registry.register(Box::new(c.clone()))?;
                Series::Counter(c)
            }
            Kind::Gauge => {
                let g = Gauge::with_opts(opts)?;
                registry.register(Box::new(g.clone()))?;
                Series::Gauge(g)
            }
            Kind::Histogram => {
                let h = Histogram::with_opts(HistogramOpts::from(opts).buckets(buckets))?;
                registry.register(Box::new(h.clone()))?;
                Series::Histogram(h)
            }
        };
        state.series.push(series);
        let handle = state.series.len() as u64;
        state.handles.insert(key, handle);
        *state.per_plugin.entry(plugin.to_owned()).or_default() += 1;
        Ok(handle)
    }

    /// Adds to a counter or gauge. Unknown handles, wrong kinds and negative counts do nothing.
    pub fn add(&self, handle: u64, value: f64) {
        self.with(handle, |series| match series {
            Series::Counter(c) if value >= 0.0 && value.is_finite() => c.inc_by(value),
            Series::Gauge(g) => g.add(value),
            _ => {}
        });
    }

    /// Sets a gauge.
    pub fn set(&self, handle: u64, value: f64) {
        self.with(handle, |series| {
            if let Series::Gauge(g) = series {
                g.set(value);
            }
        });
    }

    /// Adds a sample to a histogram.
    pub fn observe(&self, handle: u64, value: f64) {
        self.with(handle, |series| {
            if let Series::Histogram(h) = series {
                h.observe(value);
            }
        });
    }

    fn with(&self, handle: u64, f: impl FnOnce(&Series)) {
        let state = self.state.read();
        if let Some(series) = usize::try_from(handle).ok().and_then(|h| state.series.get(h.wrapping_sub(1))) {
            f(series);
        }
    }
}
