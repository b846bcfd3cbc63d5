//! One step of a model as flat arrays of numbers, in the form that paged attention takes.
//!
//! A plain value: it says nothing of who reads it, and can be sent to another stage. Its buffers are used again.

use crate::entry::Id;

/// What one step computes. All `begins` have one element more than there are parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// Token of each row.
    pub ids: Vec<i64>,
    /// Position of each row in its sequence.
    pub positions: Vec<i64>,
    /// Per part: positions that are computed already.
    pub past_lens: Vec<i32>,
    /// Where the rows of each part begin.
    pub subsequence_begins: Vec<i32>,
    /// Blocks of all parts, one after the other: those of positions 0 to the part's last row.
    pub block_indices: Vec<i32>,
    /// Where the blocks of each part begin.
    pub block_indices_begins: Vec<i32>,
    /// Largest number of positions of a part, its rows included.
    pub max_context_len: i32,
    /// Rows whose logits are wanted, ascending.
    pub sampled_rows: Vec<i64>,
    /// Blocks to be copied before the model runs, in this order.
    pub copies: Vec<BlockCopy>,
    /// Whose rows these are.
    pub parts: Vec<Part>,
}

/// A block whose content is to be copied whole, in every layer's keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCopy {
    /// Read.
    pub from: u32,
    /// Written.
    pub to: u32,
}

/// The rows of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The sequence.
    pub id: Id,
    /// Its first row in the batch.
    pub first_row: u32,
    /// Its rows.
    pub rows: u32,
    /// Position of its first row.
    pub past: u32,
    /// Its first element of [`Batch::sampled_rows`]. First come the `scored` ones, then the `next` ones.
    pub first_sampled: u32,
    /// Rows of the prompt whose logits are wanted for log-probabilities: row of position p tells about token p + 1.
    pub scored: u32,
    /// Position of the first scored row.
    pub scored_from: u32,
    /// Rows from which tokens are sampled: 0 for a chunk of a prompt that goes on; else 1, and 1 more for each draft. The
    /// row of index i answers what comes after i accepted drafts.
    pub next: u32,
}

impl Part {
    /// Drafts among its rows, the last ones.
    #[must_use]
    pub fn drafts(&self) -> u32 {
        self.next.saturating_sub(1)
    }

    /// Its elements of [`Batch::sampled_rows`], which are the rows of the logits that the model gives.
    #[must_use]
    pub fn sampled(&self) -> std::ops::Range<usize> {
        let first = self.first_sampled as usize;
        first..first + (self.scored + self.next) as usize
    }

    /// Those of [`Part::sampled`] from which tokens are sampled.
    #[must_use]
    pub fn next_sampled(&self) -> std::ops::Range<usize> {
        let first = (self.first_sampled + self.scored) as usize;
        first..first + self.next as usize
    }
}

/// What became of a part, told to [`crate::Scheduler::commit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its rows are computed; nothing was to be sampled (`next` is 0).
    Computed,
    /// The first `accepted` drafts hold, and `token` comes after them. The sequence goes on.
    Token {
        /// Drafts that hold, at most [`Part::drafts`].
        accepted: u32,
        /// The token after them.
        token: u32,
    },
    /// The sequence is over, for whatever reason; its blocks are given back. Those that are full stay for reuse.
    Ended {
        /// Drafts that hold.
        accepted: u32,
    },
    /// The rows are not what they should be (a row that is no number). The sequence is over and nothing of it is kept.
    Failed,
}

/// Outcomes that do not fit the batch. Nothing was changed; the batch still waits for its outcomes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// No batch is out.
    #[error("no batch waits for outcomes")]
    None,
    /// One outcome per part.
    #[error("{outcomes} outcomes for {parts} parts")]
    Count {
        /// Given.
        outcomes: usize,
        /// Asked.
        parts: usize,
    },
    /// The outcome is not one of its part.
    #[error("outcome {outcome:?} does not fit a part with {next} rows to sample")]
    Outcome {
        /// Given.
        outcome: Outcome,
        /// [`Part::next`].
        next: u32,
    },
    /// The sequence has as many tokens as it may; it had to end.
    #[error("sequence {id:?} may have {most} tokens and has them; end it")]
    Over {
        /// The sequence.
        id: Id,
        /// [`crate::Entry::most`].
        most: usize,
    },
}

impl Batch {
    /// The drafts of a part.
    #[must_use]
    pub fn drafts(&self, part: &Part) -> &[i64] {
        let end = (part.first_row + part.rows) as usize;
        &self.ids[end - part.drafts() as usize..end]
    }

    /// The blocks of the part at a place.
    #[must_use]
    pub fn blocks(&self, place: usize) -> &[i32] {
        let begins = &self.block_indices_begins;
        &self.block_indices[begins[place] as usize..begins[place + 1] as usize]
    }

    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.positions.clear();
        self.past_lens.clear();
        self.subsequence_begins.clear();
        self.subsequence_begins.push(0);
        self.block_indices.clear();
        self.block_indices_begins.clear();
        self.block_indices_begins.push(0);
        self.max_context_len = 0;
        self.sampled_rows.clear();
        self.copies.clear();
        self.parts.clear();
    }

    /// Closes the part whose rows were put in: positions `past` to `length`, in these blocks. All are below 2^31
    /// ([`crate::Limits::check`]).
    pub(crate) fn end_part(&mut self, past: usize, length: usize, blocks: &[u32]) {
        self.past_lens.push(past as i32);
        self.subsequence_begins.push(self.ids.len() as i32);
        self.block_indices.extend(blocks.iter().map(|block| *block as i32));
        self.block_indices_begins.push(self.block_indices.len() as i32);
        self.max_context_len = self.max_context_len.max(length as i32);
    }
}
