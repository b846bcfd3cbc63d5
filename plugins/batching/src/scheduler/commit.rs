//! What a step that was computed changes.

use super::{Scheduler, give_back, take_out, trim};
use crate::batch::{Mismatch, Outcome, Part};

impl Scheduler {
    /// Takes what became of each part of the step that is out, in their order.
    ///
    /// # Errors
    /// Outcomes that do not fit; then nothing is changed and the step is still out.
    pub fn commit(&mut self, outcomes: &[Outcome]) -> Result<(), Mismatch> {
        self.fit(outcomes)?;
        for (place, outcome) in outcomes.iter().enumerate() {
            let part = self.batch.parts[place];
            self.settle_part(self.out[place], part, *outcome);
        }
        self.out.clear();
        self.batch.clear();
        Ok(())
    }

    fn fit(&self, outcomes: &[Outcome]) -> Result<(), Mismatch> {
        if self.out.is_empty() {
            return Err(Mismatch::None);
        }
        if outcomes.len() != self.out.len() {
            return Err(Mismatch::Count { outcomes: outcomes.len(), parts: self.out.len() });
        }
        for ((part, slot), outcome) in self.batch.parts.iter().zip(&self.out).zip(outcomes) {
            let fits = match outcome {
                Outcome::Computed => part.next == 0,
                Outcome::Token { accepted, .. } => *accepted < part.next,
                Outcome::Ended { accepted } => *accepted <= part.drafts(),
                Outcome::Failed => true,
            };
            if !fits {
                return Err(Mismatch::Outcome { outcome: *outcome, next: part.next });
            }
            let sequence = self.at(*slot);
            if let Outcome::Token { accepted, .. } = outcome
                && sequence.tokens.len() + *accepted as usize + 1 >= sequence.most
                && !sequence.doomed
            {
                return Err(Mismatch::Over { id: sequence.id, most: sequence.most });
            }
        }
        Ok(())
    }

    fn settle_part(&mut self, slot: usize, part: Part, outcome: Outcome) {
        let size = self.limits.block_size;
        // PANIC: see `at`; the field is named so that the store can be borrowed beside it.
        let sequence = self.sequences[slot].as_mut().expect("a slot in a list has a sequence");
        let (accepted, token, over) = match outcome {
            Outcome::Computed => (0, None, false),
            Outcome::Token { accepted, token } => (accepted, Some(token), false),
            Outcome::Ended { accepted } => (accepted, None, true),
            Outcome::Failed => (0, None, true),
        };
        sequence.planned = 0;
        if outcome != Outcome::Failed {
            let drafts = (part.first_row + part.rows - part.drafts()) as usize;
            let held = &self.batch.ids[drafts..drafts + accepted as usize];
            sequence.computed += (part.rows - part.drafts() + accepted) as usize;
            sequence.scored = sequence.scored.max(sequence.computed.min(sequence.score_end()));
            // What came in as a token of 32 bits goes out as one.
            sequence.tokens.extend(held.iter().map(|id| *id as u32));
            sequence.tokens.extend(token);
            if self.limits.prefix {
                sequence.hash(size);
            }
            self.store.name_full(sequence);
        }
        if let Some((_, block)) = sequence.source.take() {
            self.store.release(block);
        }
        if over || sequence.doomed {
            let (id, rank, gone) = (sequence.id, sequence.rank, sequence.doomed);
            give_back(&mut self.store, sequence);
            self.sequences[slot] = None;
            self.free_slots.push(slot);
            take_out(&mut self.running, rank);
            // The name of a cancelled one may be another's by now.
            if !gone {
                self.by_id.remove(&id);
            }
        } else {
            let needed = sequence.tokens.len().div_ceil(size);
            trim(&mut self.store, sequence, needed);
        }
    }
}
