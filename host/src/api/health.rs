//! Liveness, readiness, metrics. Readiness comes from engines and the host's life, never from load or the last error.

use hyper::Response;
use serde_json::json;

use super::Api;
use crate::http::{Body, respond};
use crate::lifecycle::Stage;

/// The process answers.
pub fn live() -> Response<Body> {
    respond::json(200, &json!({"status": "ok"}))
}

/// Every model is up and the host is not stopping.
pub fn ready(api: &Api) -> Response<Body> {
    let mut why = match api.lifecycle.stage() {
        Stage::Draining => vec!["draining".to_owned()],
        Stage::Starting | Stage::Ready => api.models.not_ready(),
    };
    if why.is_empty() && api.lifecycle.stage() == Stage::Starting {
        why.push("starting".to_owned());
    }
    if why.is_empty() {
        respond::json(200, &json!({"status": "ok"}))
    } else {
        respond::json(503, &json!({"status": "unavailable", "reasons": why}))
    }
}

/// All metrics, engine gauges fresh.
pub fn metrics(api: &Api) -> Response<Body> {
    for model in api.models.serving() {
        model.worker.refresh_metrics();
    }
    api.metrics.models_up(&api.models.states());
    respond::full(200, "text/plain; version=0.0.4; charset=utf-8", api.metrics.expose())
}
