//! How what an engine gives is kept for its client.

use std::sync::Arc;
use std::time::Duration;

use super::PART;
use crate::generate::{Bare, Framing};
use crate::sched::flood::Flood;
use crate::sched::unread::Unread;

/// How a flight's bytes are kept.
pub enum Mode {
    /// They leave as they come. Above the limit the engine is slowed down for a moment; a client that takes nothing for
    /// `patience`, or falls many limits behind, is given up; so is one that leaves more than a part unread while
    /// those of all streams together are over `most`.
    Stream {
        /// Bytes.
        limit: usize,
        /// How long a client may leave a full stream unread.
        patience: Duration,
        /// Where the bytes of all streams are counted.
        unread: Arc<Unread>,
        /// Bytes of all streams.
        most: usize,
        /// Whether its engine outruns the wire.
        flood: Arc<Flood>,
        /// What its texts look like.
        framing: Box<dyn Framing>,
    },
    /// They are collected for one answer of at most this size, with the times of their tokens.
    Collect {
        /// Bytes.
        limit: usize,
    },
}

impl Mode {
    /// So many bytes may wait without a question.
    pub(super) fn little(&self) -> usize {
        let (Mode::Stream { limit, .. } | Mode::Collect { limit }) = self;
        PART.min(*limit)
    }

    pub(super) fn framing(&self) -> &dyn Framing {
        match self {
            Mode::Stream { framing, .. } => &**framing,
            Mode::Collect { .. } => &Bare,
        }
    }
}
