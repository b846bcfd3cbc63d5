//! The fleet's one thread: takes messages, looks at engines and folders now and then, and decides.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Ground;
use super::catalog::{Catalog, Change, QUIET};
use super::choose::{self, Chosen, Misfit};
use super::raise::raise;
use super::shelf::Plugin;
use super::slot::{Phase, Slot};
use crate::config::{env, schema};
use crate::models::Model;
use crate::plugins::manifest::Manifest;
use crate::plugins::{LoadError, Opened};
use crate::telemetry::labels::{LoadStage, Restart};

/// How often engines are looked at.
const TICK: Duration = Duration::from_millis(250);
/// How often folders are looked at even if nothing was heard of them.
const IDLE_LOOK: Duration = Duration::from_secs(5);

/// What happened.
pub(super) enum Message {
    /// Something in a plugin folder changed.
    Changed,
    /// An engine was built, or not.
    Built(Box<Outcome>),
    /// The host ends.
    Stop,
}

/// What came of a build.
pub(super) struct Outcome {
    slot: String,
    opened: Arc<Opened>,
    model: Result<Model, LoadError>,
}

/// An engine that serves no new request and drains.
struct Retired {
    model: Arc<Model>,
    until: Instant,
}

/// Everything the thread owns.
pub(super) struct Keeper {
    ground: Ground,
    plugins: HashMap<String, Plugin>,
    /// Copies in memory of plugins that were removed: they stay, and count when the plugin comes back.
    left_behind: HashMap<String, u32>,
    slots: Vec<Slot>,
    waiting: Vec<schema::Model>,
    retired: Vec<Retired>,
    catalog: Catalog,
    /// A folder changed since the last look.
    dirty: bool,
    looked: Instant,
    inbox: SyncSender<Message>,
    give_up: Arc<AtomicBool>,
    settled: Option<oneshot::Sender<Result<(), String>>>,
    last_error: Option<String>,
}

impl Keeper {
    pub(super) fn new(
        ground: Ground,
        chosen: Chosen,
        inbox: SyncSender<Message>,
        give_up: Arc<AtomicBool>,
        settled: oneshot::Sender<Result<(), String>>,
    ) -> Keeper {
        let now = Instant::now();
        let known: Vec<PathBuf> = chosen.plugins.iter().map(|p| p.path.clone()).collect();
        let catalog = Catalog::new(ground.config.plugins.dirs.clone(), &known, now);
        Keeper {
            left_behind: HashMap::new(),
            plugins: chosen.plugins.into_iter().map(|c| (c.manifest.id.clone(), Plugin::new(c))).collect(),
            slots: chosen.jobs.into_iter().map(|job| Slot::new(job, now)).collect(),
            waiting: chosen.waiting,
            retired: Vec::new(),
            catalog,
            dirty: true,
            looked: now,
            inbox,
            give_up,
            settled: Some(settled),
            last_error: None,
            ground,
        }
    }

