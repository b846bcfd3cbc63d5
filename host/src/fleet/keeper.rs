//! The fleet's one thread: takes messages, looks at engines and folders now and then, and decides.
//!
//! `folders` has what comes from plugin folders, `wishes` what is asked for through the desk.

mod folders;
mod wishes;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Ground;
use super::catalog::Catalog;
use super::choose::Chosen;
use super::job::{Job, Source};
use super::message::{Message, Outcome};
use super::raise::raise;
use super::shelf::Plugin;
use super::slot::{PAUSE, Phase, Slot};
use crate::config::schema;
use crate::models::{Awaited, Model};
use crate::plugins::heap;
use crate::telemetry::labels::Restart;

/// How often engines are looked at.
const TICK: Duration = Duration::from_millis(250);

/// An engine that serves no new request and drains.
struct Retired {
    model: Arc<Model>,
    source: Source,
    until: Instant,
    /// Told when it is closed.
    closed: Option<oneshot::Sender<()>>,
}

/// Everything the thread owns.
pub(super) struct Keeper {
    ground: Ground,
    plugins: HashMap<String, Plugin>,
    /// Copies in memory of plugins that were removed: they stay, and count when the plugin comes back.
    left_behind: HashMap<String, u32>,
    slots: Vec<Slot>,
    /// Slots that there were.
    numbers: u64,
    /// Engines that were built for each name whose slot is gone: a worker's id is never used again.
    built_before: HashMap<String, u32>,
    /// Those of the start: what is asked for later does not hold it up.
    first: u64,
    waiting: Vec<(schema::Model, Source)>,
    retired: Vec<Retired>,
    catalog: Catalog,
    /// A folder changed since the last look.
    dirty: bool,
    looked: Instant,
    inbox: SyncSender<Message>,
    settled: Option<oneshot::Sender<Result<(), String>>>,
    last_error: Option<String>,
}

impl Keeper {
    pub(super) fn new(
        ground: Ground,
        chosen: Chosen,
        inbox: SyncSender<Message>,
        settled: oneshot::Sender<Result<(), String>>,
    ) -> Keeper {
        let now = Instant::now();
        let mut known: Vec<PathBuf> = chosen.plugins.iter().map(|p| p.path.clone()).collect();
        // The catalog knows files by their full paths.
        known.extend(chosen.seen.iter().filter_map(|path| path.canonicalize().ok()));
        let catalog = Catalog::new(ground.config.plugins.dirs.clone(), &known, now);
        let mut keeper = Keeper {
            left_behind: HashMap::new(),
            plugins: chosen.plugins.into_iter().map(|c| (c.manifest.id.clone(), Plugin::new(c))).collect(),
            slots: Vec::new(),
            numbers: 0,
            built_before: HashMap::new(),
            first: 0,
            waiting: chosen.waiting,
            retired: Vec::new(),
            catalog,
            dirty: true,
            looked: now,
            inbox,
            settled: Some(settled),
            last_error: None,
            ground,
        };
        for (job, source) in chosen.jobs {
            keeper.place(job, source, now);
        }
        keeper.first = keeper.numbers;
        keeper
    }

    /// A new slot, at the end; answers where that is.
    fn place(&mut self, job: Job, source: Source, now: Instant) -> usize {
        self.numbers += 1;
        let mut slot = Slot::new(self.numbers, job, source, now);
        slot.held = Some(self.ground.metrics.hold(&slot.job.name));
        slot.generation = self.built_before.get(&slot.job.name).copied().unwrap_or(0);
        self.slots.push(slot);
        self.slots.len() - 1
    }

