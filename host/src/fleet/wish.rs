//! What the fleet answers to those who ask it for something.

use serde::Serialize;
use tokio::sync::oneshot;

/// Why the fleet does not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// It has too much to do, or is ending.
    Unavailable(&'static str),
    /// No model of that name.
    NoModel(String),
    /// The name is taken.
    Taken(String),
    /// No plugin brings the engine, or there are several.
    Engine(String),
    /// The model's settings are wrong.
    Wrong(String),
}

/// A model as the fleet sees it.
#[derive(Debug, Clone, Serialize)]
pub struct Listed {
    /// The served name.
    pub name: String,
    /// `loading`, `up`, `failed`, `waiting` for its plugin, or `draining`.
    pub state: &'static str,
    /// Why it is not up, or why what serves is still what was wanted before.
    pub reason: Option<String>,
    /// `plugin/engine`.
    pub engine: Option<String>,
    /// File or folder.
    pub path: Option<String>,
    /// Device as the engine names it.
    pub device: Option<String>,
    /// Who asked for it: `configuration`, `plugin` (the `plugin.toml` beside it) or `admin`.
    pub source: &'static str,
    /// Seconds since 1970 when it came up.
    pub created: Option<u64>,
}

/// A model that is being built.
#[derive(Debug)]
pub struct Loading {
    /// As it is now.
    pub listed: Listed,
    /// Told once: it is up, or why not. Gone when it was let go before.
    pub up: oneshot::Receiver<Result<(), String>>,
}

/// A model that drains.
#[derive(Debug)]
pub struct Unloading {
    /// Told when its engine is closed; none when it had none.
    pub closed: Option<oneshot::Receiver<()>>,
}

/// What a new configuration changed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Models that are being built.
    pub added: Vec<String>,
    /// Models that drain.
    pub removed: Vec<String>,
    /// Models that are built anew beside the ones that serve.
    pub changed: Vec<String>,
}
