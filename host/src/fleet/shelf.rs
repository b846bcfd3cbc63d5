//! One plugin of the fleet: its file, and which copies of it are at hand to build from.
//!
//! What must hold: what has served stays at hand until a newer copy has; a newer copy that failed is not tried again.

use std::path::PathBuf;
use std::sync::Arc;

use super::Ground;
use crate::plugins::load::Candidate;
use crate::plugins::manifest::Manifest;
use crate::plugins::{LoadError, Opened};

/// A plugin.
pub(super) struct Plugin {
    pub(super) path: PathBuf,
    pub(super) manifest: Manifest,
    /// The copy that has served.
    proven: Option<Arc<Opened>>,
    /// A newer copy, not proven yet.
    next: Option<Arc<Opened>>,
    /// A file that was checked and is not open yet.
    candidate: Option<Candidate>,
    /// Copies of it that were opened in this process; they stay in memory.
    opened: u32,
}

impl Plugin {
    pub(super) fn new(candidate: Candidate) -> Plugin {
        let (path, manifest) = (candidate.path.clone(), candidate.manifest.clone());
        Plugin { path, manifest, proven: None, next: None, candidate: Some(candidate), opened: 0 }
    }

    /// A plugin of which so many copies are in memory, from before it was removed.
    pub(super) fn again(candidate: Candidate, opened: u32) -> Plugin {
        Plugin { opened, ..Plugin::new(candidate) }
    }

    /// Copies of it that stay in memory.
    pub(super) fn opened(&self) -> u32 {
        self.opened
    }

    /// A newer file of the same plugin came.
    pub(super) fn renew(&mut self, candidate: Candidate) {
        (self.path, self.manifest) = (candidate.path.clone(), candidate.manifest.clone());
        self.candidate = Some(candidate);
    }

    /// Opens the newest file, when there is one that is not open.
    pub(super) fn open(&mut self, ground: &Ground) -> Result<(), LoadError> {
        let Some(mut candidate) = self.candidate.take() else { return Ok(()) };
        let wanted = &ground.config.plugins;
        candidate.cache.clone_from(&wanted.cache);
        let opened = if wanted.isolates(&self.manifest.id) {
            let level = ground.config.level().unwrap_or(tracing::Level::INFO);
            Opened::apart(candidate, wanted.isolate_memory.map(|size| size.0), level)
        } else {
            self.opened += 1;
            ground.marker.add(&self.manifest.id);
            ground.metrics.plugin_generations(&self.manifest.id, self.opened);
            Opened::here(candidate)
        };
        self.next = Some(Arc::new(opened?));
        Ok(())
    }

    /// Whether a newer file waits to be opened.
    pub(super) fn is_behind(&self) -> bool {
        self.candidate.is_some()
    }

    /// Whether one more copy in this process would be too many.
    pub(super) fn is_full(&self, ground: &Ground) -> bool {
        !ground.config.plugins.isolates(&self.manifest.id)
            && u64::from(self.opened) >= ground.config.plugins.max_generations
    }

    /// What to build from: the newest copy that did not fail.
    pub(super) fn newest(&self) -> Option<Arc<Opened>> {
        self.next.clone().or_else(|| self.proven.clone())
    }

    /// A build from `copy` came out well or not.
    pub(super) fn judge(&mut self, copy: &Arc<Opened>, well: bool) {
        if well {
            self.proven = Some(Arc::clone(copy));
        } else if self.proven.is_some() && self.next.as_ref().is_some_and(|next| Arc::ptr_eq(next, copy)) {
            self.next = None;
        }
    }
}
