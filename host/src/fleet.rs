//! What is served, kept alive: builds engines, builds failed ones anew, and follows the plugin folders while it runs.
//!
//! One thread owns all of it and takes decisions; engines are built on threads of their own and come back as messages.
//! What must hold: a model that serves goes on serving until its successor has answered a canary; what is replaced or
//! removed drains first; nothing of a plugin is ever unloaded.

pub mod catalog;
pub mod choose;
pub mod desk;
mod job;
mod keeper;
pub mod marker;
mod message;
pub mod probe;
mod raise;
mod shelf;
mod slot;
mod watch;
pub mod wish;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crate::config::Config;
use crate::models::{Model, Models};
use crate::telemetry::metrics::Metrics;
use choose::Chosen;
use desk::Inbox;
use keeper::Keeper;
use message::Message;

/// The handle of a running fleet.
pub struct Fleet {
    inbox: SyncSender<Message>,
    thread: std::thread::JoinHandle<Vec<Arc<Model>>>,
}

/// What the fleet works with.
#[derive(Clone)]
pub struct Ground {
    /// The configuration that holds; a build goes on with the one it began with.
    pub config: Arc<Config>,
    /// Where models that are up are published.
    pub models: Arc<Models>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The note of which plugins run in this process.
    pub marker: Arc<marker::Marker>,
}

impl Fleet {
    /// Starts it with what was chosen. The answer to `settled` comes once every model is up or has failed: an error when
    /// there are models, none came up, and no folder may still bring one.
    pub fn start(
        ground: Ground,
        chosen: Chosen,
        inbox: Inbox,
        settled: tokio::sync::oneshot::Sender<Result<(), String>>,
    ) -> std::io::Result<Fleet> {
        let Inbox { sender, messages } = inbox;
        let dirs: Vec<PathBuf> = ground.config.plugins.dirs.clone();
        let mut keeper = Keeper::new(ground, chosen, sender.clone(), settled);
        let changed = sender.clone();
        let thread = std::thread::Builder::new().name("fleet".to_owned()).spawn(move || {
            // Kept for as long as the thread runs; a folder that cannot be watched is looked at now and then.
            let _watch = watch::folders(&dirs, move || drop(changed.try_send(Message::Changed)));
            keeper.run(&messages);
            keeper.draining()
        })?;
        Ok(Fleet { inbox: sender, thread })
    }

    /// Stops building and replacing; what serves is left to its owner, and so are the models that drain, which are the
    /// answer. Waits for the thread, not for builds.
    pub fn stop(self) -> Vec<Arc<Model>> {
        // It fails only when the thread has ended.
        drop(self.inbox.send(Message::Stop));
        self.thread.join().unwrap_or_else(|_| {
            tracing::error!("the fleet's thread panicked");
            Vec::new()
        })
    }
}
