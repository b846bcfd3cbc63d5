//! One sequence: its text, its blocks, and how far it is computed.
//!
//! Running: `table` covers all tokens. The first `named` blocks of it are in the index, each the child of the one before.
//! The last token of a running sequence is never computed yet: from its row comes the next.

use std::sync::Arc;

use crate::blocks::Block;
use crate::entry::{Entry, Id, Scope};
use crate::prefix::{self, Text};

/// Place in the one order of all sequences; smaller goes first and gives way last.
///
/// Waiting raises a priority evenly for all, so that the difference of two is the same at all times: the order is fixed
/// when a sequence comes, and the first in it is never made to give way. That is why there is always progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// When it would have come at priority 0.
    came_ns: i128,
    /// Which one it is; unique.
    number: u64,
}

impl Rank {
    pub(crate) fn new(now_ns: u64, priority: i32, aging_ns: u64, number: u64) -> Self {
        let lead = i128::from(priority) * i128::from(aging_ns);
        Rank { came_ns: i128::from(now_ns) - lead, number }
    }
}

pub(crate) struct Sequence {
    pub(crate) id: Id,
    pub(crate) scope: Arc<Scope>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) generated_from: usize,
    pub(crate) most: usize,
    pub(crate) deadline_ns: u64,
    pub(crate) score: bool,
    pub(crate) rank: Rank,
    /// Hashes of the whole blocks of `tokens`; none where nothing is indexed.
    pub(crate) hashes: Vec<u64>,
    pub(crate) table: Vec<Block>,
    /// Positions whose keys and values are in the blocks.
    pub(crate) computed: usize,
    /// Blocks in the index.
    pub(crate) named: usize,
    /// Whether no further block may be indexed.
    pub(crate) closed: bool,
    /// Positions whose rows were given for log-probabilities.
    pub(crate) scored: usize,
    /// A block that is copied in the step that is out, and its place in the table. Held.
    pub(crate) source: Option<(usize, Block)>,
    /// Rows in the step that is out.
    pub(crate) planned: usize,
    /// Whether it was let in before.
    pub(crate) admitted: bool,
    /// Which of all stays with blocks this one is.
    pub(crate) stay: u64,
    /// Whether it was cancelled while a step is out.
    pub(crate) doomed: bool,
}

impl Sequence {
    pub(crate) fn new(entry: Entry, rank: Rank, closed: bool) -> Self {
        Sequence {
            id: entry.id,
            scope: entry.scope,
            tokens: entry.tokens,
            generated_from: entry.generated_from,
            most: entry.most,
            deadline_ns: entry.deadline_ns,
            score: entry.score,
            rank,
            hashes: Vec::new(),
            table: Vec::new(),
            computed: 0,
            named: 0,
            closed,
            scored: 0,
            source: None,
            planned: 0,
            admitted: false,
            stay: 0,
            doomed: false,
        }
    }

    /// Hashes the whole blocks that are not hashed yet.
    pub(crate) fn hash(&mut self, block_size: usize) {
        for at in self.hashes.len()..self.tokens.len() / block_size {
            let parent = at.checked_sub(1).map(|before| self.hashes[before]);
            let tokens = &self.tokens[at * block_size..(at + 1) * block_size];
            self.hashes.push(prefix::hash(parent, &self.scope, tokens));
        }
    }

    /// The whole block at a place, behind the block that the table has there.
    pub(crate) fn text(&self, at: usize, block_size: usize) -> Text<'_> {
        self.text_behind(at, block_size, at.checked_sub(1).map(|before| self.table[before]))
    }

    /// The whole block at a place, behind a given block.
    pub(crate) fn text_behind(&self, at: usize, block_size: usize, parent: Option<Block>) -> Text<'_> {
        let tokens = &self.tokens[at * block_size..(at + 1) * block_size];
        Text { hash: self.hashes[at], parent, scope: &self.scope, tokens }
    }

    /// Whether only its last token is not computed: the next row gives a token.
    pub(crate) fn decodes(&self) -> bool {
        self.computed + 1 == self.tokens.len()
    }

    /// Rows until it gives a token.
    pub(crate) fn rows_to_come(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Positions below this are scored: all of the prompt but its last, whose row is sampled.
    pub(crate) fn score_end(&self) -> usize {
        if self.score { self.generated_from.saturating_sub(1) } else { 0 }
    }
}
