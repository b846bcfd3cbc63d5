//! The pool: which blocks are free, held or cached. A block is in exactly one of these.
//!
//! Cached blocks stand in the order in which they were let go, the longest unused first. Whoever lets go of a sequence's
//! blocks does so from its last to its first, and who holds a block holds those before it: so a block always stands before
//! the one it follows, and the first in the order never has another behind it that needs it.

/// Number of a block.
pub(crate) type Block = u32;

pub(crate) struct Pool {
    /// How many hold each.
    refs: Vec<u32>,
    free: Vec<Block>,
    cached: usize,
    /// The order of cached blocks, as a ring through the element behind the last block.
    next: Vec<Block>,
    previous: Vec<Block>,
}

impl Pool {
    pub(crate) fn new(blocks: usize) -> Self {
        let count = u32::try_from(blocks).expect("Limits::check keeps it below 2^31");
        Pool {
            refs: vec![0; blocks],
            free: (0..count).rev().collect(),
            cached: 0,
            next: vec![count; blocks + 1],
            previous: vec![count; blocks + 1],
        }
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn cached(&self) -> usize {
        self.cached
    }

    pub(crate) fn held(&self) -> usize {
        self.refs.len() - self.free.len() - self.cached
    }

    pub(crate) fn refs(&self, block: Block) -> u32 {
        self.refs[block as usize]
    }

    /// A free block, held once from now on.
    pub(crate) fn take(&mut self) -> Option<Block> {
        let block = self.free.pop()?;
        self.refs[block as usize] = 1;
        Some(block)
    }

    /// One more holds a block that is held or cached.
    pub(crate) fn hold(&mut self, block: Block) {
        if self.refs[block as usize] == 0 {
            self.unlink(block);
        }
        self.refs[block as usize] += 1;
    }

    /// One less holds it; nobody: it is cached where it is worth keeping, free where not.
    pub(crate) fn release(&mut self, block: Block, keep: bool) {
        let refs = &mut self.refs[block as usize];
        debug_assert!(*refs > 0, "block {block} is let go of by one who does not hold it");
        *refs -= 1;
        if *refs > 0 {
            return;
        }
        if keep {
            self.link(block);
        } else {
            self.free.push(block);
        }
    }

    /// The cached block that was unused longest.
    pub(crate) fn oldest(&self) -> Option<Block> {
        (self.cached > 0).then(|| self.next[self.refs.len()])
    }

    /// Makes a cached block free.
    pub(crate) fn discard(&mut self, block: Block) {
        self.unlink(block);
        self.free.push(block);
    }

    fn link(&mut self, block: Block) {
        let end = self.refs.len();
        let last = self.previous[end];
        self.previous[block as usize] = last;
        self.next[block as usize] = self.next[last as usize];
        self.next[last as usize] = block;
        self.previous[end] = block;
        self.cached += 1;
    }

    fn unlink(&mut self, block: Block) {
        let (before, after) = (self.previous[block as usize], self.next[block as usize]);
        self.next[before as usize] = after;
        self.previous[after as usize] = before;
        self.cached -= 1;
    }

    #[cfg(test)]
    pub(crate) fn free_blocks(&self) -> &[Block] {
        &self.free
    }

    /// Cached blocks, the longest unused first.
    #[cfg(test)]
    pub(crate) fn cached_blocks(&self) -> Vec<Block> {
        let end = self.refs.len() as Block;
        std::iter::successors(Some(self.next[end as usize]), |at| Some(self.next[*at as usize]))
            .take_while(|at| *at != end)
            .collect()
    }
}
