//! Optional tables whose form may still change. Each keeps its id when it is promoted, so that a plugin written against a
//! draft needs nothing but a rebuild.
//!
//! What holds for all of them: the library offers a table where at least one of its engines has the function; an engine
//! without it answers [`crate::abi::code::UNSUPPORTED`]. The functions are called in the state `ready` unless they say
//! otherwise. Elements of arrays have no size of their own: what an older writer left out reads as zero, and zero means
//! absent.

pub mod adapters;
pub mod async_sink;
pub mod embeddings;
pub mod kv_events;
pub mod kv_state;
pub mod pause;
pub mod stage;
pub mod token_mask;
pub mod tokenize;
