//! A model that computes nothing and still tells whether everything around it is right: what comes next hangs on all tokens
//! before it, read through the table of blocks. A wrong table, a block written too early or read too late gives another text.

use std::time::Duration;

use cascadia_batching::{Batch, BlockCopy};

use super::{Backend, Logits};
use crate::ffi::Facts;

/// See the file.
pub(crate) struct Null {
    block: usize,
    vocabulary: usize,
    /// Token of each position of each block.
    cells: Vec<i64>,
    logits: Vec<f32>,
    /// Number of the inference that is next, and which of them fail.
    at: usize,
    fails: Vec<usize>,
    /// After this token the logits are no numbers.
    poison: Option<i64>,
    /// What comes next hangs on the last token alone, so that texts repeat themselves.
    repeats: bool,
    /// How often it says something else.
    wrong: Option<u32>,
    /// What an inference is said to take, and every row of it.
    costs: (Duration, Duration),
}

impl Null {
    pub(crate) fn new(block: usize, blocks: usize, vocabulary: usize) -> Null {
        Null {
            block,
            vocabulary,
            cells: vec![-1; block * blocks],
            logits: Vec::new(),
            at: 0,
            fails: Vec::new(),
            poison: None,
            repeats: false,
            wrong: None,
            costs: (Duration::ZERO, Duration::ZERO),
        }
    }

    /// Says something else than the others now and then: always at 1, at about every third place at 3.
    pub(crate) fn wrong(self, often: u32) -> Null {
        Null { wrong: Some(often), ..self }
    }

    /// What an inference is said to take, and every row of it.
    pub(crate) fn costing(self, base: Duration, row: Duration) -> Null {
        Null { costs: (base, row), ..self }
    }

    /// The inferences of these numbers, from 0, fail.
    pub(crate) fn failing(self, fails: &[usize]) -> Null {
        Null { fails: fails.to_vec(), ..self }
    }

    /// Texts repeat themselves, after a while.
    pub(crate) fn repeating(self) -> Null {
        Null { repeats: true, ..self }
    }

    /// After this token the logits are no numbers.
    pub(crate) fn poisoned(self, token: u32) -> Null {
        Null { poison: Some(token.into()), ..self }
    }
}

/// What comes after these tokens, all at temperature 0.
pub(crate) fn next(tokens: impl IntoIterator<Item = i64>, vocabulary: usize) -> u32 {
    let mut hash = 0x9e37_79b9_7f4a_7c15_u64;
    for token in tokens {
        hash = (hash ^ token.cast_unsigned()).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 29;
    }
    (hash % vocabulary as u64) as u32
}

impl Backend for Null {
    fn facts(&self) -> Facts {
        Facts::made_up(self.block, self.vocabulary)
    }

    fn infer<'a>(&'a mut self, batch: &'a Batch) -> Result<Logits<'a>, String> {
        self.at += 1;
        if self.fails.contains(&(self.at - 1)) {
            return Err("told to fail".to_owned());
        }
        for &BlockCopy { from, to } in &batch.copies {
            let (from, to) = (from as usize * self.block, to as usize * self.block);
            self.cells.copy_within(from..from + self.block, to);
        }
        self.logits.clear();
        for (n, window) in batch.subsequence_begins.windows(2).enumerate() {
            let table = &batch.block_indices
                [batch.block_indices_begins[n] as usize..batch.block_indices_begins[n + 1] as usize];
            let cell =
                |position: usize| table[position / self.block] as usize * self.block + position % self.block;
            for row in window[0] as usize..window[1] as usize {
                let position = batch.positions[row] as usize;
                assert_eq!(position, batch.past_lens[n] as usize + row - window[0] as usize);
                self.cells[cell(position)] = batch.ids[row];
                if !batch.sampled_rows.contains(&(row as i64)) {
                    continue;
                }
                let from = if self.repeats { position } else { 0 };
                let read: Vec<i64> = (from..=position).map(|at| self.cells[cell(at)]).collect();
                let begin = self.logits.len();
                let fill = if self.poison == Some(batch.ids[row]) { f32::NAN } else { 0.0 };
                self.logits.resize(begin + self.vocabulary, fill);
                let right = next(read, self.vocabulary);
                let errs = self.wrong.is_some_and(|often| (right + position as u32).is_multiple_of(often));
                let told = if errs { (right as usize + 1) % self.vocabulary } else { right as usize };
                self.logits[begin + told] += 9.0;
            }
        }
        Ok(Logits {
            values: &self.logits,
            vocabulary: self.vocabulary,
            rows: None,
            bind: Duration::ZERO,
            infer: self.costs.0 + self.costs.1 * batch.ids.len() as u32,
        })
    }

    fn rows_bytes(&self, rows: usize) -> usize {
        rows * 8
    }

    fn read_rows(&self, block: u32, rows: usize, to: &mut [u8]) -> Result<(), String> {
        assert!(rows <= self.block && to.len() == rows * 8);
        let from = block as usize * self.block;
        for (cell, place) in self.cells[from..from + rows].iter().zip(to.chunks_exact_mut(8)) {
            place.copy_from_slice(&cell.to_le_bytes());
        }
        Ok(())
    }

    fn write_rows(&mut self, block: u32, rows: usize, from: &[u8]) -> Result<(), String> {
        assert!(rows <= self.block && from.len() == rows * 8);
        let to = block as usize * self.block;
        for (cell, bytes) in self.cells[to..to + rows].iter_mut().zip(from.chunks_exact(8)) {
            *cell = i64::from_le_bytes(bytes.try_into().unwrap());
        }
        Ok(())
    }
}
