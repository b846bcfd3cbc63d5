//! Which blocks of the draft model's cache are free.

/// See the file.
#[derive(Debug)]
pub(super) struct Pool {
    free: Vec<u32>,
}

impl Pool {
    pub(super) fn new(blocks: usize) -> Pool {
        Pool { free: (0..u32::try_from(blocks).unwrap_or(u32::MAX)).rev().collect() }
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Lengthens a table to so many blocks, or leaves it as it is where there are too few.
    pub(super) fn grow(&mut self, table: &mut Vec<u32>, blocks: usize) -> bool {
        let more = blocks.saturating_sub(table.len());
        if more > self.free.len() {
            return false;
        }
        table.extend(self.free.drain(self.free.len() - more..).rev());
        true
    }

    /// Takes the blocks of a table back.
    pub(super) fn give(&mut self, table: Vec<u32>) {
        self.free.extend(table);
    }
}
