//! Engines in processes of their own: `--isolate`. A plugin that crashes takes its own tasks down and nothing else.
//!
//! What must hold: a child is never waited for without a deadline, and nothing it says is believed beyond its own tasks;
//! it dies with the host; the host's only thread that reads from it is the one that drives its engine.

pub mod bell;
pub mod child;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod home;
mod ledger;
mod news;
mod pace;
mod pack;
mod pipe;
mod process;
mod remote;
mod teller;
mod wire;

use std::fs::File;
use std::path::PathBuf;

pub(super) use remote::build;

use super::error::LoadError;
use super::load::Candidate;
use crate::telemetry::labels::LoadStage;

/// A plugin that is opened in the children only.
pub(super) struct Apart {
    path: PathBuf,
    cache: Option<PathBuf>,
    /// The bytes that were checked.
    image: File,
    /// Bound on a child's address space, in bytes.
    memory: Option<u64>,
    level: tracing::Level,
}

impl Apart {
    pub(super) fn new(
        candidate: Candidate,
        memory: Option<u64>,
        level: tracing::Level,
    ) -> Result<Apart, LoadError> {
        let Candidate { path, image, cache, .. } = candidate;
        let image = process::sealed(&image).map_err(|e| {
            LoadError::file(
                &path,
                LoadStage::Open,
                format!("cannot be kept in memory for its processes: {e}"),
            )
        })?;
        Ok(Apart { path, cache, image, memory, level })
    }
}
