//! What the next step computes: one row for everyone who decodes, drafts where there is room, then prompts.

use super::admit::Entrance;
use super::{Scheduler, insert, trim};
use crate::batch::{Batch, BlockCopy, Part};
use crate::drafts::Drafts;
use crate::sequence::Sequence;

impl Scheduler {
    /// The next step, or none where nothing lives. `now_ns` never goes back. A step that is still out is abandoned.
    ///
    /// Sequences whose deadline has passed are ended first. When a sequence that decodes needs a block and there is none,
    /// the last in order gives way; before it, states that are on their way.
    pub fn plan(&mut self, now_ns: u64, drafts: &mut dyn Drafts) -> Option<&Batch> {
        self.abandon();
        self.sweep();
        self.store.now_ns = now_ns;
        self.admitted.clear();
        self.expire(now_ns);
        self.plan_tokens(drafts);
        self.plan_prompts();
        self.batch()
    }

    /// The step that is out.
    #[must_use]
    pub fn batch(&self) -> Option<&Batch> {
        (!self.out.is_empty()).then_some(&self.batch)
    }

    fn expire(&mut self, now_ns: u64) {
        self.expired.clear();
        if now_ns < self.next_deadline_ns {
            return;
        }
        self.next_deadline_ns = u64::MAX;
        for slot in 0..self.sequences.len() {
            let Some(sequence) = &self.sequences[slot] else { continue };
            match sequence.deadline_ns {
                0 => {}
                deadline if deadline <= now_ns => {
                    self.expired.push(sequence.id);
                    self.by_id.remove(&sequence.id);
                    self.remove(slot);
                }
                deadline => self.next_deadline_ns = self.next_deadline_ns.min(deadline),
            }
        }
    }

    fn plan_tokens(&mut self, drafts: &mut dyn Drafts) {
        self.turn.clear();
        let mut place = 0;
        while let Some((_, slot)) = self.running.get(place).copied() {
            if !self.at(slot).decodes() {
                place += 1;
            } else if self.make_ready(slot) {
                self.turn.push(slot);
                place += 1;
            } else if !self.revoke() {
                // Maybe the one that asks; never one that was asked before it.
                self.preempt_last();
            }
        }
        let prompts = self.turn.len() < self.running.len() || !self.waiting.is_empty();
        let reserved = if prompts { self.limits.rows_beside.min(self.limits.rows / 2) } else { 0 };
        let mut room = self.limits.rows.saturating_sub(self.turn.len() + reserved);
        for turn in 0..self.turn.len() {
            let slot = self.turn[turn];
            self.draft(slot, room, drafts);
            room -= self.drafts.len();
            self.push_part(slot, 1);
        }
        self.drafts.clear();
    }

    /// Gives a running sequence the blocks of all its tokens, and a block of its own where its next row goes. False where
    /// there are too few; what it got it keeps.
    fn make_ready(&mut self, slot: usize) -> bool {
        let size = self.limits.block_size;
        // PANIC: see `at`; the field is named so that the store can be borrowed beside it.
        let sequence = self.sequences[slot].as_mut().expect("a slot in a list has a sequence");
        while sequence.table.len() * size < sequence.tokens.len() {
            let Some(block) = self.store.take() else { return false };
            sequence.table.push(block);
        }
        let at = sequence.computed / size;
        let own = sequence.table[at];
        if !self.store.is_shared(own) {
            return true;
        }
        if let Some(copy) = self.store.take() {
            sequence.source = Some((at, own));
            sequence.table[at] = copy;
            sequence.named = sequence.named.min(at);
            return true;
        }
        // The block cannot have children in the index: they would be cached, and then there would be one to take.
        let alone = self.store.pool.refs(own) == 1;
        if alone {
            self.store.unname(own);
            sequence.named = sequence.named.min(at);
        }
        alone
    }

    /// Asks for drafts, at most `room`, and sees to their blocks as long as nobody has to give way for them.
    fn draft(&mut self, slot: usize, room: usize, drafts: &mut dyn Drafts) {
        self.drafts.clear();
        let size = self.limits.block_size;
        // PANIC: as above.
        let sequence = self.sequences[slot].as_mut().expect("a slot in a list has a sequence");
        let length = sequence.tokens.len();
        // One token comes after the last draft, and it may be the last of all.
        let room = room.min(sequence.most - length - 1);
        if room == 0 {
            return;
        }
        drafts.propose(sequence.id, &sequence.tokens, room, &mut self.drafts);
        self.drafts.truncate(room);
        let wanted = (length + self.drafts.len()).div_ceil(size);
        while sequence.table.len() < wanted && self.store.available() > self.running.len() {
            let Some(block) = self.store.take() else { break };
            sequence.table.push(block);
        }
        self.drafts.truncate(sequence.table.len() * size - length);
    }

