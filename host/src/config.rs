//! What the host was told to do: one tree of keys, merged from defaults < file < environment < flags.
//!
//! `schema` declares the keys, `table` is made from it, `sources` merges what was given into a [`Config`] and
//! remembers who gave it, `reload` says what may change while the host runs. `reference` writes the documents.

pub mod check;
pub mod descriptors;
pub mod env;
pub mod file;
pub mod keys;
pub mod live;
pub mod nearest;
pub mod reference;
pub mod reload;
pub mod schema;
pub mod setting;
pub mod sources;
pub mod table;
pub mod units;
pub mod variables;

pub use live::Live;
pub use schema::Config;
pub use sources::Sources;
