//! The numbered log of blocks that can be reused, and a picture of all of them at any time.
//!
//! The one part that others may ask while the scheduler works: `read` and `snapshot` from any thread. The scheduler holds
//! the lock for one change, a reader for one copy. The log is bounded; a reader that fell behind sees it in the numbers.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::entry::Scope;

#[cfg(test)]
mod tests;

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Blocks can be reused from now on.
    Stored {
        /// Hash of the block before the first; none at the beginning of a sequence.
        parent: Option<u64>,
        /// Hashes, each the parent of the next.
        blocks: Vec<u64>,
        /// Their tokens, as many as a block has positions for each.
        tokens: Vec<u32>,
    },
    /// Blocks are gone, children before their parents.
    Removed {
        /// Their hashes.
        blocks: Vec<u64>,
    },
    /// Everything is gone.
    Cleared,
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number: 1, 2, 3, ...
    pub number: u64,
    /// What changed.
    pub change: Change,
    /// Whose blocks; nobody's where everything is gone.
    pub scope: Arc<Scope>,
    /// The time that was passed to the last plan, in nanoseconds.
    pub at_ns: u64,
}

/// The log. One per scheduler.
#[derive(Debug)]
pub struct Log {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    ring: VecDeque<Event>,
    most: usize,
    /// Number of the last event.
    last: u64,
    block_size: usize,
    /// By block: what the events so far leave of it.
    kept: Vec<Option<Kept>>,
    /// By block and position.
    tokens: Vec<u32>,
    /// Lists of events that were dropped, to be filled again.
    spare_blocks: Vec<Vec<u64>>,
    spare_tokens: Vec<Vec<u32>>,
}

#[derive(Debug, Clone)]
struct Kept {
    hash: u64,
    parent: Option<u64>,
    depth: usize,
    scope: Arc<Scope>,
}

/// Blocks that follow each other and became known together.
pub(crate) struct Run<'a> {
    pub(crate) scope: &'a Arc<Scope>,
    /// Hash of the block before the first.
    pub(crate) parent: Option<u64>,
    /// Place of the first in its sequence.
    pub(crate) depth: usize,
    /// Number and hash of each.
    pub(crate) blocks: &'a [(u32, u64)],
    pub(crate) tokens: &'a [u32],
}

impl Log {
    pub(crate) fn new(blocks: usize, block_size: usize, most: usize) -> Self {
        let inner = Inner {
            ring: VecDeque::with_capacity(most),
            most,
            last: 0,
            block_size,
            kept: vec![None; blocks],
            tokens: vec![0; blocks * block_size],
            spare_blocks: Vec::new(),
            spare_tokens: Vec::new(),
        };
        Log { inner: Mutex::new(inner) }
    }

    /// At most `most` events, beginning with number `from` or with the oldest that is still kept. A first number above
    /// `from` is a gap, which [`Log::snapshot`] closes. Nothing where `from` lies in the future. Reading removes nothing.
    #[must_use]
    pub fn read(&self, from: u64, most: usize) -> Vec<Event> {
        let inner = self.inner.lock();
        let Some(oldest) = inner.ring.front().map(|event| event.number) else { return Vec::new() };
        let skip = usize::try_from(from.saturating_sub(oldest)).unwrap_or(usize::MAX);
        inner.ring.iter().skip(skip).take(most).cloned().collect()
    }

    /// Everything held as [`Change::Stored`] of one block each, parents before children, and the number of the last event
    /// that is in it (0 = none yet), which the events bear too. Read on from the number after it.
    #[must_use]
    pub fn snapshot(&self) -> (Vec<Event>, u64) {
        let inner = self.inner.lock();
        let mut held: Vec<(usize, &Kept)> = inner
            .kept
            .iter()
            .enumerate()
            .filter_map(|(n, kept)| kept.as_ref().map(|kept| (n, kept)))
            .collect();
        held.sort_by_key(|(_, kept)| kept.depth);
        let event = |(block, kept): (usize, &Kept)| Event {
            number: inner.last,
            change: Change::Stored {
                parent: kept.parent,
                blocks: vec![kept.hash],
                tokens: inner.tokens[inner.place(block)].to_vec(),
            },
            scope: kept.scope.clone(),
            at_ns: 0,
        };
        (held.into_iter().map(event).collect(), inner.last)
    }

    pub(crate) fn stored(&self, at_ns: u64, run: &Run<'_>) {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let mut parent = run.parent;
        for (place, (block, hash)) in run.blocks.iter().enumerate() {
            let at = inner.place(*block as usize);
            inner.tokens[at].copy_from_slice(&run.tokens[place * inner.block_size..][..inner.block_size]);
            let depth = run.depth + place;
            inner.kept[*block as usize] = Some(Kept { hash: *hash, parent, depth, scope: run.scope.clone() });
            parent = Some(*hash);
        }
        inner.make_room();
        let mut blocks = inner.spare_blocks.pop().unwrap_or_default();
        let mut tokens = inner.spare_tokens.pop().unwrap_or_default();
        blocks.extend(run.blocks.iter().map(|(_, hash)| *hash));
        tokens.extend_from_slice(run.tokens);
        inner.push(Change::Stored { parent: run.parent, blocks, tokens }, run.scope.clone(), at_ns);
    }

    pub(crate) fn removed(&self, at_ns: u64, block: u32) {
        let mut inner = self.inner.lock();
        let Some(kept) = inner.kept[block as usize].take() else { return };
        inner.make_room();
        let mut blocks = inner.spare_blocks.pop().unwrap_or_default();
        blocks.push(kept.hash);
        inner.push(Change::Removed { blocks }, kept.scope, at_ns);
    }

    pub(crate) fn cleared(&self, at_ns: u64) {
        let mut inner = self.inner.lock();
        inner.kept.fill(None);
        inner.make_room();
        inner.push(Change::Cleared, Arc::default(), at_ns);
    }
}

impl Inner {
    fn place(&self, block: usize) -> std::ops::Range<usize> {
        block * self.block_size..(block + 1) * self.block_size
    }

    /// Drops the oldest event of a full ring and keeps its lists for the next.
    fn make_room(&mut self) {
        if self.ring.len() < self.most {
            return;
        }
        match self.ring.pop_front().map(|event| event.change) {
            Some(Change::Stored { mut blocks, mut tokens, .. }) => {
                blocks.clear();
                tokens.clear();
                self.spare_blocks.push(blocks);
                self.spare_tokens.push(tokens);
            }
            Some(Change::Removed { mut blocks }) => {
                blocks.clear();
                self.spare_blocks.push(blocks);
            }
            Some(Change::Cleared) | None => {}
        }
    }

    fn push(&mut self, change: Change, scope: Arc<Scope>, at_ns: u64) {
        self.last += 1;
        self.ring.push_back(Event { number: self.last, change, scope, at_ns });
    }
}