    /// How many rows of prompts may be in the batch.
    fn most_rows_of_prompts(&self) -> usize {
        let beside = self.limits.rows_beside;
        let enough = beside + beside / 2;
        // Where more wait for their prompts than decode, small steps would hold up the many for the few.
        let prompts = self.running.len() - self.turn.len() + self.waiting.len();
        if prompts > self.turn.len() {
            self.limits.rows
        } else if self.rows_of_prompts_are_within(enough) {
            // A rest of less than half a step is no step of its own, for which everybody would wait.
            enough
        } else {
            beside
        }
    }

    /// Whether all prompts together have no more rows than these to come; what the cache has of them counts as well.
    fn rows_of_prompts_are_within(&self, most: usize) -> bool {
        let slots = self.running.iter().chain(&self.waiting).map(|(_, slot)| self.at(*slot));
        let mut rows = slots.filter(|sequence| sequence.planned == 0).map(Sequence::rows_to_come);
        rows.try_fold(0, |sum, rows| Some(sum + rows).filter(|sum| *sum <= most)).is_some()
    }

    /// Chunks of prompts, the first in order first, be it running or waiting.
    fn plan_prompts(&mut self) {
        let mut left = self.most_rows_of_prompts().min(self.limits.rows - self.batch.ids.len());
        let (mut place, mut next) = (0, 0);
        let mut open = true;
        while left > 0 {
            let running = self.running.get(place).copied();
            if let Some((_, slot)) = running
                && self.at(slot).planned > 0
            {
                place += 1;
                continue;
            }
            open &= self.running.len() < self.limits.sequences;
            let waiting = self.waiting.get(next).copied().filter(|_| open);
            let slot = match (running, waiting) {
                (running, Some((rank, slot))) if running.is_none_or(|(other, _)| rank < other) => {
                    match self.admit(slot) {
                        Entrance::In => {
                            self.waiting.remove(next);
                            insert(&mut self.running, rank, slot);
                        }
                        Entrance::Shares => {
                            next += 1;
                            continue;
                        }
                        // Where none runs there is room, but for states on their way.
                        Entrance::NoRoom if self.running.is_empty() && self.revoke() => continue,
                        Entrance::NoRoom => {
                            open = false;
                            continue;
                        }
                    }
                    slot
                }
                (Some((_, slot)), _) => slot,
                (None, _) => break,
            };
            // Either stood here, or came in before those who stand here.
            place += 1;
            let sequence = self.at(slot);
            let rows = left.min(sequence.rows_to_come());
            if self.make_ready(slot) {
                self.push_part(slot, rows);
                left -= rows;
            }
        }
    }

    /// Puts the next rows of a sequence into the batch, and the drafts behind them.
    fn push_part(&mut self, slot: usize, rows: usize) {
        let size = self.limits.block_size;
        // PANIC: as above.
        let sequence = self.sequences[slot].as_mut().expect("a slot in a list has a sequence");
        let batch = &mut self.batch;
        let past = sequence.computed;
        let length = past + rows + self.drafts.len();
        let first_row = batch.ids.len();
        if let Some((at, from)) = sequence.source {
            batch.copies.push(BlockCopy { from, to: sequence.table[at] });
        }
        let tokens = sequence.tokens[past..past + rows].iter().chain(&self.drafts);
        batch.ids.extend(tokens.map(|token| i64::from(*token)));
        batch.positions.extend((past..length).map(|position| position as i64));
        let first_sampled = batch.sampled_rows.len();
        let scored = sequence.scored.max(past)..sequence.score_end().min(past + rows);
        batch.sampled_rows.extend(scored.clone().map(|position| (first_row + position - past) as i64));
        let ends = past + rows == sequence.tokens.len();
        let next = if ends { 1 + self.drafts.len() } else { 0 };
        let row_end = batch.ids.len();
        batch.sampled_rows.extend((row_end - next..row_end).map(|row| row as i64));
        batch.parts.push(Part {
            id: sequence.id,
            first_row: first_row as u32,
            rows: (rows + self.drafts.len()) as u32,
            past: past as u32,
            first_sampled: first_sampled as u32,
            scored: scored.len() as u32,
            scored_from: scored.start as u32,
            next: next as u32,
        });
        batch.end_part(past, length, &sequence.table[..length.div_ceil(size)]);
        sequence.planned = rows + self.drafts.len();
        self.out.push(slot);
    }

    /// The model could not compute the step that is out: it is as if it had not been planned, but for who was let in, who
    /// gave way and who expired. The same rows come again with the next plan.
    pub fn abandon(&mut self) {
        for place in 0..self.out.len() {
            let slot = self.out[place];
            // PANIC: as above.
            let sequence = self.sequences[slot].as_mut().expect("a slot in a list has a sequence");
            sequence.planned = 0;
            if let Some((at, block)) = sequence.source.take() {
                let copy = std::mem::replace(&mut sequence.table[at], block);
                self.store.release(copy);
                if self.store.index.names(block) {
                    sequence.named = at + 1;
                }
            }
            let needed = sequence.tokens.len().div_ceil(self.limits.block_size);
            trim(&mut self.store, sequence, needed);
            if sequence.doomed {
                self.remove(slot);
            }
        }
        self.out.clear();
        self.batch.clear();
    }
}
