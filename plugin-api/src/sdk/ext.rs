//! What an engine may offer beside generating: a trait for each extension, and [`Extensions`] to hand them out by.
//!
//! Honest in two steps: [`super::Plugin::extensions`] lists the ids for which the library gives a table at all, and
//! [`super::Engine::extensions`] says which of them this engine has. A call for one it lacks answers `unsupported`.

mod adapters;
mod async_sink;
mod embeddings;
mod kv_events;
mod kv_state;
mod pause;
mod stage;
mod token_mask;
mod tokenize;

pub use adapters::{Adapter, AdapterSpec, Adapters};
pub use async_sink::{AsyncSink, OpenSink};
pub use embeddings::{EmbedInfo, EmbedInput, EmbedOut, EmbedTask, Embedding, Embeddings, Pooling};
pub use kv_events::{KvChange, KvEvent, KvEvents, KvTier};
pub use kv_state::{KvReader, KvState, KvWriter};
pub use pause::Pause;
pub use stage::{Refusal, Row, Sequence, Stage, StageBatch, StageInfo, StageOut, StageToken};
pub use token_mask::{MaskFiller, MaskRequest, MaskRow, Masks, TokenMask};
pub use tokenize::{TokenKind, Tokenize};

use core::ffi::c_void;

use crate::abi::ids;

/// The extensions of one engine; `..Extensions::default()` leaves out what it has not.
#[derive(Clone, Copy, Default)]
pub struct Extensions<'a> {
    /// `cascadia.kv-events/1`.
    pub kv_events: Option<&'a dyn KvEvents>,
    /// `cascadia.token-mask/1`.
    pub token_mask: Option<&'a dyn TokenMask>,
    /// `cascadia.tokenize/1`.
    pub tokenize: Option<&'a dyn Tokenize>,
    /// `cascadia.embeddings/1`.
    pub embeddings: Option<&'a dyn Embeddings>,
    /// `cascadia.stage/1`.
    pub stage: Option<&'a dyn Stage>,
    /// `cascadia.kv-state/1`.
    pub kv_state: Option<&'a dyn KvState>,
    /// `cascadia.adapters/1`.
    pub adapters: Option<&'a dyn Adapters>,
    /// `cascadia.pause/1`.
    pub pause: Option<&'a dyn Pause>,
    /// `cascadia.async-sink/1`.
    pub async_sink: Option<&'a dyn OpenSink>,
}

/// The table of that id, where the SDK knows it.
pub(super) fn table(id: &[u8]) -> Option<*const c_void> {
    fn at<T>(table: &'static T) -> *const c_void {
        std::ptr::from_ref(table).cast()
    }
    let tables: [(&str, *const c_void); 9] = [
        (ids::KV_EVENTS, at(&kv_events::TABLE)),
        (ids::TOKEN_MASK, at(&token_mask::TABLE)),
        (ids::TOKENIZE, at(&tokenize::TABLE)),
        (ids::EMBEDDINGS, at(&embeddings::TABLE)),
        (ids::STAGE, at(&stage::TABLE)),
        (ids::KV_STATE, at(&kv_state::TABLE)),
        (ids::ADAPTERS, at(&adapters::TABLE)),
        (ids::PAUSE, at(&pause::TABLE)),
        (ids::ASYNC_SINK, at(&async_sink::TABLE)),
    ];
    tables.into_iter().find(|(known, _)| known.as_bytes() == id).map(|(_, table)| table)
}

/// Calls an engine's extension behind the guard; `unsupported` where the engine lacks it. Unsafe as `with_engine` is.
macro_rules! with_extension {
    ($engine:expr, $err:expr, $field:ident, $what:literal, |$found:ident| $body:expr) => {
        crate::sdk::export::with_engine($engine, $err, |engine| match engine.extensions().$field {
            Some($found) => $body,
            None => Err(crate::sdk::Error::unsupported($what)),
        })
    };
}
use with_extension;
