//! What is served: each model with its worker, its text side and its card; and the state of those not up yet.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;

use crate::error::{ApiError, Code};
use crate::generate::assemble::Detokenize;
use crate::plugins::Card;
use crate::prompt::Text;
use crate::prompt::detok::{Detokenizer, Pushed};
use crate::sched::Worker;

/// A model that is up.
pub struct Model {
    /// The served name; also the metric label.
    pub name: String,
    /// Seconds since 1970 when it came up.
    pub created: u64,
    /// What identifies the way answers are made: plugin, version, engine, options, device, model files.
    pub fingerprint: String,
    /// The engine instance.
    pub worker: Arc<Worker>,
    /// Template and tokenizer.
    pub text: Arc<Text>,
    /// What the engine says about it.
    pub card: Card,
}

/// What a model can do, as far as a request is read against it.
#[derive(Clone, Copy)]
pub struct Offer<'a> {
    /// The served name.
    pub name: &'a str,
    /// What the engine says about it.
    pub card: &'a Card,
    /// Template and tokenizer.
    pub text: &'a Text,
}

impl Model {
    /// What it can do.
    pub fn offer(&self) -> Offer<'_> {
        Offer { name: &self.name, card: &self.card, text: &self.text }
    }

    /// Most tokens of prompt and answer together, by engine and model files; none when neither says.
    pub fn window(&self) -> Option<u32> {
        let card = u32::try_from(self.card.context_length).ok().filter(|n| *n > 0);
        match (card, self.text.context_length()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// A detokenizer for one generation. `continues`: the answer goes on where the prompt ends.
    pub fn detokenizer(&self, continues: bool) -> Box<dyn Detokenize> {
        let detokenizer = self.text.detokenizer();
        Box::new(Bytes(if continues { detokenizer.continuing() } else { detokenizer }))
    }
}

struct Bytes(Detokenizer);

impl Detokenize for Bytes {
    fn push(&mut self, token: u32, out: &mut Vec<u8>) -> bool {
        self.0.push(token, out) != Pushed::Unknown
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.0.finish(out);
    }
}

/// A model's state.
#[derive(Clone)]
enum State {
    Loading,
    Up(Arc<Model>),
    /// Why, and when it is built anew.
    Failed(String, Instant),
}

struct Entry {
    name: String,
    state: State,
    /// The host is not ready without it: it was there from the start, or has been up.
    needed: bool,
}

/// All models, in the order they were asked for.
#[derive(Default)]
pub struct Models {
    models: RwLock<Vec<Entry>>,
    /// Models that are asked for and whose plugin is not there now.
    awaited: RwLock<Vec<Awaited>>,
}

/// A model that waits for a plugin which brings its engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Awaited {
    /// Its name.
    pub name: String,
    /// The host is not ready without it: the configuration names it.
    pub needed: bool,
}

impl Models {
    /// A model is being built that the host was started for: it is not ready before.
    pub fn loading(&self, name: &str) {
        self.set(name, State::Loading, true);
    }

    /// A model is being built that was asked for while the host runs. A host that serves others stays ready, whatever
    /// comes of it.
    pub fn adding(&self, name: &str) {
        self.set(name, State::Loading, false);
    }

    /// A model is up.
    pub fn up(&self, model: Arc<Model>) {
        self.set(&model.name.clone(), State::Up(model), true);
    }

    /// A model's engine is down, and is built anew then.
    pub fn failed(&self, name: &str, reason: String, again: Instant) {
        self.set(name, State::Failed(reason, again), false);
    }

    /// Each model, and whether it answers. One that waits for its plugin does not.
    pub fn states(&self) -> Vec<(String, bool)> {
        let answers = |state: &State| matches!(state, State::Up(model) if model.worker.down().is_none());
        let models = self.models.read();
        let awaited = self.awaited.read();
        let waits = awaited.iter().filter(|awaited| models.iter().all(|entry| entry.name != awaited.name));
        let there = models.iter().map(|entry| (entry.name.clone(), answers(&entry.state)));
        there.chain(waits.map(|awaited| (awaited.name.clone(), false))).collect()
    }

