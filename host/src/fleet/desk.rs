//! Where the rest of the host asks the fleet for something: to load a model, to let one go, to take another configuration.
//!
//! The keeper decides and answers; nobody waits for it without a deadline.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tokio::sync::oneshot;

use super::message::Message;
use super::wish::{Changes, Listed, Loading, Refused, Unloading};
use crate::config::{Config, schema};

/// How long the keeper may take to answer. It may be opening a plugin, which is quick by contract.
const ANSWER: Duration = Duration::from_secs(10);

/// Asks the fleet.
#[derive(Clone)]
pub struct Desk {
    pub(super) inbox: SyncSender<Message>,
}

/// The fleet's end of the desk.
pub struct Inbox {
    pub(super) sender: SyncSender<Message>,
    pub(super) messages: Receiver<Message>,
}

/// A desk and the fleet's end of it. Messages are few and short: a full channel refuses what comes from clients, and makes
/// the fleet's own threads wait for the keeper, which never waits for them.
pub fn open() -> (Desk, Inbox) {
    let (sender, messages) = sync_channel(256);
    (Desk { inbox: sender.clone() }, Inbox { sender, messages })
}

impl Desk {
    /// Asks for a model.
    pub async fn load(&self, model: schema::Model) -> Result<Loading, Refused> {
        self.ask(|reply| Message::Load(Box::new(model), reply)).await?
    }

    /// Lets a model go: it takes no new requests, and closes when those it has are over.
    pub async fn unload(&self, name: String) -> Result<Unloading, Refused> {
        self.ask(|reply| Message::Unload(name, reply)).await?
    }

    /// Every model there is.
    pub async fn list(&self) -> Result<Vec<Listed>, Refused> {
        self.ask(Message::List).await
    }

    /// Takes another configuration; one that cannot be served changes nothing.
    pub async fn reload(&self, config: Arc<Config>) -> Result<Changes, Refused> {
        self.ask(|reply| Message::Reload(config, reply)).await?
    }

    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, Refused> {
        let (reply, answer) = oneshot::channel();
        match self.inbox.try_send(message(reply)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(Refused::Unavailable("the fleet has too much to do")),
            Err(TrySendError::Disconnected(_)) => return Err(Refused::Unavailable("the host is ending")),
        }
        match tokio::time::timeout(ANSWER, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(Refused::Unavailable("the host is ending")),
            Err(_) => Err(Refused::Unavailable("the fleet did not answer in time")),
        }
    }
}
