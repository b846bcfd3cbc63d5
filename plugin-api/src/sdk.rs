//! Safe Rust for plugin authors: implement [`Plugin`], [`Builder`] and [`Engine`] (or [`Serial`]'s simpler trait), name
//! them in [`crate::export_plugin!`], and no line of unsafe is left to write.
//!
//! What must hold: every entry from the host goes through `guard`, so that a panic becomes code 13 and never crosses.

mod chunk;
mod engine;
mod error;
#[doc(hidden)]
pub mod export;
mod ext;
mod guard;
mod host;
mod serial;
mod task;
mod trace;
mod transport;

pub use chunk::{Chunk, Finish, Flow, Sink};
pub use engine::{Builder, Card, Engine, EngineInfo, Load, Next, Plugin, Progress, Shard};
pub use error::{Error, Result};
pub use ext::{
    Adapter, AdapterSpec, Adapters, AsyncSink, EmbedInfo, EmbedInput, EmbedOut, EmbedTask, Embedding,
    Embeddings, Extensions, KvChange, KvEvent, KvEvents, KvReader, KvState, KvTier, KvWriter, MaskFiller,
    MaskRequest, MaskRow, Masks, OpenSink, Pause, Pooling, Refusal, Row, Sequence, Stage, StageBatch,
    StageInfo, StageOut, StageToken, TokenKind, TokenMask, Tokenize,
};
pub use host::{Dependency, Level, Metric, Worker, dlopen, log, log_enabled, now_ns};
pub use serial::{Serial, SerialEngine};
pub use task::{GrammarKind, Sampling, Task};
pub use trace::{Span, TraceContext, spawn};
pub use transport::{Deadline, Frame, Link, Listener};