    pub(super) fn run(&mut self, messages: &Receiver<Message>) {
        for at in 0..self.slots.len() {
            self.build(at);
        }
        loop {
            self.settle();
            match messages.recv_timeout(TICK) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Message::Changed) => self.dirty = true,
                Ok(Message::Built(outcome)) => self.built(*outcome),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            self.watch_engines(now);
            self.drain(now);
            self.look(now);
        }
    }

    /// Tells the host once that the first builds have come to an end.
    fn settle(&mut self) {
        if self.slots.iter().any(|s| matches!(s.phase, Phase::Building { .. })) {
            return;
        }
        let Some(settled) = self.settled.take() else { return };
        let hopeless =
            self.slots.iter().all(|s| s.serving().is_none()) && self.ground.config.plugins.dirs.is_empty();
        let answer = match self.last_error.take() {
            Some(error) if hopeless => Err(error),
            _ => Ok(()),
        };
        // Nobody listens when a signal came first.
        drop(settled.send(answer));
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
        let (job, generation) = (slot.job.clone(), slot.generation);
        slot.generation += 1;
        let (ground, inbox, give_up) = (self.ground.clone(), self.inbox.clone(), Arc::clone(&self.give_up));
        let name = slot.job.name.clone();
        let build = move || {
            let model = raise(&ground, &job, &opened, generation, &give_up);
            // The keeper is gone when the host ends; then nobody waits for this engine.
            drop(inbox.send(Message::Built(Box::new(Outcome { slot: job.name, opened, model }))));
        };
        if let Err(error) = std::thread::Builder::new().name(format!("build {name}")).spawn(build) {
            self.fail(at, &format!("no thread to build its engine on: {error}"), now);
        }
    }

    fn built(&mut self, outcome: Outcome) {
        let Outcome { slot, opened, model } = outcome;
        let Some(at) = self.slots.iter().position(|s| s.job.name == slot) else {
            // Its plugin was removed while it was being built.
            if let Ok(model) = model {
                self.retire(Arc::new(model));
            }
            return;
        };
        if let Some(plugin) = self.plugins.get_mut(&self.slots[at].job.plugin) {
            plugin.judge(&opened, model.is_ok());
        }
        let now = Instant::now();
        match model {
            Ok(model) => {
                let model = Arc::new(model);
                self.ground.models.up(Arc::clone(&model));
                let slot = &mut self.slots[at];
                slot.moved = (model.worker.progress(), now);
                let before = std::mem::replace(&mut slot.phase, Phase::Up(model));
                if let Phase::Building { serving: Some(old) } = before {
                    self.ground.metrics.restart(&slot.job.name, Restart::Upgraded);
                    self.retire(old);
                }
            }
            Err(error) => {
                self.ground.metrics.load_error(error.stage);
                tracing::error!(model = slot, stage = error.stage.name(), "{error}");
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

    /// What served goes on serving; what did not is tried again later.
    fn fail(&mut self, at: usize, reason: &str, now: Instant) {
        let slot = &mut self.slots[at];
        if let Phase::Building { serving: Some(model) } = &slot.phase
            && model.worker.down().is_none()
        {
            slot.phase = Phase::Up(Arc::clone(model));
            return;
        }
        let wait = slot.failed(now);
        tracing::warn!(model = slot.job.name, again_in = ?wait, "engine is down");
        self.ground.models.failed(&slot.job.name, reason.to_owned());
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
                        tracing::error!(worker = model.worker.id(), stalled_for = ?patience, "engine makes no progress");
                        model.worker.give_up_on(&format!("no progress for {patience:?}"));
                        self.ground.metrics.restart(&model.name, Restart::Stalled);
                    }
                    if let Some(reason) = model.worker.down() {
                        self.retire(model);
                        self.fail(at, &reason, now);
                    }
                }
                Phase::Failed { again } if *again <= now => self.build(at),
                _ => {}
            }
        }
    }

    fn retire(&mut self, model: Arc<Model>) {
        let until = Instant::now() + self.ground.config.server.drain_timeout.0;
        self.retired.push(Retired { model, until });
    }

    /// Closes retired engines that nobody uses any more, or whose time is up.
    fn drain(&mut self, now: Instant) {
        self.retired.retain(|retired| {
            // A request holds the model until it has submitted, the worker's table from then on.
            let in_use = Arc::strong_count(&retired.model) > 1 || retired.model.worker.is_busy();
            if in_use && now < retired.until {
                return true;
            }
            let model = Arc::clone(&retired.model);
            let close = move || {
                if !model.worker.close(Duration::from_secs(5)) {
                    tracing::warn!(worker = model.worker.id(), "engine did not return; leaving it behind");
                }
                model.worker.forget_metrics();
                tracing::info!(worker = model.worker.id(), "engine closed");
            };
            if let Err(error) = std::thread::Builder::new().name("close engine".to_owned()).spawn(close) {
                tracing::warn!(%error, "no thread to close an engine on; trying again");
                return true;
            }
            false
        });
    }

    fn look(&mut self, now: Instant) {
        let due = if self.dirty || self.catalog.is_restless() { QUIET / 2 } else { IDLE_LOOK };
        if self.ground.config.plugins.dirs.is_empty() || now.saturating_duration_since(self.looked) < due {
            return;
        }
        (self.dirty, self.looked) = (false, now);
        for change in self.catalog.look(now) {
            match change {
                Change::Came(path) => self.came(&path),
                Change::Went(path) => self.went(&path),
            }
        }
    }

    fn came(&mut self, path: &Path) {
        let Some(candidate) = choose::look_at(path, &self.ground.metrics) else { return };
        let Manifest { id, version, about, .. } = &candidate.manifest;
        let (id, version) = (id.clone(), version.clone());
        // A process of its own gets its environment when it is started.
        let isolated = self.ground.config.plugins.isolates(&id);
        if let Some((name, value)) = about.env.iter().find(|(name, value)| !isolated && !env::is(name, value))
        {
            self.ground.metrics.load_error(LoadStage::Manifest);
            tracing::error!(
                plugin = id,
                "not taken: it needs {name}={value} before the host has threads; restart the host, or use --isolate={id}"
            );
            return;
        }
        if let Some(plugin) = self.plugins.get_mut(&id) {
            if plugin.path != *path && !choose::newer(&version, &plugin.manifest.version) {
                tracing::info!(
                    plugin = id,
                    version,
                    serving = plugin.manifest.version,
                    "passed over: not newer"
                );
                return;
            }
            if plugin.is_full(&self.ground) {
                too_many(&id, &self.ground);
                return;
            }
            tracing::info!(plugin = id, version, file = %path.display(), "newer plugin: building beside the old one");
            plugin.renew(candidate);
            self.replace(&id);
            self.serve_with(&id, self.named_beside(path));
            return;
        }
        tracing::info!(plugin = id, version, file = %path.display(), "plugin came");
        let plugin = Plugin::again(candidate, self.left_behind.get(&id).copied().unwrap_or(0));
        if plugin.is_full(&self.ground) {
            too_many(&id, &self.ground);
            return;
        }
        self.plugins.insert(id.clone(), plugin);
        self.serve_with(&id, self.named_beside(path));
    }

    /// The models that `plugin.toml` beside a plugin names and that are not there yet.
    fn named_beside(&self, path: &Path) -> Vec<schema::Model> {
        let mut models = choose::beside(path).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Vec::new()
        });
        models.retain(|m| !self.slots.iter().any(|s| m.name.as_ref() == Some(&s.job.name)));
        models
    }

    /// Builds the slots of a plugin anew. Its options may have changed with it.
    fn replace(&mut self, id: &str) {
        let Some(manifest) = self.plugins.get(id).map(|p| p.manifest.clone()) else { return };
        for at in 0..self.slots.len() {
            let job = &self.slots[at].job;
            if job.plugin != id {
                continue;
            }
            let model = schema::Model {
                name: Some(job.name.clone()),
                path: job.path.clone(),
                engine: Some(format!("{id}/{}", job.engine)),
                device: job.options.get("device").cloned(),
            };
            match choose::job(&model, &[&manifest], &self.ground.config, &self.ground.metrics) {
                // One that is being built is followed by the newer one.
                Ok(job) => {
                    self.slots[at].job = job;
                    if !matches!(self.slots[at].phase, Phase::Building { .. }) {
                        self.build(at);
                    }
                }
                Err(Misfit::NoEngine(message) | Misfit::Wrong(message)) => {
                    tracing::error!(model = job.name, "the newer plugin cannot serve it: {message}");
                }
            }
        }
    }

    /// Gives a plugin that just came its models: those named beside it, and those that waited for its engine.
    fn serve_with(&mut self, id: &str, mut models: Vec<schema::Model>) {
        let Some(manifest) = self.plugins.get(id).map(|p| p.manifest.clone()) else { return };
        let (beside, waiting) = (models.len(), std::mem::take(&mut self.waiting));
        let (asked, others): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|m| choose::has_engine(m, &[&manifest]));
        (self.waiting, models) = (others, [models, asked].concat());
        if models.is_empty() && !self.slots.iter().any(|s| s.job.plugin == id) {
            tracing::info!(
                plugin = id,
                "no model: name one in plugin.toml beside it, or in the configuration"
            );
        }
        for (at, model) in models.into_iter().enumerate() {
            match choose::job(&model, &[&manifest], &self.ground.config, &self.ground.metrics) {
                Ok(job) if self.slots.iter().any(|s| s.job.name == job.name) => {
                    tracing::error!(
                        model = job.name,
                        plugin = id,
                        "not served: a model of that name is there"
                    );
                }
                Ok(job) => {
                    self.ground.models.loading(&job.name);
                    self.slots.push(Slot::new(job, Instant::now()));
                    self.build(self.slots.len() - 1);
                }
                Err(Misfit::NoEngine(message) | Misfit::Wrong(message)) => {
                    tracing::error!(plugin = id, "not served: {message}");
                    // What the configuration asks for may fit a newer plugin; what stood beside this one comes with it.
                    if at >= beside {
                        self.waiting.push(model);
                    }
                }
            }
        }
    }

    fn went(&mut self, path: &Path) {
        let Some(id) = self.plugins.iter().find(|(_, p)| p.path == *path).map(|(id, _)| id.clone()) else {
            return;
        };
        tracing::info!(plugin = id, file = %path.display(), "plugin was removed: draining");
        if let Some(plugin) = self.plugins.remove(&id) {
            self.left_behind.insert(id.clone(), plugin.opened());
        }
        let (gone, kept) =
            std::mem::take(&mut self.slots).into_iter().partition(|s: &Slot| s.job.plugin == id);
        self.slots = kept;
        let gone: Vec<Slot> = gone;
        for slot in gone {
            self.ground.models.remove(&slot.job.name);
            if let Some(model) = slot.serving() {
                self.retire(Arc::clone(model));
            }
            // It is asked for all the same, and served again when the plugin comes back.
            self.waiting.push(schema::Model {
                name: Some(slot.job.name.clone()),
                path: slot.job.path.clone(),
                engine: Some(format!("{id}/{}", slot.job.engine)),
                device: None,
            });
        }
    }
}

fn too_many(plugin: &str, ground: &Ground) {
    tracing::error!(
        plugin,
        most = ground.config.plugins.max_generations,
        "not taken: too many copies are in memory already; restart the host, or use --isolate={plugin}"
    );
}
