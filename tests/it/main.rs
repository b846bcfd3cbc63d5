//! One binary with all integration tests; a file per subject. The harness is the library of this crate.

mod admin;
mod admission;
mod cancel;
mod chat;
mod choices;
mod cli;
mod clients;
mod completions;
mod config;
mod errors;
mod hot;
mod isolate;
mod lifecycle;
mod metrics;
mod mix;
mod operate;
mod ov_genai;
mod plugin_commands;
mod plugins;
mod prometheus;
mod security;
mod streams;
