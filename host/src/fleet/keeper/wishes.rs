//! What is asked for through the desk: a model to load, one to let go, what there is, another configuration.
//!
//! What must hold: a wish that cannot be granted changes nothing.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::{Keeper, Retired};
use crate::config::{Config, schema};
use crate::fleet::choose::{self, Misfit};
use crate::fleet::job::{Job, Source};
use crate::fleet::slot::{Phase, Slot};
use crate::fleet::wish::{Changes, Listed, Loading, Refused, Unloading};
use crate::plugins::manifest::Manifest;

impl Keeper {
    /// A model is wanted. A name whose model failed may be used again; one that serves, loads or waits may not.
    pub(super) fn load(&mut self, model: &schema::Model) -> Result<Loading, Refused> {
        let manifests = self.manifests();
        let known: Vec<&Manifest> = manifests.iter().collect();
        let job = choose::job(model, &known, &self.ground.config, &self.ground.metrics);
        let job = job.map_err(|misfit| match misfit {
            Misfit::NoEngine(message) | Misfit::Several(message) => Refused::Engine(message),
            Misfit::Wrong(message) => Refused::Wrong(message),
        })?;
        if let Some(problem) = schema::bad_name(&job.name) {
            return Err(Refused::Wrong(problem));
        }
        let now = Instant::now();
        if let Some(at) = self.slots.iter().position(|s| s.job.name == job.name) {
            let listed = listed(&self.slots[at]);
            if !matches!(self.slots[at].phase, Phase::Failed { .. }) {
                return Err(Refused::Taken(format!(
                    "there is a model {} already, and it is {}; unload it first or choose another name",
                    job.name, listed.state
                )));
            }
            let slot = self.slots.remove(at);
            self.let_go(slot, None);
        }
        self.ground.models.adding(&job.name);
        let at = self.place(job, Source::Admin, now);
        let (told, up) = oneshot::channel();
        self.slots[at].waiters.push(told);
        self.build(at);
        Ok(Loading { listed: listed(&self.slots[at]), up })
    }

    /// A model is not wanted any more.
    pub(super) fn unload(&mut self, name: &str) -> Result<Unloading, Refused> {
        if let Some(at) = self.slots.iter().position(|s| s.job.name == name) {
            let slot = self.slots.remove(at);
            tracing::info!(model = name, "unloading: draining");
            let (told, closed) = oneshot::channel();
            let closed = slot.serving().is_some().then_some(closed);
            self.let_go(slot, Some(told));
            return Ok(Unloading { closed });
        }
        let before = self.waiting.len();
        self.waiting.retain(|(model, _)| model.name.as_deref() != Some(name));
        if self.waiting.len() < before {
            return Ok(Unloading { closed: None });
        }
        let names: Vec<_> = self.slots.iter().map(|s| s.job.name.as_str()).collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let asked: String = name.chars().take(200).collect();
        Err(Refused::NoModel(format!("there is no model {asked:?}; there is {there}")))
    }

    /// Takes a slot's model out of service; its engine drains.
    pub(super) fn let_go(&mut self, slot: Slot, closed: Option<oneshot::Sender<()>>) {
        slot.stop_building();
        self.built_before.insert(slot.job.name.clone(), slot.generation);
        self.ground.models.remove(&slot.job.name);
        if let Some(model) = slot.serving() {
            self.retire(Arc::clone(model), slot.source, closed);
        }
    }

    /// Everything there is.
    pub(super) fn list(&self) -> Vec<Listed> {
        let waiting = self.waiting.iter().map(|(model, source)| Listed {
            name: model.name.clone().unwrap_or_default(),
            state: "waiting",
            reason: Some("no plugin brings its engine".to_owned()),
            engine: model.engine.clone(),
            path: model.path.as_ref().map(|p| p.display().to_string()),
            device: model.device.clone(),
            source: source.name(),
            created: None,
        });
        let retired = self.retired.iter().map(|Retired { model, source, .. }| Listed {
            name: model.name.clone(),
            state: "draining",
            reason: None,
            engine: None,
            path: None,
            device: None,
            source: source.name(),
            created: Some(model.created),
        });
        self.slots.iter().map(listed).chain(waiting).chain(retired).collect()
    }

