//! The values behind the names: one registry, handles made once, label children cached where tokens flow.

mod served;

use std::sync::Arc;

use prometheus::core::Collector;
use prometheus::{
    CounterVec, Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, Opts, Registry, TextEncoder,
};

use super::labels::{ConnectionEnd, FrameKind, LinkError, LoadStage, Protocol, Reason};
use super::names::{self, Family};
use super::transport::TransportMetrics;
use served::Served;
pub use served::{Held, ModelMetrics};

/// All metrics of one host.
pub struct Metrics {
    registry: Registry,
    http_requests: IntCounterVec,
    http_duration: HistogramVec,
    rejected: Vec<IntCounter>,
    protocol: Vec<IntCounter>,
    load_errors: Vec<IntCounter>,
    ttft: HistogramVec,
    inter_token: HistogramVec,
    duration: HistogramVec,
    tokens_generated: IntCounterVec,
    tokens_prompt: IntCounterVec,
    cancelled: IntCounterVec,
    failed: IntCounterVec,
    model_load: GaugeVec,
    warmup: GaugeVec,
    running: GaugeVec,
    waiting: GaugeVec,
    kv_total: GaugeVec,
    kv_usage: GaugeVec,
    tokens_cached: GaugeVec,
    worker_up: GaugeVec,
    steps: IntCounterVec,
    restarts: IntCounterVec,
    generations: GaugeVec,
    model_up: GaugeVec,
    served: Served,
    /// Admitted generations whose response has not ended.
    pub inflight: IntGauge,
    /// Requests that wait for a slot.
    pub queue_depth: IntGauge,
    /// Waits for a slot, in seconds.
    pub queue_wait: Histogram,
    bodies: IntGauge,
    /// Bytes of streams that wait for their clients.
    pub unread: IntGauge,
    /// Fields of requests that nobody knows.
    pub unknown_fields: IntCounter,
    /// Streams ended because the client did not read.
    pub slow_clients: IntCounter,
    /// Connections of clients that were accepted.
    pub connections: IntCounter,
    connections_ended: Vec<IntCounter>,
    /// Links between stages.
    pub transport: Arc<TransportMetrics>,
}

/// The children of one worker.
#[derive(Clone)]
pub struct WorkerMetrics {
    /// Tasks in generation.
    pub running: Gauge,
    /// Tasks not begun.
    pub waiting: Gauge,
    /// Blocks there are.
    pub kv_total: Gauge,
    /// Part of the blocks in use.
    pub kv_usage: Gauge,
    /// Tokens held by the prefix cache.
    pub tokens_cached: Gauge,
    /// 1 while it takes requests.
    pub up: Gauge,
    /// Steps made.
    pub steps: IntCounter,
}

