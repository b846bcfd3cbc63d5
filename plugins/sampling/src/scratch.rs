//! What a thread needs to sample: room that is used again and again, and the passes over a row for its processor.

use crate::draw::{Member, Piece};
pub use crate::kernels::Kernel;
use crate::kernels::Passes;

/// Why a row gave no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The row holds a NaN: the inference went wrong.
    #[error("the row of logits holds a value that is not a number")]
    NotANumber,
    /// Every token is banned, masked or impossible.
    #[error("no token may be chosen: all are banned, masked or impossible")]
    NothingAllowed,
    /// The row is not of this model.
    #[error("the row has {found} logits, the model has {vocab} tokens")]
    Length {
        /// Logits of the row.
        found: usize,
        /// Tokens of the model.
        vocab: usize,
    },
    /// The token to score is outside the row.
    #[error("token {token} is to be scored, the row has {vocab} logits")]
    Unknown {
        /// The token.
        token: u32,
        /// Logits of the row.
        vocab: usize,
    },
}

/// Room and passes; one for each thread that samples, for all of its sequences. It grows to a few times the size of a row.
#[derive(Debug)]
pub struct Scratch {
    pub(crate) passes: &'static Passes,
    /// The row with what bias, penalties, bans and mask made of it.
    pub(crate) copy: Vec<f32>,
    /// The words of two masks in one.
    pub(crate) words: Vec<u32>,
    /// Keys that are being sorted.
    pub(crate) keys: Vec<u64>,
    /// Candidates of a draw, in the order of their ids.
    pub(crate) members: Vec<Member>,
    /// What the pieces of a row weigh.
    pub(crate) pieces: Vec<Piece>,
}

impl Scratch {
    /// With the fastest passes that this processor has.
    pub fn new() -> Self {
        Self::with(Kernel::best()).unwrap_or_else(|| Self::of(Passes::portable()))
    }

    /// With the passes of one kind; `None` where the processor lacks it. For tests and measurements.
    pub fn with(kernel: Kernel) -> Option<Self> {
        Passes::of(kernel).map(Self::of)
    }

    /// Which passes it has.
    pub fn kernel(&self) -> Kernel {
        self.passes.kernel
    }

    fn of(passes: &'static Passes) -> Self {
        Scratch {
            passes,
            copy: Vec::new(),
            words: Vec::new(),
            keys: Vec::new(),
            members: Vec::new(),
            pieces: Vec::new(),
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}
