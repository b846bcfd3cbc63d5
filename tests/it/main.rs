//! One binary with all integration tests; a file per subject. The harness is the library of this crate.

mod admission;
mod api;
mod breach;
mod cancel;
mod chat;
mod choices;
mod cli;
mod clients;
mod completions;
mod conformance;
mod errors;
mod extensions;
mod frozen;
mod hot;
mod isolate;
mod lifecycle;
mod links;
mod load;
mod metrics;
mod mix;
mod ov_genai;
mod plugin_commands;
mod plugins;
mod prometheus;
mod security;
mod streams;