    /// Another configuration: what it can not serve refuses it as a whole.
    pub(super) fn reload(&mut self, config: Arc<Config>) -> Result<Changes, Refused> {
        let manifests = self.manifests();
        let known: Vec<&Manifest> = manifests.iter().collect();
        choose::strangers(&config, &known).map_err(Refused::Wrong)?;
        let wanted = self.wanted(&config).into_iter().map(|(model, source)| (model, source, known.clone()));
        let (jobs, waiting) =
            choose::jobs(wanted.collect(), &config, &self.ground.metrics).map_err(Refused::Wrong)?;
        let mut changes = Changes::default();
        // Decided; from here on nothing refuses.
        self.ground.config = config;
        self.waiting = waiting;
        for at in (0..self.slots.len()).rev() {
            let slot = &self.slots[at];
            if !jobs.iter().any(|(job, _)| job.name == slot.job.name) {
                let slot = self.slots.remove(at);
                changes.removed.push(slot.job.name.clone());
                self.let_go(slot, None);
            }
        }
        for (job, source) in jobs {
            self.adopt(job, source, &mut changes);
        }
        for slot in &self.slots {
            if let Some(model) = slot.serving() {
                self.limit(model);
            }
        }
        Ok(changes)
    }

    /// What should be served with this configuration: its own models, and those that others have asked for.
    fn wanted(&self, config: &Config) -> Vec<(schema::Model, Source)> {
        let mut wanted: Vec<_> = config.model.iter().map(|m| (m.clone(), Source::Configuration)).collect();
        let configured =
            |name: Option<&String>| config.model.iter().any(|m| name.is_some() && m.name.as_ref() == name);
        for slot in &self.slots {
            // Where neither names a model, the one that was made for the only engine stays.
            let implied = config.model.is_empty() && self.ground.config.model.is_empty();
            let stays = slot.source != Source::Configuration || implied;
            if stays && !configured(Some(&slot.job.name)) {
                wanted.push((slot.job.pinned(), slot.source));
            }
        }
        let others = self.waiting.iter().filter(|(_, source)| *source != Source::Configuration);
        wanted.extend(others.filter(|(model, _)| !configured(model.name.as_ref())).cloned());
        if wanted.is_empty() && !self.plugins.is_empty() {
            wanted.push((schema::Model::default(), Source::Configuration));
        }
        wanted
    }

    /// Makes a job a slot's, or gives it one. A slot that has it already is left alone, unless that failed.
    fn adopt(&mut self, job: Job, source: Source, changes: &mut Changes) {
        let Some(at) = self.slots.iter().position(|s| s.job.name == job.name) else {
            changes.added.push(job.name.clone());
            self.ground.models.adding(&job.name);
            let at = self.place(job, source, Instant::now());
            self.build(at);
            return;
        };
        let slot = &mut self.slots[at];
        let same = slot.job.is_served_by(&job);
        (slot.job, slot.source) = (job, source);
        if same {
            // Whoever reloads has mended something: it is not waited for its next turn.
            if slot.lags() {
                self.build(at);
            }
            return;
        }
        changes.changed.push(slot.job.name.clone());
        match slot.phase {
            // What is being built is out of date when it comes.
            Phase::Building { .. } => slot.stop_building(),
            _ => self.build(at),
        }
    }

    /// What the plugins say of themselves, in the order of their ids.
    fn manifests(&self) -> Vec<Manifest> {
        let mut all: Vec<_> = self.plugins.values().map(|p| p.manifest.clone()).collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }
}

fn listed(slot: &Slot) -> Listed {
    let down = slot.serving().and_then(|model| model.worker.down());
    let (state, reason) = match (&slot.phase, down) {
        (_, Some(reason)) => ("failed", Some(reason)),
        // With a reason: what serves is what was wanted before.
        (Phase::Up(_) | Phase::Building { serving: Some(_) }, None) => ("up", slot.reason.clone()),
        (Phase::Building { serving: None }, None) => ("loading", None),
        (Phase::Failed { .. }, None) => ("failed", slot.reason.clone()),
        (Phase::Waiting, None) => ("waiting", slot.reason.clone()),
    };
    let job = &slot.job;
    Listed {
        name: job.name.clone(),
        state,
        reason,
        engine: Some(format!("{}/{}", job.plugin, job.engine)),
        path: job.path.as_ref().map(|p| p.display().to_string()),
        device: job.options.get("device").cloned(),
        source: slot.source.name(),
        created: slot.serving().map(|model| model.created),
    }
}
