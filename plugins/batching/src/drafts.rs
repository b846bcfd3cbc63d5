//! Where guesses about the next tokens come from.

use crate::entry::Id;

/// Proposes tokens that may come next; the model checks them in the step in which it computes them.
pub trait Drafts {
    /// Appends at most `most` tokens that may follow `tokens` (prompt and generated text of the sequence) to `out`; more
    /// are cut off. Called once in each plan for each sequence that decodes and for which there is room.
    fn propose(&mut self, id: Id, tokens: &[u32], most: usize, out: &mut Vec<u32>);
}

/// No guesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoDrafts;

impl Drafts for NoDrafts {
    fn propose(&mut self, _: Id, _: &[u32], _: usize, _: &mut Vec<u32>) {}
}
