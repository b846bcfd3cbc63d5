//! What enters a scheduler, and what it refuses.

use std::sync::Arc;

/// Names a sequence; the engine chooses it, unique among those that live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u64);

/// Who may share blocks: sequences of equal scope only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Scope {
    /// Salt of the prefix cache, the tenant; empty = the common one.
    pub salt: String,
    /// Adapter under which blocks are computed; empty = none.
    pub adapter: String,
}

/// A sequence to be computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub id: Id,
    /// The prompt and what was generated of it already. Never empty.
    pub tokens: Vec<u32>,
    /// Where generated text begins in `tokens`: their number for a new prompt, less for a sequence that goes on.
    pub generated_from: usize,
    /// Most tokens that it may have in the end, `tokens` included: the smaller of window and prompt + max_tokens.
    /// More than `tokens`.
    pub most: usize,
    /// With whom it may share blocks.
    pub scope: Arc<Scope>,
    /// Larger goes first.
    pub priority: i32,
    /// When it is worthless, on the clock of `now_ns`; 0 = never.
    pub deadline_ns: u64,
    /// Whether the logits of all rows of the prompt are wanted (log-probabilities of the prompt). Nothing is taken from
    /// the prefix cache for it then.
    pub score: bool,
}

/// Why an entry was not taken. Nothing of it is kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Cannot fit, however long it waits.
    #[error(
        "the sequence may need {needed} blocks, there are {blocks}; lower max_tokens or shorten the prompt"
    )]
    TooLarge {
        /// Blocks for all its positions.
        needed: usize,
        /// Blocks of the pool.
        blocks: usize,
    },
    /// As many wait as may.
    #[error("{waiting} sequences wait, no more may; try again later")]
    Full {
        /// Sequences that wait.
        waiting: usize,
    },
    /// For [`crate::Scheduler::reserve`] and `restore` only: no blocks or no place now.
    #[error("the sequence needs {needed} blocks now, {available} can be had; add it without its state")]
    NoRoom {
        /// Blocks for what it has.
        needed: usize,
        /// Blocks that are free or could be freed; 0 where as many sequences run as may.
        available: usize,
    },
    /// A living sequence has this name.
    #[error("sequence {0:?} lives already")]
    Known(Id),
    /// The entry contradicts itself.
    #[error("{0}")]
    Invalid(&'static str),
}

impl Entry {
    /// What is wrong with it in itself.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        if self.tokens.is_empty() {
            return Err(Refused::Invalid("a sequence without tokens; give at least one"));
        }
        if self.most <= self.tokens.len() {
            return Err(Refused::Invalid(
                "most leaves no token to generate; raise it above the tokens given",
            ));
        }
        if self.generated_from > self.tokens.len() {
            return Err(Refused::Invalid(
                "generated_from lies behind the tokens; it may be their number at most",
            ));
        }
        Ok(())
    }
}
