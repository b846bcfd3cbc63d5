//! The extensions of the mock, each kept to as an honest engine would, and broken on demand (option `break`).
//!
//! What is pure lies in the parts; what needs the engine's locks is in the impls of [`crate::engine::Mock`] beside them.

pub(crate) mod adapters;
pub(crate) mod embed;
pub(crate) mod kv_log;
pub(crate) mod kv_state;
pub(crate) mod mask;
pub(crate) mod own_thread;
pub(crate) mod stage;
mod words;

use cascadia_plugin_api::abi::ids;

/// What the library has tables for; the engine of a pipeline stage has other ones than the whole engine.
pub(crate) const IDS: &[&str] = &[
    ids::KV_EVENTS,
    ids::TOKEN_MASK,
    ids::TOKENIZE,
    ids::EMBEDDINGS,
    ids::STAGE,
    ids::KV_STATE,
    ids::ADAPTERS,
    ids::PAUSE,
    ids::ASYNC_SINK,
];