    /// A model is no longer served.
    pub fn remove(&self, name: &str) {
        self.models.write().retain(|entry| entry.name != name);
    }

    /// Exactly these models wait for a plugin.
    pub fn awaits(&self, models: Vec<Awaited>) {
        if *self.awaited.read() != models {
            *self.awaited.write() = models;
        }
    }

    fn set(&self, name: &str, state: State, needed: bool) {
        let mut models = self.models.write();
        match models.iter_mut().find(|entry| entry.name == name) {
            Some(entry) => {
                entry.state = state;
                entry.needed |= needed;
            }
            None => models.push(Entry { name: name.to_owned(), state, needed }),
        }
    }

    /// The models that are up.
    pub fn serving(&self) -> Vec<Arc<Model>> {
        let models = self.models.read();
        models
            .iter()
            .filter_map(|entry| if let State::Up(m) = &entry.state { Some(Arc::clone(m)) } else { None })
            .collect()
    }

    /// What keeps the host from being ready, one line each.
    pub fn not_ready(&self) -> Vec<String> {
        let models = self.models.read();
        let awaited = self.awaited.read();
        let waits = awaited.iter().filter(|a| a.needed).map(|a| format!("{} waits for a plugin", a.name));
        if models.is_empty() {
            return std::iter::once("no model".to_owned()).chain(waits).collect();
        }
        let why = |Entry { name, state, .. }: &Entry| match state {
            State::Loading => Some(format!("{name} is loading")),
            State::Failed(reason, _) => Some(format!("{name} failed: {reason}")),
            State::Up(model) => model.worker.down().map(|reason| format!("{name} is down: {reason}")),
        };
        let serves = models.iter().any(|entry| matches!(entry.state, State::Up(_)));
        models.iter().filter(|entry| entry.needed || !serves).filter_map(why).chain(waits).collect()
    }

    /// The model a request names; without a name the only one there is.
    pub fn resolve(&self, name: Option<&str>) -> Result<Arc<Model>, ApiError> {
        let models = self.models.read();
        let found = match name {
            Some(name) => models.iter().find(|entry| entry.name == name),
            None if models.len() == 1 => models.first(),
            None if models.is_empty() => {
                return Err(ApiError::new(
                    Code::EngineUnavailable,
                    "no model is served now; try again later",
                ));
            }
            None => {
                let names: Vec<_> = models.iter().map(|entry| entry.name.as_str()).collect();
                let message = format!("model is missing; it is one of {}", names.join(", "));
                return Err(ApiError::new(Code::InvalidValue, message).param("model"));
            }
        };
        let unavailable = |message: String| Err(ApiError::new(Code::EngineUnavailable, message));
        match found.map(|Entry { name, state, .. }| (name, state)) {
            None if name.is_some_and(|name| self.awaited.read().iter().any(|a| a.name == name)) => {
                let name = name.unwrap_or_default();
                unavailable(format!("{name} waits for a plugin that brings its engine; try again later"))
            }
            None => {
                let names: Vec<_> = models.iter().map(|entry| entry.name.as_str()).collect();
                let there = if names.is_empty() { "none now".to_owned() } else { names.join(", ") };
                let asked: String = name.unwrap_or_default().chars().take(200).collect();
                let message = format!("there is no model {asked:?}; there is {there}");
                Err(ApiError::new(Code::ModelNotFound, message).param("model"))
            }
            Some((name, State::Loading)) => unavailable(format!("{name} is loading; try again soon")),
            Some((name, State::Failed(reason, again))) => {
                let wait = again.saturating_duration_since(Instant::now()).as_secs() + 1;
                let message = format!("the engine of {name} is down and built anew in {wait} s: {reason}");
                Err(ApiError::new(Code::EngineUnavailable, message).after(wait))
            }
            Some((name, State::Up(model))) => match model.worker.down() {
                None => Ok(Arc::clone(model)),
                Some(reason) => unavailable(format!("{name} is down: {reason}")),
            },
        }
    }
}

/// Seconds since 1970.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