impl Metrics {
    /// All families, the closed label sets at zero.
    pub fn new() -> Metrics {
        let registry = Registry::new();
        let r = &registry;
        let rejected = counters(r, &names::REJECTED);
        let protocol = counters(r, &names::PLUGIN_PROTOCOL);
        let load_errors = counters(r, &names::PLUGIN_LOAD_ERRORS);
        let ended = counters(r, &names::CONNECTIONS_ENDED);
        let sent = counters(r, &names::TRANSPORT_SENT);
        let received = counters(r, &names::TRANSPORT_RECV);
        let errors = counters(r, &names::LINK_ERRORS);
        let transport = Arc::new(TransportMetrics {
            sent: FrameKind::ALL.iter().map(|v| sent.with_label_values(&[v.name()])).collect(),
            received: FrameKind::ALL.iter().map(|v| received.with_label_values(&[v.name()])).collect(),
            send_seconds: histogram(r, &names::TRANSPORT_SEND_SECONDS),
            recv_seconds: histogram(r, &names::TRANSPORT_RECV_SECONDS),
            errors: LinkError::ALL.iter().map(|v| errors.with_label_values(&[v.name()])).collect(),
            up: gauges(r, &names::LINK_UP),
            frames: counters(r, &names::LINK_FRAMES),
            bytes: counters(r, &names::LINK_BYTES),
            unfinished: gauges(r, &names::LINK_UNFINISHED),
            last_frame: gauges(r, &names::LINK_LAST_FRAME),
            blocked: seconds(r, &names::LINK_BLOCKED),
            known: Default::default(),
            samples: Default::default(),
        });
        gauges(r, &names::BUILD_INFO).with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1.0);
        Metrics {
            http_requests: counters(r, &names::HTTP_REQUESTS),
            http_duration: histograms(r, &names::HTTP_DURATION),
            rejected: Reason::ALL.iter().map(|v| rejected.with_label_values(&[v.name()])).collect(),
            protocol: Protocol::ALL.iter().map(|v| protocol.with_label_values(&[v.name()])).collect(),
            load_errors: LoadStage::ALL.iter().map(|v| load_errors.with_label_values(&[v.name()])).collect(),
            ttft: histograms(r, &names::TTFT),
            inter_token: histograms(r, &names::INTER_TOKEN),
            duration: histograms(r, &names::DURATION),
            tokens_generated: counters(r, &names::TOKENS_GENERATED),
            tokens_prompt: counters(r, &names::TOKENS_PROMPT),
            cancelled: counters(r, &names::TASKS_CANCELLED),
            failed: counters(r, &names::TASKS_FAILED),
            model_load: gauges(r, &names::MODEL_LOAD),
            warmup: gauges(r, &names::WARMUP),
            running: gauges(r, &names::ENGINE_RUNNING),
            waiting: gauges(r, &names::ENGINE_WAITING),
            kv_total: gauges(r, &names::ENGINE_KV_TOTAL),
            kv_usage: gauges(r, &names::ENGINE_KV_USAGE),
            tokens_cached: gauges(r, &names::ENGINE_TOKENS_CACHED),
            worker_up: gauges(r, &names::WORKER_UP),
            steps: counters(r, &names::ENGINE_STEPS),
            restarts: counters(r, &names::WORKER_RESTARTS),
            generations: gauges(r, &names::PLUGIN_GENERATIONS),
            model_up: gauges(r, &names::MODEL_UP),
            served: Served::default(),
            inflight: int_gauge(r, &names::INFLIGHT),
            queue_depth: int_gauge(r, &names::QUEUE_DEPTH),
            queue_wait: histogram(r, &names::QUEUE_WAIT),
            bodies: int_gauge(r, &names::BODY_BYTES),
            unread: int_gauge(r, &names::UNREAD),
            unknown_fields: counter(r, &names::UNKNOWN_FIELDS),
            slow_clients: counter(r, &names::SLOW_CLIENTS),
            connections: counter(r, &names::CONNECTIONS),
            connections_ended: ConnectionEnd::ALL
                .iter()
                .map(|v| ended.with_label_values(&[v.name()]))
                .collect(),
            transport,
            registry,
        }
    }

    /// Books one HTTP request. `endpoint` is a route template.
    pub fn http(&self, endpoint: &str, status: u16, seconds: f64) {
        self.http_requests.with_label_values(&[endpoint, status_text(status).as_ref()]).inc();
        self.http_duration.with_label_values(&[endpoint]).observe(seconds);
    }

    /// Books one rejection.
    pub fn reject(&self, reason: Reason) {
        self.rejected[reason as usize].inc();
    }

    /// Books the end of a connection.
    pub fn connection_ended(&self, end: ConnectionEnd) {
        self.connections_ended[end as usize].inc();
    }

    /// Books so many more bytes of bodies, or fewer.
    pub fn body_bytes(&self, more: i64) {
        self.bodies.add(more);
    }

    /// Books one broken rule of the plugin boundary.
    pub fn protocol_error(&self, kind: Protocol) {
        self.protocol_errors(kind, 1);
    }

    /// Books so many.
    pub fn protocol_errors(&self, kind: Protocol, n: u64) {
        self.protocol[kind as usize].inc_by(n);
    }

    /// Books one plugin that could not be brought up.
    pub fn load_error(&self, stage: LoadStage) {
        self.load_errors[stage as usize].inc();
    }

    /// Which models there are, and whether each answers.
    pub fn models_up(&self, models: &[(String, bool)]) {
        self.model_up.reset();
        for (model, up) in models {
            self.model_up.with_label_values(&[model]).set(f64::from(u8::from(*up)));
        }
    }

    /// How many copies of a plugin are open in this process.
    pub fn plugin_generations(&self, plugin: &str, copies: u32) {
        self.generations.with_label_values(&[plugin]).set(copies.into());
    }

    /// The children of a worker, all at zero from now on.
    pub fn worker(&self, model: &str, worker: &str) -> WorkerMetrics {
        let l = &[model, worker];
        WorkerMetrics {
            running: self.running.with_label_values(l),
            waiting: self.waiting.with_label_values(l),
            kv_total: self.kv_total.with_label_values(l),
            kv_usage: self.kv_usage.with_label_values(l),
            tokens_cached: self.tokens_cached.with_label_values(l),
            up: self.worker_up.with_label_values(l),
            steps: self.steps.with_label_values(l),
        }
    }

    /// Ends the series of a worker that is gone.
    pub fn forget_worker(&self, model: &str, worker: &str) {
        let l = &[model, worker];
        for gauges in [
            &self.running,
            &self.waiting,
            &self.kv_total,
            &self.kv_usage,
            &self.tokens_cached,
            &self.worker_up,
        ] {
            // Absent is what is wanted.
            drop(gauges.remove_label_values(l));
        }
        drop(self.steps.remove_label_values(l));
    }

    /// The registry, for series that plugins add.
    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// All series in the Prometheus text format 0.0.4.
    pub fn expose(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 * 1024);
        // Only a write error of the vector could fail it.
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut out) {
            tracing::error!(%error, "metrics not encoded");
        }
        out
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

