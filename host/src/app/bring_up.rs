//! Opens the chosen plugins and builds their engines, one after the other. Blocking.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Failed;
use super::choose::{Chosen, Job};
use crate::api::Api;
use crate::models::{Model, unix_now};
use crate::plugins::build::{self, Order};
use crate::plugins::load::{self, Library};
use crate::plugins::{Built, LoadError};
use crate::prompt::Text;
use crate::sched::{Gate, Worker};
use crate::telemetry::labels::LoadStage;

/// Brings all models up. An error when none came up; models that failed beside others are kept as failed.
pub(super) fn all(api: &Api, chosen: Chosen, give_up: &AtomicBool) -> Result<(), Failed> {
    let Chosen { plugins, jobs } = chosen;
    let mut plugins: HashMap<usize, _> = plugins.into_iter().enumerate().collect();
    let mut open: HashMap<usize, Arc<Library>> = HashMap::new();
    for job in &jobs {
        api.models.loading(&job.name);
    }
    let mut last = None;
    for job in &jobs {
        if give_up.load(Ordering::Relaxed) {
            return Ok(());
        }
        let library = match (open.get(&job.plugin), plugins.remove(&job.plugin)) {
            (Some(library), _) => Ok(Arc::clone(library)),
            (None, Some(candidate)) => load::open(candidate).map(Arc::new),
            // It was tried for a model before and failed.
            (None, None) => Err(LoadError::new(&job.engine, LoadStage::Open, "its plugin did not open")),
        };
        let model = library.and_then(|library| {
            open.insert(job.plugin, Arc::clone(&library));
            one(api, job, &library, give_up)
        });
        match model {
            Ok(model) => api.models.up(Arc::new(model)),
            Err(error) => {
                api.metrics.load_error(error.stage);
                tracing::error!(model = job.name, stage = error.stage.name(), "{error}");
                api.models.failed(&job.name, error.to_string());
                last = Some(error);
            }
        }
    }
    match last {
        Some(error) if api.models.serving().is_empty() => Err(Failed::run(error.to_string())),
        _ => Ok(()),
    }
}

fn one(api: &Api, job: &Job, library: &Arc<Library>, give_up: &AtomicBool) -> Result<Model, LoadError> {
    let manifest = &library.manifest;
    let device = job.options.get("device").map_or("", String::as_str);
    tracing::info!(
        plugin = manifest.id,
        version = manifest.version,
        file = %library.path.display(),
        layout_proved = library.proved,
        model = job.name,
        device,
        "building engine"
    );
    let order = Order {
        engine: &job.engine,
        options: &job.options,
        path: job.path.as_deref(),
        model: &job.name,
        give_up,
    };
    let Built { handle, card, load, warmup } = build::build(library, &order)?;
    let fault = |message: String| LoadError::new(&manifest.id, LoadStage::Build, message);
    let text = match (card.tokenizer.as_str(), &job.path) {
        ("bytes", _) => Text::bytes(&card.chat_template).map_err(|e| fault(chain(&e)))?,
        ("", Some(path)) => Text::open(path).map_err(|e| fault(chain(&e)))?,
        ("", None) => {
            return Err(fault(format!(
                "{} has no model files to take a tokenizer from; give --model",
                job.name
            )));
        }
        (other, _) => return Err(fault(format!("its tokenizer {other:?} is not known to this host"))),
    };
    let limits = &api.config.limits;
    let gate = Gate::new(
        limits.max_concurrent,
        limits.queue_places(),
        limits.queue_timeout.0,
        Arc::clone(&api.metrics),
    );
    let id = format!("{}/{}-0", manifest.id, job.engine);
    let worker = Worker::start(id, &job.name, handle, gate, Arc::clone(&api.metrics))
        .map_err(|e| fault(format!("its thread did not start: {e}")))?;
    let (load_seconds, warmup_seconds) = (load.as_secs_f64(), warmup.as_secs_f64());
    api.metrics.loaded(&job.name, device, load_seconds, warmup_seconds);
    for note in &card.notes {
        tracing::info!(model = job.name, "{note}");
    }
    let (tokenizer, pre) = text.describe();
    tracing::info!(
        plugin = manifest.id,
        version = manifest.version,
        worker = worker.id(),
        model = job.name,
        path = job.path.as_ref().map(|p| p.display().to_string()),
        device,
        device_name = card.device,
        quantization = card.quantization,
        tokenizer,
        pre,
        load_seconds,
        warmup_seconds,
        "model is up"
    );
    let fingerprint = format!("fp_{}_{}", manifest.id, manifest.version);
    Ok(Model { name: job.name.clone(), created: unix_now(), fingerprint, worker, text: Arc::new(text), card })
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    text
}
