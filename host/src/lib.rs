//! `cascadia-host`: serves language models through engine plugins.
//!
//! Layers, each may use the ones above it only:
//! `config error telemetry` (L0) → `generate prompt` (L1, pure) → `plugins sched models fleet lifecycle` (L2) → `http`, then
//! `api` above it (L3) → `app cli` (L4). docs/ARCHITECTURE.md has the picture.

pub mod config;
pub mod error;
pub mod telemetry;

pub mod generate;
pub mod prompt;

pub mod fleet;
pub mod lifecycle;
pub mod models;
pub mod plugins;
pub mod sched;

pub mod api;
pub mod http;

pub mod app;
pub mod cli;

#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
