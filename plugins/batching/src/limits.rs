//! What a scheduler may use. Fixed for its life.

/// Bounds of a scheduler. [`Limits::check`] says whether they fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Positions in a block. OpenVINO's kernels have 32.
    pub block_size: usize,
    /// Blocks in the pool.
    pub blocks: usize,
    /// Most rows in a batch.
    pub rows: usize,
    /// Most rows of prompts in a batch in which at least as many decode as wait for their prompts, and half as many more where
    /// that ends all prompts. Smaller steps keep the time between two tokens short.
    pub rows_beside: usize,
    /// Most sequences that hold blocks at a time. At most `rows`, so that each can have a row in every step.
    pub sequences: usize,
    /// Most sequences that wait, those that gave way not counted.
    pub waiting: usize,
    /// Nanoseconds of waiting that weigh as much as one step of priority. An entry is overtaken only by those of a
    /// priority higher by n that come within n times this after it: the bound on starvation.
    pub aging_ns: u64,
    /// Whether computed blocks are kept and used again.
    pub prefix: bool,
    /// Events that [`crate::Log`] keeps.
    pub events: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            block_size: 32,
            blocks: 512,
            rows: 256,
            rows_beside: 128,
            sequences: 64,
            waiting: 1024,
            aging_ns: 5_000_000_000,
            prefix: true,
            events: 4096,
        }
    }
}

/// Limits that no scheduler can keep.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// A bound is 0.
    #[error("{name} is 0; it must be at least 1")]
    Zero {
        /// Field of [`Limits`].
        name: &'static str,
    },
    /// More sequences than rows.
    #[error("{sequences} sequences cannot each have one of {rows} rows; lower the one or raise the other")]
    Rows {
        /// [`Limits::sequences`].
        sequences: usize,
        /// [`Limits::rows`].
        rows: usize,
    },
    /// The arrays of a batch are of 32 bits.
    #[error("{blocks} blocks of {block_size} for {sequences} sequences are more than 32 bits can number")]
    Large {
        /// [`Limits::blocks`].
        blocks: usize,
        /// [`Limits::block_size`].
        block_size: usize,
        /// [`Limits::sequences`].
        sequences: usize,
    },
}

impl Limits {
    /// Whether a scheduler can keep these.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self) -> Result<(), Impossible> {
        let named = [
            ("block_size", self.block_size),
            ("blocks", self.blocks),
            ("rows", self.rows),
            ("rows_beside", self.rows_beside),
            ("sequences", self.sequences),
            ("waiting", self.waiting),
            ("events", self.events),
        ];
        if let Some((name, _)) = named.into_iter().find(|(_, value)| *value == 0) {
            return Err(Impossible::Zero { name });
        }
        if self.sequences > self.rows {
            return Err(Impossible::Rows { sequences: self.sequences, rows: self.rows });
        }
        let most = i32::MAX as usize;
        let fits = |a: usize, b: usize| a.checked_mul(b).is_some_and(|product| product <= most);
        if !fits(self.blocks, self.block_size) || !fits(self.blocks, self.sequences) || self.rows > most {
            let Limits { blocks, block_size, sequences, .. } = *self;
            return Err(Impossible::Large { blocks, block_size, sequences });
        }
        Ok(())
    }

    /// Blocks for so many positions.
    #[must_use]
    pub fn blocks_for(&self, positions: usize) -> usize {
        positions.div_ceil(self.block_size)
    }
}
