//! Where the host is in its life: starting, ready, draining. One owner writes, everybody reads.

pub mod notify;

use std::sync::atomic::{AtomicU8, Ordering};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A stage of the host's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Engines are being built.
    Starting,
    /// It serves.
    Ready,
    /// It was told to stop; running generations may end.
    Draining,
}

/// The host's life, and the tasks that end with it.
#[derive(Default)]
pub struct Lifecycle {
    stage: AtomicU8,
    /// Cancelled when everything must end now.
    pub stop: CancellationToken,
    /// Every task of the runtime.
    pub tasks: TaskTracker,
}

impl Lifecycle {
    /// The stage now.
    pub fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Starting,
            1 => Stage::Ready,
            _ => Stage::Draining,
        }
    }

    /// Engines are up. A host that drains already stays so.
    pub fn ready(&self) {
        self.advance(1);
    }

    /// The signal to stop came.
    pub fn drain(&self) {
        self.advance(2);
    }

    fn advance(&self, to: u8) {
        self.stage.fetch_max(to, Ordering::AcqRel);
    }
}
