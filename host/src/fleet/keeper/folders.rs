//! What comes of changes in the plugin folders: a plugin came, a newer one, or one went.

use std::path::Path;
use std::time::{Duration, Instant};

use super::Keeper;
use crate::config::{env, schema};
use crate::fleet::Ground;
use crate::fleet::catalog::{Change, QUIET};
use crate::fleet::choose;
use crate::fleet::job::Source;
use crate::fleet::shelf::Plugin;
use crate::fleet::slot::{Phase, Slot};
use crate::plugins::load::{self, Candidate};
use crate::plugins::manifest::Manifest;
use crate::telemetry::labels::LoadStage;

/// How often folders are looked at even if nothing was heard of them.
const IDLE_LOOK: Duration = Duration::from_secs(5);

impl Keeper {
    pub(super) fn look(&mut self, now: Instant) {
        let due = if self.dirty || self.catalog.is_restless() { QUIET / 2 } else { IDLE_LOOK };
        if self.ground.config.plugins.dirs.is_empty() || now.saturating_duration_since(self.looked) < due {
            return;
        }
        (self.dirty, self.looked) = (false, now);
        for change in self.catalog.look(now) {
            match change {
                Change::Came(path) => self.came(&path),
                Change::Beside(path) => self.beside(&path),
                Change::Went(path) => self.went(&path),
                Change::Copying(path) => {
                    tracing::info!(file = %path.display(), "left alone: it is still being copied");
                }
            }
        }
    }

    /// The `plugin.toml` beside a plugin is another: the models that it names in addition are built, and nothing else.
    fn beside(&mut self, path: &Path) {
        let serving = self.plugins.iter().find(|(_, plugin)| plugin.path == *path).map(|(id, _)| id.clone());
        if let Some(id) = serving {
            self.serve_with(&id, self.named_beside(path));
        }
    }

    fn came(&mut self, path: &Path) {
        let dirs = &self.ground.config.plugins.dirs;
        let Some(candidate) = choose::look_at(path, dirs, &self.ground.metrics) else { return };
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
                    file = %path.display(),
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
            let model = job.pinned();
            match choose::job(&model, &[&manifest], &self.ground.config, &self.ground.metrics) {
                // One that is being built is followed by the newer one.
                Ok(job) => {
                    self.slots[at].job = job;
                    if !matches!(self.slots[at].phase, Phase::Building { .. }) {
                        self.build(at);
                    }
                }
                Err(misfit) => {
                    tracing::error!(
                        model = job.name,
                        "the newer plugin cannot serve it: {}",
                        misfit.message()
                    );
                }
            }
        }
    }

    /// Gives a plugin that just came its models: those named beside it, and those that waited for its engine.
    fn serve_with(&mut self, id: &str, named: Vec<schema::Model>) {
        let Some(manifest) = self.plugins.get(id).map(|p| p.manifest.clone()) else { return };
        let waiting = std::mem::take(&mut self.waiting);
        let (asked, others): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(m, _)| choose::has_engine(m, &[&manifest]));
        self.waiting = others;
        // One that waited since the plugin went is the one that stands beside it again.
        let stands =
            |named: &schema::Model| asked.iter().any(|(m, _)| m.name.is_some() && m.name == named.name);
        let mut models: Vec<_> =
            named.into_iter().filter(|m| !stands(m)).map(|model| (model, Source::Beside, false)).collect();
        models.extend(asked.into_iter().map(|(model, source)| (model, source, true)));
        if models.is_empty() && !self.slots.iter().any(|s| s.job.plugin == id) {
            tracing::info!(
                plugin = id,
                "no model: name one in plugin.toml beside it, or in the configuration"
            );
        }
        for (model, source, waited) in models {
            match choose::job(&model, &[&manifest], &self.ground.config, &self.ground.metrics) {
                Ok(job) if self.slots.iter().any(|s| s.job.name == job.name) => {
                    tracing::error!(
                        model = job.name,
                        plugin = id,
                        "not served: a model of that name is there"
                    );
                }
                Ok(job) => {
                    self.ground.models.adding(&job.name);
                    let at = self.place(job, source, Instant::now());
                    self.build(at);
                }
                Err(misfit) => {
                    tracing::error!(plugin = id, "not served: {}", misfit.message());
                    // What was asked for may fit a newer plugin; what stood beside this one comes with it.
                    if waited {
                        self.waiting.push((model, source));
                    }
                }
            }
        }
    }

    fn went(&mut self, path: &Path) {
        let Some(id) = self.plugins.iter().find(|(_, p)| p.path == *path).map(|(id, _)| id.clone()) else {
            return;
        };
        if let Some(other) = self.other_file(&id) {
            // Its models go on: with an older version, as after an upgrade that was taken back.
            let (version, file) = (&other.manifest.version, other.path.display());
            tracing::info!(plugin = id, version, %file, "plugin was removed: building from the other file of it");
            if let Some(plugin) = self.plugins.get_mut(&id).filter(|plugin| !plugin.is_full(&self.ground)) {
                plugin.renew(other);
                self.replace(&id);
                return;
            }
            too_many(&id, &self.ground);
        }
        tracing::info!(plugin = id, file = %path.display(), "plugin was removed: draining");
        if let Some(plugin) = self.plugins.remove(&id) {
            self.left_behind.insert(id.clone(), plugin.opened());
        }
        let (gone, kept) =
            std::mem::take(&mut self.slots).into_iter().partition(|s: &Slot| s.job.plugin == id);
        self.slots = kept;
        let gone: Vec<Slot> = gone;
        for slot in gone {
            // It is asked for all the same, and served again when the plugin comes back.
            self.waiting.push((slot.job.pinned(), slot.source));
            self.let_go(slot, None);
        }
    }

    /// The newest file of a plugin in the folders, when what was built from is gone.
    fn other_file(&self, id: &str) -> Option<Candidate> {
        let files = self.catalog.told().filter_map(|path| load::inspect(path).ok());
        let mut newest: Option<Candidate> = None;
        for candidate in files.filter(|candidate| candidate.manifest.id == id) {
            let better =
                |best: &Candidate| choose::newer(&candidate.manifest.version, &best.manifest.version);
            if newest.as_ref().is_none_or(better) {
                newest = Some(candidate);
            }
        }
        newest
    }
}

fn too_many(plugin: &str, ground: &Ground) {
    ground.metrics.load_error(LoadStage::Open);
    tracing::error!(
        plugin,
        most = ground.config.plugins.max_generations,
        "not taken: too many copies are in memory already; restart the host, or use --isolate={plugin}"
    );
}
