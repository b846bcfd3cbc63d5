//! Which sequences run, which wait, and what the next step computes.
//!
//! Between `plan` and `commit` or `abandon` one step is out. What happens meanwhile (a sequence comes, one is cancelled)
//! takes effect with the next plan. All order is that of [`Rank`]: who is let in, whose prompt is computed first, and, from
//! its end, who gives way.
//!
//! Always: if any sequence lives, `plan` gives a batch, since the first of the running ones always gets what it needs, and
//! where none runs the first of the waiting ones fits. So every sequence comes to its end, whatever the others do.

mod admit;
mod commit;
mod moving;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use crate::batch::Batch;
use crate::blocks::Block;
use crate::entry::{Entry, Id, Refused};
use crate::events::Log;
use crate::limits::{Impossible, Limits};
use crate::load::{Admitted, Load};
use crate::sequence::{Rank, Sequence};
use crate::store::Store;

use moving::Reservation;
pub use moving::{State, Ticket};

/// The scheduler of one model on one thread.
pub struct Scheduler {
    limits: Limits,
    store: Store,
    /// By slot.
    sequences: Vec<Option<Sequence>>,
    free_slots: Vec<usize>,
    by_id: HashMap<Id, usize, BuildHasherDefault<DefaultHasher>>,
    /// Those with blocks and those without, each in order of rank.
    running: Vec<(Rank, usize)>,
    waiting: Vec<(Rank, usize)>,
    /// States on their way, in the order in which they came.
    reserved: Vec<Reservation>,
    /// Times that a sequence was given its blocks.
    stays: u64,
    /// Number of the next sequence.
    number: u64,
    /// The earliest deadline of all; `u64::MAX` = none.
    next_deadline_ns: u64,
    batch: Batch,
    /// Slot of each part.
    out: Vec<usize>,
    expired: Vec<Id>,
    admitted: Vec<Admitted>,
    load: Load,
    /// Buffers of `plan`.
    turn: Vec<usize>,
    hits: Vec<Block>,
    drafts: Vec<u32>,
}

/// A sequence that gets one token from the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoding<'a> {
    /// The sequence.
    pub id: Id,
    /// Its tokens; all but the last are computed.
    pub tokens: &'a [u32],
    /// Most drafts that can be of use to it: one token comes after the last of them.
    pub room: usize,
}

impl Scheduler {
    /// An empty scheduler.
    ///
    /// # Errors
    /// Limits that contradict each other.
    pub fn new(limits: Limits) -> Result<Self, Impossible> {
        limits.check()?;
        Ok(Scheduler {
            store: Store::new(&limits),
            limits,
            sequences: Vec::new(),
            free_slots: Vec::new(),
            by_id: HashMap::default(),
            running: Vec::new(),
            waiting: Vec::new(),
            reserved: Vec::new(),
            stays: 0,
            number: 0,
            next_deadline_ns: u64::MAX,
            batch: Batch::default(),
            out: Vec::new(),
            expired: Vec::new(),
            admitted: Vec::new(),
            load: Load::default(),
            turn: Vec::new(),
            hits: Vec::new(),
            drafts: Vec::new(),
        })
    }

    /// Takes a sequence; it waits until a plan lets it in.
    ///
    /// # Errors
    /// Why it was not taken. Never [`Refused::NoRoom`].
    pub fn add(&mut self, entry: Entry, now_ns: u64) -> Result<(), Refused> {
        self.check(&entry)?;
        let new = self.waiting.iter().filter(|(_, slot)| !self.at(*slot).admitted).count();
        if new >= self.limits.waiting {
            return Err(Refused::Full { waiting: new });
        }
        let sequence = self.sequence(entry, now_ns);
        let (rank, slot) = self.settle(sequence);
        insert(&mut self.waiting, rank, slot);
        Ok(())
    }

    /// Ends a sequence: its blocks are free for the next plan (a step that is out is computed to its end first; its outcome
    /// for the sequence is ignored). False where none of this name lives.
    pub fn cancel(&mut self, id: Id) -> bool {
        let Some(slot) = self.by_id.remove(&id) else { return false };
        if self.out.contains(&slot) {
            self.at_mut(slot).doomed = true;
        } else {
            self.remove(slot);
        }
        true
    }

    /// Gives up everything that is kept for reuse; what runs goes on, and nothing it has computed so far or computes later is kept. For
    /// when what blocks mean has changed (weights, adapters).
    pub fn forget(&mut self) {
        self.store.forget();
        for (_, slot) in &self.running {
            if let Some(sequence) = &mut self.sequences[*slot] {
                sequence.named = 0;
                sequence.closed = true;
            }
        }
    }

    /// Prompt and generated text of a living sequence, as far as committed.
    #[must_use]
    pub fn tokens(&self, id: Id) -> Option<&[u32]> {
        Some(&self.at(*self.by_id.get(&id)?).tokens)
    }

