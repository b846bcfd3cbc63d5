//! One engine instance: its thread, its tasks, its gate.
//!
//! What must hold: only the worker's thread submits and steps. A task's permit is released when the engine can no longer
//! work on it: after its finish, a refused submit, or the end of the worker. A chunk for a task that is not there is
//! counted and dropped.

mod at_work;
mod gathering;
mod reception;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use at_work::{AtWork, ByTask};
use gathering::{Gathering, Pace};
use reception::Reception;

use super::admit::{Gate, Permit};
use super::flight::Flight;
use super::flood::Flood;
use super::moment::Moment;
use crate::error::{ApiError, Code};
use crate::generate::{End, Failure, Kind, Request};
use crate::plugins::{Engine, Link, Load, Next, Taken, breach};
use crate::telemetry::labels::Protocol;
use crate::telemetry::metrics::{Held, Metrics, ModelMetrics, WorkerMetrics};

/// How long an engine that outruns the sockets rests after a step. A client that stops reading ends this soon.
const PAUSE: Duration = Duration::from_millis(1);
/// An idle engine is asked again after this long, woken or not.
const IDLE_WAIT: Duration = Duration::from_secs(5);

/// One engine instance.
pub struct Worker {
    id: String,
    served: String,
    engine: Box<dyn Engine>,
    gate: Gate,
    metrics: Arc<Metrics>,
    model: ModelMetrics,
    own: WorkerMetrics,
    /// Keeps the series of its model.
    held: Mutex<Option<Held>>,
    next_task: AtomicU64,
    /// Pieces taken from the engine.
    pieces: AtomicU64,
    flood: Arc<Flood>,
    inner: Mutex<Inner>,
    /// The mailbox may hold something: it is looked into before each step.
    mail: AtomicBool,
    /// The engine should return at once and the thread end.
    closing: AtomicBool,
    ended: Condvar,
}

#[derive(Default)]
struct Inner {
    mailbox: Vec<Submit>,
    tasks: ByTask<Running>,
    /// As the engine's thread last knew it.
    pace: Pace,
    /// Why the worker takes nothing any more.
    down: Option<String>,
    thread_ended: bool,
}

struct Submit {
    flight: Arc<Flight>,
    request: Request,
    permit: Permit,
}

struct Running {
    flight: Arc<Flight>,
    /// The engine was given it, or is about to be.
    submitted: bool,
    _permit: Permit,
}