fn status_text(status: u16) -> std::borrow::Cow<'static, str> {
    match status {
        200 => "200".into(),
        other => other.to_string().into(),
    }
}

fn keep<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> C {
    registry.register(Box::new(collector.clone())).expect("PANIC: names are unique, a test walks them");
    collector
}

fn opts(f: &Family) -> Opts {
    Opts::new(f.name, f.help)
}

fn counter(registry: &Registry, f: &Family) -> IntCounter {
    keep(registry, IntCounter::new(f.name, f.help).expect("PANIC: the name is valid"))
}

fn counters(registry: &Registry, f: &Family) -> IntCounterVec {
    keep(registry, IntCounterVec::new(opts(f), f.labels).expect("PANIC: the name is valid"))
}

fn seconds(registry: &Registry, f: &Family) -> CounterVec {
    keep(registry, CounterVec::new(opts(f), f.labels).expect("PANIC: the name is valid"))
}

fn gauges(registry: &Registry, f: &Family) -> GaugeVec {
    keep(registry, GaugeVec::new(opts(f), f.labels).expect("PANIC: the name is valid"))
}

fn int_gauge(registry: &Registry, f: &Family) -> IntGauge {
    keep(registry, IntGauge::new(f.name, f.help).expect("PANIC: the name is valid"))
}

fn histograms(registry: &Registry, f: &Family) -> HistogramVec {
    let opts = HistogramOpts::new(f.name, f.help).buckets(f.buckets.to_vec());
    keep(registry, HistogramVec::new(opts, f.labels).expect("PANIC: the name is valid"))
}

fn histogram(registry: &Registry, f: &Family) -> Histogram {
    let opts = HistogramOpts::new(f.name, f.help).buckets(f.buckets.to_vec());
    keep(registry, Histogram::with_opts(opts).expect("PANIC: the name is valid"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::labels::{FinishReason, Side};
    use crate::telemetry::names::Type;

    #[test]
    fn every_family_of_the_table_is_exposed_with_its_type() {
        let metrics = Arc::new(Metrics::new());
        let _held = metrics.hold("m");
        metrics.worker("m", "w");
        let _peer = metrics.transport.peer("p", Side::Opened, "a");
        metrics.http("/livez", 200, 0.1);
        metrics.loaded("m", "CPU", 1.0, 1.0);
        metrics.plugin_generations("p", 1);
        metrics.models_up(&[("m".to_owned(), true)]);
        let text = String::from_utf8(metrics.expose()).expect("text");
        for family in names::ALL {
            let ty = match family.ty {
                Type::Counter => "counter",
                Type::Gauge => "gauge",
                Type::Histogram => "histogram",
            };
            assert!(
                text.contains(&format!("# TYPE {} {ty}\n", family.name)),
                "{} is not a {ty}",
                family.name
            );
        }
    }

    #[test]
    fn closed_label_sets_stand_at_zero_from_the_start() {
        let metrics = Arc::new(Metrics::new());
        let _held = metrics.hold("m");
        let text = String::from_utf8(metrics.expose()).expect("text");
        for reason in Reason::ALL {
            assert!(text.contains(&format!("cascadia_api_rejected_total{{reason=\"{}\"}} 0", reason.name())));
        }
        for reason in FinishReason::ALL {
            let series = format!(
                "cascadia_generation_duration_seconds_count{{finish_reason=\"{}\",model=\"m\"}} 0",
                reason.name()
            );
            assert!(text.contains(&series), "{series}");
        }
    }
}
