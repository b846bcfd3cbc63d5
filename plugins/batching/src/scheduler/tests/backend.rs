//! A model without weights: the next token is a hash of all tokens before it, read from where the batch says they lie.
//!
//! A block of a wrong table, one that was given away too early or copied too late has other tokens in it, and then the text
//! is another.

use crate::Batch;

/// Tokens are below this: few, so that texts have beginnings in common.
pub(super) const VOCABULARY: u32 = 40;

const SEED: u64 = 0xcbf2_9ce4_8422_2325;

fn fold(state: u64, token: u32) -> u64 {
    (state ^ u64::from(token)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17)
}

fn token(state: u64) -> u32 {
    ((state.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % u64::from(VOCABULARY)) as u32
}

/// What the model says after a text.
pub(super) fn next(tokens: &[u32]) -> u32 {
    token(tokens.iter().fold(SEED, |state, token| fold(state, *token)))
}

/// The text of a prompt with `more` tokens, by nothing but the model.
pub(super) fn plain(prompt: &[u32], more: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    let mut state = prompt.iter().fold(SEED, |state, token| fold(state, *token));
    for _ in 0..more {
        let next = token(state);
        state = fold(state, next);
        tokens.push(next);
    }
    tokens
}

/// Instead of keys and values each cell has the token that was computed there.
pub(super) struct Backend {
    cells: Vec<u32>,
    block_size: usize,
}

impl Backend {
    pub(super) fn new(blocks: usize, block_size: usize) -> Self {
        Backend { cells: vec![u32::MAX; blocks * block_size], block_size }
    }

    fn cell(&self, blocks: &[i32], position: usize) -> usize {
        blocks[position / self.block_size] as usize * self.block_size + position % self.block_size
    }

    /// Runs a step and gives the token of each sampled row. All rows are written before any is read, as in each layer
    /// of a real model.
    pub(super) fn infer(&mut self, batch: &Batch, answers: &mut Vec<u32>) {
        let size = self.block_size;
        for copy in &batch.copies {
            let from = copy.from as usize * size;
            self.cells.copy_within(from..from + size, copy.to as usize * size);
        }
        for (place, part) in batch.parts.iter().enumerate() {
            for row in part.first_row..part.first_row + part.rows {
                let cell = self.cell(batch.blocks(place), batch.positions[row as usize] as usize);
                self.cells[cell] = batch.ids[row as usize] as u32;
            }
        }
        answers.clear();
        for (place, part) in batch.parts.iter().enumerate() {
            // One walk over the text answers all rows of a part, which ascend.
            let (mut state, mut at) = (SEED, 0);
            for row in &batch.sampled_rows[part.sampled()] {
                let position = batch.positions[*row as usize] as usize;
                while at <= position {
                    let size = size.min(position + 1 - at).min(self.block_size - at % self.block_size);
                    let cell = self.cell(batch.blocks(place), at);
                    state =
                        self.cells[cell..cell + size].iter().fold(state, |state, token| fold(state, *token));
                    at += size;
                }
                answers.push(token(state));
            }
        }
    }

    /// A step that breaks in the middle: what it may write is worthless.
    pub(super) fn fail(&mut self, batch: &Batch) {
        let size = self.block_size;
        for copy in &batch.copies {
            self.cells[copy.to as usize * size..(copy.to as usize + 1) * size].fill(u32::MAX - 1);
        }
        for (place, part) in batch.parts.iter().enumerate() {
            for position in part.past..part.past + part.rows {
                let cell = self.cell(batch.blocks(place), position as usize);
                self.cells[cell] = u32::MAX - 1;
            }
        }
    }

    /// The content of the first `positions` cells of some blocks.
    pub(super) fn export(&self, blocks: &[u32], positions: usize) -> Vec<u32> {
        let blocks: Vec<i32> = blocks.iter().map(|block| *block as i32).collect();
        (0..positions).map(|position| self.cells[self.cell(&blocks, position)]).collect()
    }

    pub(super) fn import(&mut self, blocks: &[u32], content: &[u32]) {
        let blocks: Vec<i32> = blocks.iter().map(|block| *block as i32).collect();
        for (position, token) in content.iter().enumerate() {
            let cell = self.cell(&blocks, position);
            self.cells[cell] = *token;
        }
    }
}
