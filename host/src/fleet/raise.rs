//! Builds one model's engine, warms it, and lets it answer a canary before anyone else may ask it. Blocking.

mod fingerprint;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use cascadia_plugin_api::ext::features;
use tokio_util::sync::CancellationToken;

use super::Ground;
use super::job::Job;
use crate::generate::{Assembler, Cause, Consumer, End, Event, Outbox, Request, Sampling};
use crate::models::{Model, unix_now};
use crate::plugins::build::Order;
use crate::plugins::{Built, LoadError, Opened};
use crate::prompt::Text;
use crate::sched::flight::Mode;
use crate::sched::{Flight, Gate, Worker};
use crate::telemetry::labels::LoadStage;

/// How long the canary may take; the engine is warm by then.
const CANARY: Duration = Duration::from_secs(60);

/// Builds `job`'s engine from an opened plugin; `generation` tells its worker from those before it.
pub(super) fn raise(
    ground: &Ground,
    job: &Job,
    plugin: &Opened,
    generation: u32,
    give_up: &AtomicBool,
) -> Result<Model, LoadError> {
    let manifest = &plugin.manifest;
    let device = job.options.get("device").map_or("", String::as_str);
    tracing::info!(
        plugin = manifest.id,
        version = manifest.version,
        file = %plugin.path.display(),
        isolated = plugin.is_apart(),
        model = job.name,
        device,
        generation,
        "building engine"
    );
    let order = Order {
        engine: &job.engine,
        options: &job.options,
        path: job.path.as_deref(),
        model: &job.name,
        give_up,
        stop_before_weights: None,
    };
    let Built { engine, card, proved, load, warmup } = plugin.build(&order)?;
    let fault = |stage: LoadStage, message: String| LoadError::new(&manifest.id, stage, message);
    let text = match (card.tokenizer.as_str(), &job.path) {
        ("bytes", _) => Text::bytes(&card.chat_template)
            .map_err(|e| fault(LoadStage::Build, format!("its model card is not usable: {}", chain(&e))))?,
        ("engine", path) => {
            let Some(words) = engine.words() else {
                let message = "has the tokenizer of this model, which is not reached in a process of its own; \
                               add a tokenizer.json to the folder, or serve it without --isolate";
                return Err(fault(LoadStage::Build, message.to_owned()));
            };
            Text::of_engine(words, card.vocab_size, &card.chat_template, path.as_deref())
                .map_err(|e| fault(LoadStage::Build, chain(&e)))?
        }
        ("", Some(path)) => Text::open(path).map_err(|e| fault(LoadStage::Build, chain(&e)))?,
        ("", None) => {
            let message = format!("{} has no model files to take a tokenizer from; give --model", job.name);
            return Err(fault(LoadStage::Build, message));
        }
        (other, _) => {
            return Err(fault(
                LoadStage::Build,
                format!("its tokenizer {other:?} is not known to this host"),
            ));
        }
    };
    let limits = &ground.config.limits;
    let metrics = Arc::clone(&ground.metrics);
    let gate =
        Gate::new(limits.max_concurrent, limits.queue_places(), limits.queue_timeout.0, Arc::clone(&metrics));
    let id = format!("{}/{}-{generation}", manifest.id, job.engine);
    let worker = Worker::start(id, &job.name, engine, gate, metrics)
        .map_err(|e| fault(LoadStage::Build, format!("its thread did not start: {e}")))?;
    let (load_seconds, warmup_seconds) = (load.as_secs_f64(), warmup.as_secs_f64());
    let fingerprint = fingerprint::of(manifest, job, &card);
    let model = Model {
        name: job.name.clone(),
        created: unix_now(),
        fingerprint,
        worker,
        text: Arc::new(text),
        card,
    };
    // What generates nothing has no token to answer with.
    let answered = if model.card.has(features::NO_GENERATION) { Ok(()) } else { canary(&model) };
    if let Err(message) = answered {
        model.worker.close(Duration::from_secs(5));
        model.worker.forget_metrics();
        return Err(fault(LoadStage::Canary, message));
    }
    ground.metrics.loaded(&job.name, device, load_seconds, warmup_seconds);
    for note in &model.card.notes {
        tracing::info!(model = job.name, "{note}");
    }
    let (tokenizer, pre) = model.text.describe();
    tracing::info!(
        plugin = manifest.id,
        version = manifest.version,
        worker = model.worker.id(),
        model = job.name,
        path = job.path.as_ref().map(|p| p.display().to_string()),
        device,
        fingerprint = model.fingerprint,
        device_name = model.card.device,
        quantization = model.card.quantization,
        tokenizer,
        pre,
        layout_proved = proved,
        load_seconds = milliseconds(load_seconds),
        warmup_seconds = milliseconds(warmup_seconds),
        "model is up"
    );
    Ok(model)
}

/// Seconds as people read them.
fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

struct Nothing;

impl Consumer for Nothing {
    fn write(&mut self, _event: Event<'_>, _out: &mut Outbox) {}
}

/// One token of one request, which moves no request metric: nobody owns it as a `Generation`.
fn canary(model: &Model) -> Result<(), String> {
    let tokens = model.text.encode("Hello", true).map_err(|e| e.to_string())?;
    let assembler = Assembler::new(model.detokenizer(true), Vec::new(), 0);
    let worker = &model.worker;
    let mode = Mode::Collect { limit: 1 << 20 };
    let flight =
        Arc::new(Flight::new(worker.task_id(), mode, assembler, Box::new(Nothing), CancellationToken::new()));
    let request = Request {
        id: "canary".to_owned(),
        model: model.name.clone(),
        tokens,
        max_tokens: 1,
        min_tokens: 0,
        ignore_eos: false,
        stop_tokens: model.text.eos_ids().to_vec(),
        stops: Vec::new(),
        sampling: Sampling { temperature: 0.0, ..Sampling::default() },
        ..Request::default()
    };
    let permit = worker.gate().at_once().ok_or("the fresh worker has no slot")?;
    worker.submit(Arc::clone(&flight), request, permit);
    let waiter =
        tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let ended =
        waiter.block_on(async { tokio::time::timeout(CANARY, poll_fn(|cx| flight.poll_end(cx))).await });
    if ended.is_err() {
        flight.end(End::Cancelled(Cause::CancelRoute));
        worker.cancel(flight.task);
        return Err(format!("it did not answer one token within {:?}", begun.elapsed()));
    }
    match flight.outcome().end {
        Some(End::Stop | End::Length) => Ok(()),
        Some(End::Error(failure)) => Err(format!("its first answer failed: {}", failure.message)),
        Some(End::Rejected(error)) => Err(format!("it refused its first request: {}", error.message)),
        other => Err(format!("its first answer ended as {other:?}")),
    }
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