/// Wakes an engine when it is dropped.
struct WakeLater(&'static Link);

impl Drop for WakeLater {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl Worker {
    /// A worker named `id` for `model`, with its thread started.
    pub fn start(
        id: String,
        model: &str,
        engine: Box<dyn Engine>,
        gate: Gate,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<Arc<Worker>> {
        let (own, served) = (metrics.worker(model, &id), model.to_owned());
        let held = metrics.hold(model);
        let model = metrics.model(&held);
        let worker = Arc::new(Worker {
            served,
            engine,
            gate,
            model,
            own,
            held: Mutex::new(Some(held)),
            metrics,
            next_task: AtomicU64::new(1),
            pieces: AtomicU64::new(0),
            flood: Arc::default(),
            inner: Mutex::default(),
            mail: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            ended: Condvar::new(),
            id,
        });
        worker.own.up.set(1.0);
        let driven = Arc::clone(&worker);
        std::thread::Builder::new().name(format!("engine {}", worker.id)).spawn(move || driven.live())?;
        Ok(worker)
    }

    /// The worker's name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name under which its model is served. Two models of one plugin may have workers of one name.
    pub fn served(&self) -> &str {
        &self.served
    }

    /// Its slots and queue.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// All metrics.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// The metrics of the model it serves.
    pub fn model_metrics(&self) -> &ModelMetrics {
        &self.model
    }

    /// An id for a new task.
    pub fn task_id(&self) -> u64 {
        self.next_task.fetch_add(1, Ordering::Relaxed)
    }

    /// Why it takes nothing any more, if so.
    pub fn down(&self) -> Option<String> {
        self.inner.lock().down.clone()
    }

    /// Whether its engine outruns the wire.
    pub fn flood(&self) -> Arc<Flood> {
        Arc::clone(&self.flood)
    }

    /// The engine's own report.
    pub fn load(&self) -> Load {
        self.engine.load()
    }

    /// Counts the steps that were made, and sets the worker's gauges from the engine's report; called before each scrape.
    pub fn refresh_metrics(&self) {
        self.count_steps();
        let load = self.load();
        self.own.running.set(load.running.into());
        self.own.waiting.set(load.waiting.into());
        self.own.kv_total.set(load.kv_blocks_total as f64);
        let usage = if load.kv_blocks_total == 0 {
            0.0
        } else {
            load.kv_blocks_used as f64 / load.kv_blocks_total as f64
        };
        self.own.kv_usage.set(usage);
        self.own.tokens_cached.set(load.tokens_cached as f64);
    }

    /// Counts the steps that were made and are not counted. Not with each of them: that is a locked instruction or two.
    pub fn count_steps(&self) {
        self.own.steps.inc_by(self.engine.link().take_steps());
    }

    /// Whether it has tasks.
    pub fn is_busy(&self) -> bool {
        let inner = self.inner.lock();
        !inner.tasks.is_empty() || !inner.mailbox.is_empty()
    }

    /// A number that grows while the engine does something: pieces and heartbeats.
    pub fn progress(&self) -> u64 {
        self.pieces.load(Ordering::Relaxed).wrapping_add(self.engine.link().heartbeats())
    }

    /// Gives the engine up: its tasks fail, and its thread ends when the engine lets it.
    pub fn give_up_on(&self, reason: &str) {
        self.closing.store(true, Ordering::Release);
        self.fail_all(reason, &|| End::Error(Failure::fault("stalled", reason)));
        self.engine.link().wake();
    }

    /// Ends its series on `/metrics`, and those of its model if it was the last of it; called once it is closed.
    pub fn forget_metrics(&self) {
        self.metrics.forget_worker(&self.served, &self.id);
        drop(self.held.lock().take());
    }

    /// Hands a generation to the engine's thread. What comes of it comes through the flight.
    pub fn submit(&self, flight: Arc<Flight>, request: Request, permit: Permit) {
        self.post(flight, request, permit);
        self.engine.link().wake();
    }

    /// As [`Worker::submit`], together with what other clients hand over at this moment: an engine that rests begins with
    /// all of them. What it costs when there are none says [`gathering`].
    pub async fn submit_together(&self, flight: Arc<Flight>, request: Request, permit: Permit) {
        let first = self.post(flight, request, permit);
        if first {
            // Who waits here may be dropped, and the others wait for this wake.
            let _wake = WakeLater(self.engine.link());
            self.gather().await;
        }
    }

    /// Puts a generation into the mailbox; true when the caller must wake the engine, at once or a moment later.
    fn post(&self, flight: Arc<Flight>, request: Request, permit: Permit) -> bool {
        let mut inner = self.inner.lock();
        match &inner.down {
            Some(reason) => {
                let error = unavailable(&self.id, reason);
                drop(inner);
                flight.end(End::Rejected(error));
                false
            }
            None => {
                inner.mailbox.push(Submit { flight, request, permit });
                self.mail.store(true, Ordering::Release);
                inner.mailbox.len() == 1
            }
        }
    }

    /// Waits while generations come with the turns of the runtime, and the engine has nothing else to do.
    async fn gather(&self) {
        let mut gathering = Gathering::new(Instant::now(), self.inner.lock().pace);
        loop {
            tokio::task::yield_now().await;
            let waiting = {
                let inner = self.inner.lock();
                if !inner.tasks.is_empty() { 0 } else { inner.mailbox.len() }
            };
            if waiting == 0 || !gathering.goes_on(waiting, Instant::now()) {
                return;
            }
        }
    }

    /// Asks the engine to end a task.
    pub fn cancel(&self, task: u64) {
        self.engine.cancel(task);
    }

    /// Ends everything on this worker; it takes nothing from now on.
    fn fail_all(&self, reason: &str, end: &dyn Fn() -> End) {
        self.own.up.set(0.0);
        self.count_steps();
        self.gate.close();
        let (mailbox, tasks) = {
            let mut inner = self.inner.lock();
            inner.down.get_or_insert_with(|| reason.to_owned());
            (std::mem::take(&mut inner.mailbox), std::mem::take(&mut inner.tasks))
        };
        for submit in mailbox {
            submit.flight.end(End::Rejected(unavailable(&self.id, reason)));
        }
        for (task, running) in tasks {
            let rejected = || End::Rejected(unavailable(&self.id, reason));
            running.flight.end(if running.submitted { end() } else { rejected() });
            self.engine.link().forget(task);
        }
    }

    /// Ends the worker within the deadline: running tasks book `teardown`. False when its engine did not return.
    pub fn close(&self, deadline: Duration) -> bool {
        self.closing.store(true, Ordering::Release);
        self.fail_all("shutting down", &|| End::Teardown);
        self.engine.link().wake();
        let until = Instant::now() + deadline;
        let mut inner = self.inner.lock();
        while !inner.thread_ended {
            if self.ended.wait_until(&mut inner, until).timed_out() {
                return inner.thread_ended;
            }
        }
        true
    }

    /// The engine's thread from beginning to end.
    fn live(&self) {
        if catch_unwind(AssertUnwindSafe(|| self.drive())).is_err() {
            // A fault of the host's own. Nobody would drive the engine any more, so nobody may wait for it.
            let reason = "the host failed in the thread of this engine";
            tracing::error!(model = self.served, worker = self.id, "{reason}");
            self.fail_all(reason, &|| End::Error(Failure::fault("internal", reason)));
        }
        self.inner.lock().thread_ended = true;
        self.ended.notify_all();
    }

    fn drive(&self) {
        let link = self.engine.link();
        let mut at_work = AtWork::default();
        while !self.closing.load(Ordering::Acquire) {
            let seen = link.epoch();
            if let Some(reason) = link.fault() {
                self.broken(&Failure::fault("backend", &reason));
                break;
            }
            self.admit(&mut at_work);
            let mut receiver =
                Reception { worker: self, ahead: false, now: None, pieces: 0, at_work: &mut at_work };
            let stepped = self.engine.step(&mut receiver);
            let ahead = receiver.ahead;
            drop(receiver);
            match stepped {
                Err(failure) => {
                    self.broken(&failure);
                    break;
                }
                Ok(next) => {
                    at_work.cancels.drain(..).for_each(|task| self.engine.cancel(task));
                    if ahead {
                        std::thread::sleep(PAUSE);
                    }
                    match next {
                        Next::More => {}
                        Next::Idle => link.wait(seen, Instant::now() + IDLE_WAIT),
                        Next::Until(at) => link.wait(seen, at.min(Instant::now() + IDLE_WAIT)),
                    }
                }
            }
        }
        // What the engine holds is freed by the thread that drove it; a library that hangs here hangs alone.
        if let Err(failure) = self.engine.close(Duration::from_secs(5)) {
            tracing::warn!(
                model = self.served,
                worker = self.id,
                error = failure.message,
                "engine did not close cleanly"
            );
        }
        link.end_spans();
        self.count_steps();
    }

    /// Takes what other threads have put into the mailbox.
    fn admit(&self, at_work: &mut AtWork) {
        if !self.mail.load(Ordering::Acquire) {
            return;
        }
        let mail: Vec<(Arc<Flight>, Request)> = {
            let mut inner = self.inner.lock();
            self.mail.store(false, Ordering::Relaxed);
            let Inner { mailbox, tasks, .. } = &mut *inner;
            if tasks.is_empty() && !mailbox.is_empty() {
                at_work.pace.begins();
            }
            // They leave the mailbox for the tasks under one lock: who ends everything finds them in one of both.
            let running = mailbox.drain(..).map(|Submit { flight, request, permit }| {
                let running = Running { flight: Arc::clone(&flight), submitted: false, _permit: permit };
                tasks.insert(flight.task, running);
                (flight, request)
            });
            running.collect()
        };
        for (flight, request) in mail {
            let task = flight.task;
            if !self.claim(&flight) {
                continue;
            }
            self.engine.link().lend(task);
            // Known before the engine has it: it may push before submit has returned.
            at_work.flights.insert(task, Arc::clone(&flight));
            match self.engine.submit(task, &request) {
                Ok(Taken::Now) => self.accepted(task, &flight),
                Ok(Taken::Later) => {}
                Err(failure) => self.refused(task, &failure, at_work),
            }
        }
    }

    /// Whether a task of the mailbox is to be submitted. Not where its client has gone while it waited, or everything was ended: then
    /// the engine never hears of it.
    fn claim(&self, flight: &Flight) -> bool {
        let gone = flight.is_over();
        let mut inner = self.inner.lock();
        let Some(running) = inner.tasks.get_mut(&flight.task) else { return false };
        running.submitted = !gone;
        let left = gone.then(|| inner.tasks.remove(&flight.task));
        drop(inner);
        left.is_none()
    }

    /// The engine has the task; the client may have gone meanwhile.
    fn accepted(&self, task: u64, flight: &Flight) {
        flight.accepted();
        if flight.is_over() {
            self.engine.cancel(task);
        }
    }

    fn refused(&self, task: u64, failure: &Failure, at_work: &mut AtWork) {
        at_work.flights.remove(&task);
        let running = self.inner.lock().tasks.remove(&task);
        self.engine.link().forget(task);
        if let Some(running) = running {
            running.flight.end(End::Rejected(refused(&self.id, failure)));
        }
    }

    /// The first piece of a push has come.
    fn pushes(&self, pace: &mut Pace) -> Moment {
        let now = Moment::now();
        if pace.piece(now.on_clock()) {
            self.inner.lock().pace = *pace;
        }
        now
    }

    /// The engine has finished with a task.
    fn finished(&self, task: u64) {
        self.engine.link().forget(task);
        self.inner.lock().tasks.remove(&task);
    }

    fn breach(&self, kind: Protocol) {
        self.metrics.protocol_error(kind);
        breach::say(self.engine.link(), kind);
    }

    fn broken(&self, failure: &Failure) {
        let (model, worker) = (&self.served, &self.id);
        tracing::error!(model, worker, code = failure.code, error = failure.message, "engine failed");
        // Whatever the engine says of it: it is no fault of the requests that end with it.
        let fault = Failure { kind: Kind::Fault, ..failure.clone() };
        self.fail_all(&failure.message, &|| End::Error(fault.clone()));
    }
}

fn unavailable(worker: &str, reason: &str) -> ApiError {
    ApiError::new(Code::EngineUnavailable, format!("worker {worker} is down: {reason}"))
}

/// What a client is told when the engine did not take its task.
fn refused(worker: &str, failure: &Failure) -> ApiError {
    let code = match failure.kind {
        Kind::QueueFull => Code::Capacity,
        Kind::PromptTooLong => Code::ContextLengthExceeded,
        Kind::Refused => Code::EngineRefused,
        Kind::NotFound => Code::ModelNotFound,
        Kind::Unavailable => Code::EngineUnavailable,
        Kind::Fault => Code::EngineError,
    };
    ApiError::new(code, format!("worker {worker}: {}", failure.message))
}
