//! Pool, prefix index and log, which change together.
//!
//! What can be had is what is free and what is cached: a cached block never stands in the way of another (see `blocks`).

use std::sync::Arc;

use crate::blocks::{Block, Pool};
use crate::events::{Log, Run};
use crate::limits::Limits;
use crate::prefix::{Found, Index};
use crate::sequence::Sequence;

pub(crate) struct Store {
    pub(crate) pool: Pool,
    pub(crate) index: Index,
    pub(crate) log: Arc<Log>,
    /// The time for events.
    pub(crate) now_ns: u64,
    block_size: usize,
    /// Blocks of one event, filled again and again.
    run: Vec<(Block, u64)>,
}

impl Store {
    pub(crate) fn new(limits: &Limits) -> Self {
        Store {
            pool: Pool::new(limits.blocks),
            index: Index::new(limits.blocks, limits.block_size),
            log: Arc::new(Log::new(limits.blocks, limits.block_size, limits.events)),
            now_ns: 0,
            block_size: limits.block_size,
            run: Vec::new(),
        }
    }

    /// Blocks that [`Store::take`] would give, one after the other.
    pub(crate) fn available(&self) -> usize {
        self.pool.free() + self.pool.cached()
    }

    /// A block for writing: a free one, else the cached one that was unused longest.
    pub(crate) fn take(&mut self) -> Option<Block> {
        if self.pool.free() == 0 {
            let oldest = self.pool.oldest()?;
            self.unname(oldest);
            self.pool.discard(oldest);
        }
        self.pool.take()
    }

    pub(crate) fn release(&mut self, block: Block) {
        let keep = self.index.names(block);
        self.pool.release(block, keep);
    }

    /// Whether somebody else would see what is written into it.
    pub(crate) fn is_shared(&self, block: Block) -> bool {
        self.pool.refs(block) > 1 || self.index.names(block)
    }

    /// Takes a block out of the index.
    pub(crate) fn unname(&mut self, block: Block) {
        self.index.remove(block);
        self.log.removed(self.now_ns, block);
    }

    /// Names nothing any more; what nobody holds is free.
    pub(crate) fn forget(&mut self) {
        self.index.clear();
        while let Some(block) = self.pool.oldest() {
            self.pool.discard(block);
        }
        self.log.cleared(self.now_ns);
    }

    /// Names the blocks of a sequence that are full and computed. Where another block has the same text already, the
    /// sequence goes on with that one: each text is held once, and who holds an indexed block holds those before it.
    pub(crate) fn name_full(&mut self, sequence: &mut Sequence) {
        let full = sequence.computed / self.block_size;
        while !sequence.closed && sequence.named < full {
            let at = sequence.named;
            let text = sequence.text(at, self.block_size);
            let own = sequence.table[at];
            match self.index.find(text) {
                Found::Nothing => {
                    self.index.insert(own, text);
                    self.run.push((own, text.hash));
                    sequence.named += 1;
                }
                Found::Block(block) => {
                    self.tell(sequence);
                    if block != own {
                        self.pool.hold(block);
                        self.release(own);
                        sequence.table[at] = block;
                    }
                    sequence.named += 1;
                }
                Found::Other => sequence.closed = true,
            }
        }
        self.tell(sequence);
    }

    /// One event for the blocks just named, the last ones of the sequence that are.
    fn tell(&mut self, sequence: &Sequence) {
        if self.run.is_empty() {
            return;
        }
        let first = sequence.named - self.run.len();
        let run = Run {
            scope: &sequence.scope,
            parent: first.checked_sub(1).map(|before| sequence.hashes[before]),
            depth: first,
            blocks: &self.run,
            tokens: &sequence.tokens[first * self.block_size..sequence.named * self.block_size],
        };
        self.log.stored(self.now_ns, &run);
        self.run.clear();
    }
}
