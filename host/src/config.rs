//! What the host was told to do: one tree of keys, merged from defaults < file < environment < flags.
//!
//! Sources are merged as TOML tables and read once into [`schema::Config`], so that no second struct can forget a key.

pub mod descriptors;
pub mod env;
pub mod merge;
pub mod schema;
pub mod units;

pub use schema::Config;
