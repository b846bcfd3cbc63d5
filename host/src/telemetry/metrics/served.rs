//! The series of each served model. They are there for as long as somebody holds them: its place in the fleet, or an
//! engine that still works on it. Afterwards nothing of it stays on `/metrics`.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{Histogram, IntCounter};

use super::Metrics;
use crate::telemetry::labels::{FinishReason, Restart};

/// Who is held, by name.
#[derive(Default)]
pub(super) struct Served(Mutex<HashMap<String, Holders>>);

#[derive(Default)]
struct Holders {
    number: usize,
    /// Those it was loaded on, one after the other.
    devices: Vec<String>,
}

/// Keeps the series of a model.
pub struct Held {
    metrics: Arc<Metrics>,
    model: String,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.metrics.release(&self.model);
    }
}

/// The children of one served model; cheap to clone, free of lookups.
#[derive(Clone)]
pub struct ModelMetrics {
    /// Seconds from admission to the first delivered token.
    pub ttft: Histogram,
    /// Seconds between delivered tokens.
    pub inter_token: Histogram,
    duration: Vec<Histogram>,
    /// Tokens delivered.
    pub generated: IntCounter,
    /// Prompt tokens accepted.
    pub prompt: IntCounter,
    /// Generations cancelled.
    pub cancelled: IntCounter,
    /// Generations failed by the engine.
    pub failed: IntCounter,
}

impl ModelMetrics {
    /// Seconds from admission to the end, by its reason.
    pub fn duration(&self, reason: FinishReason) -> &Histogram {
        &self.duration[reason as usize]
    }
}

impl Metrics {
    /// Holds the series of a served model, all at zero from now on if nobody did.
    pub fn hold(self: &Arc<Metrics>, model: &str) -> Held {
        // Under the lock: a last holder who leaves now must not take what is made here.
        let mut served = self.served.0.lock();
        served.entry(model.to_owned()).or_default().number += 1;
        for reason in Restart::ALL {
            self.restarts.with_label_values(&[model, reason.name()]).inc_by(0);
        }
        self.children(model);
        drop(served);
        Held { metrics: Arc::clone(self), model: model.to_owned() }
    }

    fn release(&self, model: &str) {
        let mut served = self.served.0.lock();
        let Some(holders) = served.get_mut(model) else { return };
        holders.number -= 1;
        if holders.number > 0 {
            return;
        }
        let devices = served.remove(model).map(|holders| holders.devices).unwrap_or_default();
        let l = &[model];
        // Absent is what is wanted.
        for histograms in [&self.ttft, &self.inter_token] {
            drop(histograms.remove_label_values(l));
        }
        for reason in FinishReason::ALL {
            drop(self.duration.remove_label_values(&[model, reason.name()]));
        }
        for counters in [&self.tokens_generated, &self.tokens_prompt, &self.cancelled, &self.failed] {
            drop(counters.remove_label_values(l));
        }
        for reason in Restart::ALL {
            drop(self.restarts.remove_label_values(&[model, reason.name()]));
        }
        for device in &devices {
            drop(self.model_load.remove_label_values(&[model, device]));
            drop(self.warmup.remove_label_values(&[model, device]));
        }
    }

    /// The children of a model that is held.
    pub fn model(&self, held: &Held) -> ModelMetrics {
        self.children(&held.model)
    }

    fn children(&self, model: &str) -> ModelMetrics {
        let l = &[model];
        let duration =
            FinishReason::ALL.iter().map(|v| self.duration.with_label_values(&[model, v.name()])).collect();
        ModelMetrics {
            ttft: self.ttft.with_label_values(l),
            inter_token: self.inter_token.with_label_values(l),
            duration,
            generated: self.tokens_generated.with_label_values(l),
            prompt: self.tokens_prompt.with_label_values(l),
            cancelled: self.cancelled.with_label_values(l),
            failed: self.failed.with_label_values(l),
        }
    }

    /// Books that an engine of the model is being replaced, if it is held.
    pub fn restart(&self, model: &str, reason: Restart) {
        if self.served.0.lock().contains_key(model) {
            self.restarts.with_label_values(&[model, reason.name()]).inc();
        }
    }

    /// Books how long a worker of a model that is held took to come up, in seconds.
    pub fn loaded(&self, model: &str, device: &str, load: f64, warmup: f64) {
        let mut served = self.served.0.lock();
        let Some(holders) = served.get_mut(model) else { return };
        if !holders.devices.iter().any(|known| known == device) {
            holders.devices.push(device.to_owned());
        }
        self.model_load.with_label_values(&[model, device]).set(load);
        self.warmup.with_label_values(&[model, device]).set(warmup);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_of_a_model_go_with_its_last_holder() {
        let metrics = Arc::new(Metrics::new());
        let shown = || String::from_utf8(metrics.expose()).expect("text").contains("model=\"m\"");
        let (place, engine) = (metrics.hold("m"), metrics.hold("m"));
        metrics.model(&engine).generated.inc_by(3);
        metrics.loaded("m", "CPU", 1.0, 1.0);
        metrics.loaded("m", "GPU", 1.0, 1.0);
        metrics.restart("m", Restart::Failed);
        drop(engine);
        // An engine that is built anew goes on counting.
        assert_eq!(metrics.model(&metrics.hold("m")).generated.get(), 3);
        drop(place);
        assert!(!shown());
        // What is told too late makes no new series.
        metrics.restart("m", Restart::Failed);
        metrics.loaded("m", "CPU", 1.0, 1.0);
        assert!(!shown());
        assert_eq!(metrics.model(&metrics.hold("m")).generated.get(), 0);
    }
}
