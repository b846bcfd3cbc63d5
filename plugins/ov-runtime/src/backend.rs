//! What computes: the trait that the loop sees, and OpenVINO behind it.

use std::time::Duration;

use cascadia_batching::{Batch, BlockCopy};

use crate::ffi::{Facts, Model, Rows};

#[cfg(test)]
pub(crate) mod null;

/// A model with a cache of blocks. Errors are the library's words; after one the next inference may work again.
pub(crate) trait Backend: Send {
    fn facts(&self) -> Facts;

    /// Computes a batch; before it, its copies of blocks.
    fn infer<'a>(&'a mut self, batch: &'a Batch) -> Result<Logits<'a>, String>;

    /// Bytes of the first `rows` positions of a block, in all layers.
    fn rows_bytes(&self, rows: usize) -> usize;

    /// Reads the first `rows` positions of a block into as many bytes. What they mean hangs on model, device and precision.
    fn read_rows(&self, block: u32, rows: usize, to: &mut [u8]) -> Result<(), String>;

    /// Writes them back, into any block of a cache of the same form.
    fn write_rows(&mut self, block: u32, rows: usize, from: &[u8]) -> Result<(), String>;
}

/// Logits of the sampled rows, lent until the next inference.
pub(crate) struct Logits<'a> {
    values: &'a [f32],
    vocabulary: usize,
    /// Where the backend computed those of all rows: which of them are the sampled ones.
    rows: Option<&'a [i64]>,
    /// Time that it took to hand over the arrays.
    pub(crate) bind: Duration,
    /// Time that the inference took.
    pub(crate) infer: Duration,
}

impl<'a> Logits<'a> {
    /// The logits of sampled row `at`; none where there is no such row.
    pub(crate) fn row(&self, at: usize) -> Option<&'a [f32]> {
        let row = match self.rows {
            Some(rows) => usize::try_from(*rows.get(at)?).ok()?,
            None => at,
        };
        let from = row.checked_mul(self.vocabulary)?;
        self.values.get(from..from.checked_add(self.vocabulary)?)
    }
}

impl Backend for Model {
    fn facts(&self) -> Facts {
        Model::facts(self)
    }

    fn infer<'a>(&'a mut self, batch: &'a Batch) -> Result<Logits<'a>, String> {
        for &BlockCopy { from, to } in &batch.copies {
            self.copy_block(from as usize, to as usize)?;
        }
        let Facts { vocabulary, cut, .. } = Model::facts(self);
        let lent = Model::infer(
            self,
            &Rows {
                ids: &batch.ids,
                positions: &batch.positions,
                past: &batch.past_lens,
                row_begins: &batch.subsequence_begins,
                blocks: &batch.block_indices,
                block_begins: &batch.block_indices_begins,
                sampled: &batch.sampled_rows,
                longest: batch.max_context_len,
            },
        )?;
        let rows = (cut == 0).then_some(batch.sampled_rows.as_slice());
        Ok(Logits { values: lent.values, vocabulary, rows, bind: lent.bind, infer: lent.infer })
    }

    fn rows_bytes(&self, rows: usize) -> usize {
        Model::rows_bytes(self, rows)
    }

    fn read_rows(&self, block: u32, rows: usize, to: &mut [u8]) -> Result<(), String> {
        Model::read_rows(self, block as usize, rows, to)
    }

    fn write_rows(&mut self, block: u32, rows: usize, from: &[u8]) -> Result<(), String> {
        Model::write_rows(self, block as usize, rows, from)
    }
}
