//! What the keeper is told: what happened, and what is wanted.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::job::Job;
use super::wish::{Changes, Listed, Loading, Refused, Unloading};
use crate::config::{Config, schema};
use crate::models::Model;
use crate::plugins::{LoadError, Opened};

/// What happened.
pub(super) enum Message {
    /// Something in a plugin folder changed.
    Changed,
    /// An engine was built, or not.
    Built(Box<Outcome>),
    /// A model is wanted.
    Load(Box<schema::Model>, oneshot::Sender<Result<Loading, Refused>>),
    /// A model is not wanted any more.
    Unload(String, oneshot::Sender<Result<Unloading, Refused>>),
    /// Somebody wants to know what there is.
    List(oneshot::Sender<Vec<Listed>>),
    /// Another configuration.
    Reload(Arc<Config>, oneshot::Sender<Result<Changes, Refused>>),
    /// The host ends.
    Stop,
}

/// What came of a build.
pub(super) struct Outcome {
    /// Number of its slot.
    pub(super) slot: u64,
    pub(super) job: Job,
    pub(super) opened: Arc<Opened>,
    pub(super) model: Result<Model, LoadError>,
}
