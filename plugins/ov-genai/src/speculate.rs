//! Counts tokens that were proposed and those that were taken, which the library does not tell.
//!
//! What a step gives beyond one token was proposed before it. How many were is known from the rules by which they are
//! proposed. Knows nothing of pipelines.

use cascadia_plugin_api::sdk::{Metric, Worker};

use crate::pipeline::setup::Proposer;

/// The counters of an engine whose steps check proposals.
pub(crate) struct Speculation {
    lookup: bool,
    /// Most proposals in a step.
    most: usize,
    /// Longest run looked for.
    ngram: usize,
    proposed: Metric,
    accepted: Metric,
}

impl Speculation {
    /// None where nothing is proposed.
    pub(crate) fn new(
        worker: &Worker,
        proposer: &Proposer,
        most: usize,
        ngram: usize,
    ) -> Option<Speculation> {
        let lookup = match proposer {
            Proposer::Nobody => return None,
            Proposer::Prompt => true,
            Proposer::Model { .. } => false,
        };
        let proposed =
            worker.counter("proposed_tokens_total", "Tokens proposed, to be checked by a step.", &[]);
        let accepted =
            worker.counter("accepted_tokens_total", "Proposed tokens that became part of an answer.", &[]);
        Some(Speculation { lookup, most, ngram, proposed, accepted })
    }

    /// What a request is told: most proposals, and the longest run looked for (0: no text is looked through).
    pub(crate) fn settings(&self) -> (usize, usize) {
        (self.most, if self.lookup { self.ngram } else { 0 })
    }

    /// A step gave `got` tokens to an answer that had `text` (prompt included) before it and could take `room` more.
    pub(crate) fn count(&self, text: &[u32], room: usize, got: usize) {
        let accepted = got.saturating_sub(1);
        let most = self.most.min(room.saturating_sub(1));
        let proposed = if self.lookup { found(text, most, self.ngram) } else { most };
        self.accepted.add(accepted as f64);
        // More were taken than by our reading of the rules were proposed: the library found others.
        self.proposed.add(proposed.max(accepted) as f64);
    }
}

/// How many tokens followed the last ones of `text` where these came before: the longest run of at most `ngram` tokens
/// decides, and its first place.
fn found(text: &[u32], most: usize, ngram: usize) -> usize {
    for size in (1..=ngram.min(text.len().saturating_sub(1))).rev() {
        let last = &text[text.len() - size..];
        if let Some(at) = text[..text.len() - 1].windows(size).position(|run| run == last) {
            return most.min(text.len() - (at + size));
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::found;

    #[test]
    fn the_longest_run_that_came_before_decides() {
        assert_eq!(found(&[1, 2, 3, 4, 1, 2], 5, 3), 4, "1 2 came before, with 3 4 1 2 behind it");
        assert_eq!(found(&[1, 2, 3, 4, 1, 2], 2, 3), 2, "no more than asked for");
        assert_eq!(found(&[9, 2, 7, 5, 1, 2, 8, 5, 1, 2], 5, 3), 4, "5 1 2 before 2");
        assert_eq!(found(&[7, 7], 5, 3), 1);
        assert_eq!(found(&[1, 2, 3], 5, 3), 0);
        assert_eq!(found(&[1], 5, 3), 0);
        assert_eq!(found(&[], 5, 3), 0);
    }
}
