//! Sequences that move: what one has computed, and room for one that comes from elsewhere.
//!
//! While a state is on its way its blocks are reserved: nobody else has them, and no step knows of them. They give way
//! to whoever needs a block (the sender has the sequence still, and it can be added without its state), so that everyone
//! makes progress as without them. What came is believed by its own sequence alone: neither its blocks nor those computed
//! behind them are ever indexed.

use std::sync::{Arc, Weak};

use super::{Scheduler, insert};
use crate::blocks::Block;
use crate::entry::{Entry, Id, Refused};
use crate::sequence::Sequence;

/// A running sequence as it is between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State<'a> {
    /// Its tokens; the last ones may not be computed yet.
    pub tokens: &'a [u32],
    /// Where generated text begins in them.
    pub generated_from: usize,
    /// Positions that are computed.
    pub positions: usize,
    /// The blocks of these positions, in order. As long as `stay` is the same, those that are full stay where they are and
    /// are not written.
    pub blocks: &'a [u32],
    /// Counts how often any sequence was given its blocks, up to this one: another number, and it had given way.
    pub stay: u64,
}

/// Stands for the blocks of a state that is on its way. Dropped, they are given back with the next plan at the latest.
#[derive(Debug)]
pub struct Ticket(Arc<()>);

pub(super) struct Reservation {
    holder: Weak<()>,
    pub(super) blocks: Vec<Block>,
}

impl Scheduler {
    /// A running sequence, to be continued elsewhere. None where it does not live, waits, or has rows in a step that is
    /// out.
    #[must_use]
    pub fn state(&self, id: Id) -> Option<State<'_>> {
        let sequence = self.at(*self.by_id.get(&id)?);
        if sequence.table.is_empty() || sequence.planned > 0 {
            return None;
        }
        let blocks = &sequence.table[..self.limits.blocks_for(sequence.computed)];
        let Sequence { tokens, generated_from, computed, stay, .. } = sequence;
        Some(State { tokens, generated_from: *generated_from, positions: *computed, blocks, stay: *stay })
    }

    /// Reserves blocks for all tokens of a sequence of which `positions` are computed elsewhere. Nobody gives way for it.
    ///
    /// # Errors
    /// Why it cannot be taken; with [`Refused::NoRoom`] it may be added as a new one.
    pub fn reserve(&mut self, entry: &Entry, positions: usize) -> Result<Ticket, Refused> {
        self.sweep();
        self.check(entry)?;
        if positions >= entry.tokens.len() {
            return Err(Refused::Invalid("the last token must be left to compute; give one position less"));
        }
        let needed = self.limits.blocks_for(entry.tokens.len());
        let place = self.running.len() + self.reserved.len() < self.limits.sequences;
        let available = if place { self.store.available() } else { 0 };
        if needed > available {
            return Err(Refused::NoRoom { needed, available });
        }
        let ticket = Ticket(Arc::new(()));
        let blocks = (0..needed).map_while(|_| self.store.take()).collect();
        self.reserved.push(Reservation { holder: Arc::downgrade(&ticket.0), blocks });
        Ok(ticket)
    }

    /// The reserved blocks, in order, to be filled; none where they had to be given to others.
    #[must_use]
    pub fn reserved(&self, ticket: &Ticket) -> Option<&[u32]> {
        Some(&self.reserved[self.reservation(ticket)?].blocks)
    }

    /// Lets a sequence run whose first `positions` are in the reserved blocks now.
    ///
    /// # Errors
    /// Why it was not taken; its blocks are given back. With [`Refused::NoRoom`] it may be added as a new one.
    pub fn restore(
        &mut self,
        ticket: Ticket,
        entry: Entry,
        positions: usize,
        now_ns: u64,
    ) -> Result<(), Refused> {
        self.check(&entry)?;
        let needed = self.limits.blocks_for(entry.tokens.len());
        let held = self.reserved(&ticket).map_or(0, <[u32]>::len);
        if self.running.len() >= self.limits.sequences || held == 0 {
            return Err(Refused::NoRoom { needed, available: 0 });
        }
        if positions >= entry.tokens.len() || held != needed {
            return Err(Refused::Invalid("the sequence is another than its blocks were reserved for"));
        }
        let Some(at) = self.reservation(&ticket) else {
            return Err(Refused::NoRoom { needed, available: 0 });
        };
        let Reservation { blocks, .. } = self.reserved.remove(at);
        let mut sequence = self.sequence(entry, now_ns);
        sequence.table = blocks;
        sequence.computed = positions;
        sequence.scored = positions;
        sequence.admitted = true;
        sequence.closed = true;
        self.stays += 1;
        sequence.stay = self.stays;
        let (rank, slot) = self.settle(sequence);
        insert(&mut self.running, rank, slot);
        Ok(())
    }

    /// Gives back the blocks of states that nobody waits for any more.
    pub fn sweep(&mut self) {
        for at in (0..self.reserved.len()).rev() {
            if self.reserved[at].holder.strong_count() == 0 {
                self.drop_reservation(at);
            }
        }
    }

    /// Gives the blocks of the state that came last to those who need them. False where none is on its way.
    pub(super) fn revoke(&mut self) -> bool {
        let Some(last) = self.reserved.len().checked_sub(1) else { return false };
        self.drop_reservation(last);
        true
    }

    fn drop_reservation(&mut self, at: usize) {
        for block in self.reserved.remove(at).blocks.into_iter().rev() {
            self.store.release(block);
        }
    }

    fn reservation(&self, ticket: &Ticket) -> Option<usize> {
        self.reserved.iter().position(|one| std::ptr::eq(one.holder.as_ptr(), Arc::as_ptr(&ticket.0)))
    }
}
