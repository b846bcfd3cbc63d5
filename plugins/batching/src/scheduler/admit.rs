//! Who is let in, and who gives way.

use super::{Scheduler, give_back, insert};
use crate::load::Admitted;
use crate::prefix::Found;

/// What became of a waiting sequence that was next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entrance {
    /// It runs.
    In,
    /// One before it is computing the block that it needs next: it waits for that one instead of computing the same.
    Shares,
    /// There are too few blocks. Nobody behind it is let in before it.
    NoRoom,
}

impl Scheduler {
    /// Lets a waiting sequence in if there are blocks for all its tokens: those of the index that fit, and new ones. With
    /// others running one block for each of them is left over, so that they need not give way at once. (One of these is
    /// for the copy of the last block where the index has everything; where none runs, `make_ready` needs no copy.) One that
    /// gave way in this plan needs more than it gave, and does not come in again.
    pub(super) fn admit(&mut self, slot: usize) -> Entrance {
        self.find_hits(slot);
        if self.is_under_way(slot) {
            return Entrance::Shares;
        }
        let size = self.limits.block_size;
        // PANIC: see `at`; the field is named so that the store can be borrowed beside it.
        let sequence = self.sequences[slot].as_mut().expect("a slot in a list has a sequence");
        let length = sequence.tokens.len();
        let fresh = self.limits.blocks_for(length) - self.hits.len();
        let cached = self.hits.iter().filter(|block| self.store.pool.refs(**block) == 0).count();
        if fresh + self.running.len() > self.store.available() - cached {
            return Entrance::NoRoom;
        }
        for block in &self.hits {
            self.store.pool.hold(*block);
        }
        sequence.table.extend_from_slice(&self.hits);
        sequence.table.extend((0..fresh).map_while(|_| self.store.take()));
        sequence.computed = (self.hits.len() * size).min(length - 1);
        sequence.named = self.hits.len();
        self.stays += 1;
        sequence.stay = self.stays;
        if !sequence.admitted {
            sequence.admitted = true;
            self.load.query_tokens += length as u64;
            self.load.hit_tokens += sequence.computed as u64;
            self.admitted.push(Admitted { id: sequence.id, cached: sequence.computed });
        }
        Entrance::In
    }

    /// The longest chain of indexed blocks with which a sequence begins. A sequence whose rows are all wanted takes what it
    /// has given rows of already, before it gave way.
    fn find_hits(&mut self, slot: usize) {
        self.hits.clear();
        // PANIC: as above.
        let sequence = self.sequences[slot].as_ref().expect("a slot in a list has a sequence");
        let unscored = sequence.scored < sequence.score_end();
        let most = if unscored { sequence.scored / self.limits.block_size } else { sequence.hashes.len() };
        for at in 0..most.min(sequence.hashes.len()) {
            let text = sequence.text_behind(at, self.limits.block_size, self.hits.last().copied());
            let Found::Block(block) = self.store.index.find(text) else { break };
            self.hits.push(block);
        }
    }

    /// Whether a running sequence that goes before this one is about to compute the block behind the hits.
    fn is_under_way(&self, slot: usize) -> bool {
        let sequence = self.at(slot);
        let next = self.hits.len();
        let Some(hash) = sequence.hashes.get(next) else { return false };
        if sequence.scored < sequence.score_end() {
            return false;
        }
        let before = self.running.iter().take_while(|(rank, _)| *rank < sequence.rank);
        before
            .map(|(_, other)| self.at(*other))
            .any(|other| !other.closed && other.named <= next && other.hashes.get(next) == Some(hash))
    }

    /// The last of the running sequences gives its blocks back and waits. What it computed stays cached as long as it can.
    pub(super) fn preempt_last(&mut self) {
        let Some((rank, slot)) = self.running.pop() else { return };
        // PANIC: as above.
        let sequence = self.sequences[slot].as_mut().expect("a slot in a list has a sequence");
        give_back(&mut self.store, sequence);
        insert(&mut self.waiting, rank, slot);
        self.load.preemptions += 1;
    }
}
