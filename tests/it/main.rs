//! One binary with all integration tests; a file per subject. The harness is the library of this crate.

mod admission;
mod bench;
mod cancel;
mod chat;
mod cli;
mod clients;
mod completions;
mod errors;
mod hot;
mod isolate;
mod lifecycle;
mod metrics;
mod mix;
mod ov_genai;
mod plugin_commands;
mod plugins;
mod prometheus;
mod security;
mod streams;