    /// Those that decode, in their order, for who guesses for all of them ahead of the plan. The plan may still make one of
    /// them give way or end it.
    pub fn decoding(&self) -> impl Iterator<Item = Decoding<'_>> {
        let running = self.running.iter().map(|(_, slot)| self.at(*slot));
        running.filter(|sequence| sequence.decodes()).map(|sequence| Decoding {
            id: sequence.id,
            tokens: &sequence.tokens,
            room: sequence.most - sequence.tokens.len() - 1,
        })
    }

    /// Sequences that the last plan ended because their deadline had passed.
    #[must_use]
    pub fn expired(&self) -> &[Id] {
        &self.expired
    }

    /// Sequences that the last plan let in for the first time.
    #[must_use]
    pub fn admitted(&self) -> &[Admitted] {
        &self.admitted
    }

    /// No deadline of a living sequence passes before this: an engine that waits plans again then. It may be that of one
    /// that has ended since the last plan.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        (self.next_deadline_ns < u64::MAX).then_some(self.next_deadline_ns)
    }

    /// What it counts.
    #[must_use]
    pub fn load(&self) -> Load {
        let pool = &self.store.pool;
        Load {
            free: pool.free(),
            held: pool.held(),
            cached: pool.cached(),
            blocks: self.limits.blocks,
            waiting: self.waiting.len(),
            running: self.running.len(),
            ..self.load
        }
    }

    /// The log of blocks, for readers on other threads.
    #[must_use]
    pub fn log(&self) -> Arc<Log> {
        self.store.log.clone()
    }

    /// What it was made with.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    fn check(&self, entry: &Entry) -> Result<(), Refused> {
        entry.check()?;
        if self.by_id.contains_key(&entry.id) {
            return Err(Refused::Known(entry.id));
        }
        // The last token is only told, never computed.
        let needed = self.limits.blocks_for(entry.most - 1);
        if needed > self.limits.blocks {
            return Err(Refused::TooLarge { needed, blocks: self.limits.blocks });
        }
        Ok(())
    }

    fn sequence(&mut self, entry: Entry, now_ns: u64) -> Sequence {
        let rank = Rank::new(now_ns, entry.priority, self.limits.aging_ns, self.number);
        self.number += 1;
        let mut sequence = Sequence::new(entry, rank, !self.limits.prefix);
        if self.limits.prefix {
            sequence.hash(self.limits.block_size);
        }
        sequence
    }

    /// Gives a sequence a slot.
    fn settle(&mut self, sequence: Sequence) -> (Rank, usize) {
        let rank = sequence.rank;
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.sequences.push(None);
            self.sequences.len() - 1
        });
        if sequence.deadline_ns > 0 {
            self.next_deadline_ns = self.next_deadline_ns.min(sequence.deadline_ns);
        }
        self.by_id.insert(sequence.id, slot);
        self.sequences[slot] = Some(sequence);
        (rank, slot)
    }

    fn at(&self, slot: usize) -> &Sequence {
        // PANIC: slots in the lists are those of living sequences; `remove` takes both away.
        self.sequences[slot].as_ref().expect("a slot in a list has a sequence")
    }

    fn at_mut(&mut self, slot: usize) -> &mut Sequence {
        // PANIC: as above.
        self.sequences[slot].as_mut().expect("a slot in a list has a sequence")
    }

    /// Ends a sequence that is in no step and whose name is free already.
    fn remove(&mut self, slot: usize) {
        let Some(mut sequence) = self.sequences[slot].take() else { return };
        self.free_slots.push(slot);
        let list = if sequence.table.is_empty() { &mut self.waiting } else { &mut self.running };
        take_out(list, sequence.rank);
        give_back(&mut self.store, &mut sequence);
    }
}

/// Lets go of a sequence's blocks, the last first (see `blocks`).
fn give_back(store: &mut Store, sequence: &mut Sequence) {
    if let Some((_, block)) = sequence.source.take() {
        store.release(block);
    }
    for block in sequence.table.drain(..).rev() {
        store.release(block);
    }
    sequence.computed = 0;
    sequence.named = 0;
    sequence.planned = 0;
}

/// Lets go of the blocks behind those that a running sequence's tokens need.
fn trim(store: &mut Store, sequence: &mut Sequence, blocks: usize) {
    for block in sequence.table.drain(blocks.min(sequence.table.len())..).rev() {
        store.release(block);
    }
}

fn insert(list: &mut Vec<(Rank, usize)>, rank: Rank, slot: usize) {
    let place = list.partition_point(|(other, _)| *other < rank);
    list.insert(place, (rank, slot));
}

fn take_out(list: &mut Vec<(Rank, usize)>, rank: Rank) {
    if let Ok(place) = list.binary_search_by_key(&rank, |(other, _)| *other) {
        list.remove(place);
    }
}
