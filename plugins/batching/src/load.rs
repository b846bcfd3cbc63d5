//! What a scheduler counts.

use crate::entry::Id;

/// How busy a scheduler is, and what it did since it began. Free, held and cached blocks together are all there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Blocks that hold nothing.
    pub free: usize,
    /// Blocks that sequences hold.
    pub held: usize,
    /// Blocks that nobody holds, kept for reuse and given up when blocks are needed.
    pub cached: usize,
    /// Blocks in all.
    pub blocks: usize,
    /// Sequences without blocks.
    pub waiting: usize,
    /// Sequences with blocks.
    pub running: usize,
    /// Tokens of the sequences let in for the first time, since the beginning.
    pub query_tokens: u64,
    /// Those of them that were found in the prefix cache.
    pub hit_tokens: u64,
    /// Times that a sequence gave its blocks back to others, since the beginning.
    pub preemptions: u64,
}

/// A sequence that a plan let in for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    /// The sequence.
    pub id: Id,
    /// Its tokens that need not be computed.
    pub cached: usize,
}