    pub(super) fn run(&mut self, messages: &Receiver<Message>) {
        for at in 0..self.slots.len() {
            self.build(at);
        }
        loop {
            self.settle();
            self.tell_who_waits();
            match messages.recv_timeout(TICK) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    self.slots.iter().for_each(Slot::stop_building);
                    return;
                }
                Ok(Message::Changed) => self.dirty = true,
                Ok(Message::Built(outcome)) => {
                    self.built(*outcome);
                    heap::give_back();
                }
                // One who has left needs no answer.
                Ok(Message::Load(model, reply)) => drop(reply.send(self.load(&model))),
                Ok(Message::Unload(name, reply)) => drop(reply.send(self.unload(&name))),
                Ok(Message::List(reply)) => drop(reply.send(self.list())),
                Ok(Message::Reload(config, reply)) => drop(reply.send(self.reload(config))),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            self.watch_engines(now);
            self.drain(now);
            self.look(now);
        }
    }

    /// The models that were draining when it ended.
    pub(super) fn draining(self) -> Vec<Arc<Model>> {
        self.retired.into_iter().map(|retired| retired.model).collect()
    }

    /// A model that waits is not unknown: requests to it are told to come again.
    fn tell_who_waits(&self) {
        let awaited = |(model, source): &(schema::Model, Source)| {
            let needed = *source == Source::Configuration;
            Some(Awaited { name: model.name.clone()?, needed })
        };
        self.ground.models.awaits(self.waiting.iter().filter_map(awaited).collect());
    }

    /// Tells the host once that the first builds have come to an end.
    fn settle(&mut self) {
        let of_the_start = |s: &&Slot| s.number <= self.first;
        if self.slots.iter().filter(of_the_start).any(|s| matches!(s.phase, Phase::Building { .. })) {
            return;
        }
        let hopeless = self.is_hopeless();
        let Some(settled) = self.settled.take() else { return };
        let answer = match self.last_error.take() {
            Some(error) if hopeless => Err(error),
            _ => Ok(()),
        };
        // Nobody listens when a signal came first.
        drop(settled.send(answer));
    }

    /// Whether the host ends because of its first builds: all have failed, and no folder may bring another engine.
    fn is_hopeless(&self) -> bool {
        let none = |s: &Slot| s.serving().is_none() && !matches!(s.phase, Phase::Building { .. });
        self.settled.is_some() && self.slots.iter().all(none) && self.ground.config.plugins.dirs.is_empty()
    }

    /// Starts building the slot's engine on a thread of its own, from the newest copy of its plugin.
    fn build(&mut self, at: usize) {
        let now = Instant::now();
        let Some(plugin) = self.plugins.get_mut(&self.slots[at].job.plugin) else { return };
        // Opened here and not on the build's thread: it is quick by contract, and two models may share the plugin.
        let error = plugin.open(&self.ground).err();
        let newest = plugin.newest();
        if let Some(error) = &error {
            self.ground.metrics.load_error(error.stage);
            tracing::error!(stage = error.stage.name(), "{error}");
            self.last_error = Some(error.to_string());
        }
        let Some(opened) = newest else {
            let reason = error.map_or_else(|| "its plugin could not be opened".to_owned(), |e| e.to_string());
            self.fail(at, &reason, now);
            return;
        };
        let slot = &mut self.slots[at];
        slot.phase = match std::mem::replace(&mut slot.phase, Phase::Waiting) {
            Phase::Up(model) => Phase::Building { serving: Some(model) },
            other @ Phase::Building { .. } => other,
            Phase::Waiting | Phase::Failed { .. } => Phase::Building { serving: None },
        };
        let (job, generation, number) = (slot.job.clone(), slot.generation, slot.number);
        slot.generation += 1;
        slot.give_up = Arc::default();
        let (ground, inbox, give_up) = (self.ground.clone(), self.inbox.clone(), Arc::clone(&slot.give_up));
        let name = slot.job.name.clone();
        let build = move || {
            let model = raise(&ground, &job, &opened, generation, &give_up);
            // The keeper is gone when the host ends; then nobody waits for this engine.
            drop(inbox.send(Message::Built(Box::new(Outcome { slot: number, job, opened, model }))));
        };
        if let Err(error) = std::thread::Builder::new().name(format!("build {name}")).spawn(build) {
            self.fail(at, &format!("no thread to build its engine on: {error}"), now);
        }
    }

    fn built(&mut self, outcome: Outcome) {
        let Outcome { slot, job, opened, model } = outcome;
        let Some(at) = self.slots.iter().position(|s| s.number == slot) else {
            // It was let go while it was being built.
            if let Ok(model) = model {
                self.retire(Arc::new(model), Source::Admin, None);
            }
            return;
        };
        // One that was told to give up says nothing about the job, even if the same is wanted again by now.
        if self.slots[at].is_given_up() || !self.slots[at].job.is_served_by(&job) {
            self.outdated(at, model.ok());
            return;
        }
        if let Some(plugin) = self.plugins.get_mut(&self.slots[at].job.plugin) {
            plugin.judge(&opened, model.is_ok());
        }
        let now = Instant::now();
        match model {
            Ok(model) => {
                let model = Arc::new(model);
                self.limit(&model);
                self.ground.models.up(Arc::clone(&model));
                let slot = &mut self.slots[at];
                (slot.reason, slot.served) = (None, Some(job));
                slot.tell(&Ok(()));
                slot.moved = (model.worker.progress(), now);
                let before = std::mem::replace(&mut slot.phase, Phase::Up(model));
                if let Phase::Building { serving: Some(old) } = before {
                    let source = slot.source;
                    self.ground.metrics.restart(&slot.job.name, Restart::Upgraded);
                    self.retire(old, source, None);
                }
            }
            Err(error) => {
                self.ground.metrics.load_error(error.stage);
                tracing::error!(model = job.name, stage = error.stage.name(), "{error}");
                self.last_error = Some(error.to_string());
                self.fail(at, &error.to_string(), now);
            }
        }
        // A newer file may have come while this one was built.
        let slot = &self.slots[at];
        if !matches!(slot.phase, Phase::Failed { .. })
            && self.plugins.get(&slot.job.plugin).is_some_and(Plugin::is_behind)
        {
            self.build(at);
        }
    }

    /// What was built is not what is wanted by now: it is built anew, and what serves goes on meanwhile.
    fn outdated(&mut self, at: usize, model: Option<Model>) {
        let slot = &mut self.slots[at];
        if let Phase::Building { serving } = std::mem::replace(&mut slot.phase, Phase::Waiting)
            && let Some(model) = serving
        {
            slot.phase = Phase::Up(model);
        }
        let source = slot.source;
        if let Some(model) = model {
            self.retire(Arc::new(model), source, None);
        }
        self.build(at);
    }

    /// Gives a model's gate the limits that hold now.
    fn limit(&self, model: &Model) {
        let limits = &self.ground.config.limits;
        model.worker.gate().change(limits.max_concurrent, limits.queue_places(), limits.queue_timeout.0);
    }

    /// What served goes on serving; what did not is tried again later.
    fn fail(&mut self, at: usize, reason: &str, now: Instant) {
        let slot = &mut self.slots[at];
        slot.tell(&Err(reason.to_owned()));
        slot.reason = Some(reason.to_owned());
        if let Phase::Building { serving: Some(model) } = &slot.phase
            && model.worker.down().is_none()
        {
            slot.phase = Phase::Up(Arc::clone(model));
            return;
        }
        let wait = slot.failed(now);
        if self.is_hopeless() {
            return;
        }
        let slot = &self.slots[at];
        if wait == PAUSE {
            tracing::error!(model = slot.job.name, again_in = ?wait, "engine failed too often in a minute: left alone");
        } else {
            tracing::warn!(model = slot.job.name, again_in = ?wait, "engine is down");
        }
        self.ground.models.failed(&slot.job.name, reason.to_owned(), now + wait);
    }

    /// Notices engines that failed or stand still, and builds those anew whose time has come.
    fn watch_engines(&mut self, now: Instant) {
        let patience = self.ground.config.limits.stall_timeout.0;
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            match &slot.phase {
                Phase::Up(model) => {
                    let model = Arc::clone(model);
                    let progress = model.worker.progress();
                    if model.worker.down().is_some() {
                        self.ground.metrics.restart(&model.name, Restart::Failed);
                    } else if progress != slot.moved.0 || !model.worker.is_busy() {
                        slot.moved = (progress, now);
                    } else if now.saturating_duration_since(slot.moved.1) > patience {
                        tracing::error!(model = model.name, worker = model.worker.id(), stalled_for = ?patience, "engine makes no progress");
                        model.worker.give_up_on(&format!("no progress for {patience:?}"));
                        self.ground.metrics.restart(&model.name, Restart::Stalled);
                    }
                    if let Some(reason) = model.worker.down() {
                        let source = slot.source;
                        self.retire(model, source, None);
                        self.fail(at, &reason, now);
                    }
                }
                Phase::Failed { again } if *again <= now => self.build(at),
                _ => {}
            }
        }
    }

    fn retire(&mut self, model: Arc<Model>, source: Source, closed: Option<oneshot::Sender<()>>) {
        let until = Instant::now() + self.ground.config.server.drain_timeout.0;
        self.retired.push(Retired { model, source, until, closed });
    }

    /// Closes retired engines that nobody uses any more, or whose time is up.
    fn drain(&mut self, now: Instant) {
        self.retired.retain_mut(|retired| {
            // A request holds the model until it has submitted, the worker's table from then on.
            let in_use = Arc::strong_count(&retired.model) > 1 || retired.model.worker.is_busy();
            if in_use && now < retired.until {
                // No scrape asks for a model that is no longer served.
                retired.model.worker.count_steps();
                return true;
            }
            let (model, closed) = (Arc::clone(&retired.model), retired.closed.take());
            let close = move || {
                if !model.worker.close(Duration::from_secs(5)) {
                    tracing::warn!(
                        model = model.name,
                        worker = model.worker.id(),
                        "engine did not return; leaving it behind"
                    );
                }
                model.worker.forget_metrics();
                tracing::info!(model = model.name, worker = model.worker.id(), "engine closed");
                if closed.is_some_and(|closed| closed.send(()).is_err()) {
                    tracing::debug!(model = model.name, worker = model.worker.id(), "nobody waited for it");
                }
            };
            if let Err(error) = std::thread::Builder::new().name("close engine".to_owned()).spawn(close) {
                tracing::warn!(%error, "no thread to close an engine on; trying again");
                return true;
            }
            false
        });
    }
}
