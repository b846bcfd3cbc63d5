//! Where what plugins count is kept: in the host's registry, or, for the child of an isolated plugin, in a ledger that is
//! told to the host.

use std::sync::Arc;

use crate::telemetry::labels::Protocol;
use crate::telemetry::plugin_metrics::{Kind, PluginMetrics};
use crate::telemetry::transport::TransportMetrics;

/// Where the series of plugins are kept: the host's registry, or the ledger of a child.
pub trait Register: Send + Sync {
    /// A handle for the series; the same request gives the same handle.
    fn series(
        &self,
        plugin: &str,
        kind: Kind,
        name: &str,
        help: &str,
        labels: Vec<(String, String)>,
        buckets: Vec<f64>,
    ) -> Result<u64, String>;
    /// Adds to a counter or gauge.
    fn add(&self, handle: u64, value: f64);
    /// Sets a gauge.
    fn set(&self, handle: u64, value: f64);
    /// Adds a sample to a histogram.
    fn observe(&self, handle: u64, value: f64);
    /// Counts breaches of the boundary's rules.
    fn breach(&self, kind: Protocol, n: u64);
    /// What is counted of links between stages.
    fn transport(&self) -> &Arc<TransportMetrics>;
}

impl Register for PluginMetrics {
    fn series(
        &self,
        plugin: &str,
        kind: Kind,
        name: &str,
        help: &str,
        labels: Vec<(String, String)>,
        buckets: Vec<f64>,
    ) -> Result<u64, String> {
        self.register(plugin, kind, name, help, labels, buckets).map_err(|e| e.to_string())
    }

    fn add(&self, handle: u64, value: f64) {
        PluginMetrics::add(self, handle, value);
    }

    fn set(&self, handle: u64, value: f64) {
        PluginMetrics::set(self, handle, value);
    }

    fn observe(&self, handle: u64, value: f64) {
        PluginMetrics::observe(self, handle, value);
    }

    fn breach(&self, kind: Protocol, n: u64) {
        self.host().protocol_errors(kind, n);
    }

    fn transport(&self) -> &Arc<TransportMetrics> {
        &self.host().transport
    }
}
