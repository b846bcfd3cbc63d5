//! The arrays of an inference of the draft model, and its likeliest tokens.

use std::time::{Duration, Instant};

use cascadia_batching::Batch;

use crate::backend::Backend;

/// Makes room for another inference.
pub(super) fn clear(batch: &mut Batch) {
    let Batch { ids, positions, past_lens, subsequence_begins, block_indices, block_indices_begins, .. } =
        batch;
    ids.clear();
    positions.clear();
    past_lens.clear();
    block_indices.clear();
    for begins in [subsequence_begins, block_indices_begins] {
        begins.clear();
        begins.push(0);
    }
    batch.max_context_len = 0;
    batch.sampled_rows.clear();
}

/// Adds the rows of one text, from position `past` on; `told` where a guess comes after them. Tables hold at least the blocks
/// of these positions, all of which are numbered in 31 bits.
pub(super) fn add(batch: &mut Batch, tokens: &[u32], past: usize, table: &[u32], block: usize, told: bool) {
    let length = past + tokens.len();
    batch.ids.extend(tokens.iter().map(|&token| i64::from(token)));
    batch.positions.extend((past..length).map(|position| position as i64));
    batch.past_lens.push(past as i32);
    batch.subsequence_begins.push(batch.ids.len() as i32);
    batch.block_indices.extend(table.iter().take(length.div_ceil(block)).map(|&block| block.cast_signed()));
    batch.block_indices_begins.push(batch.block_indices.len() as i32);
    batch.max_context_len = batch.max_context_len.max(length as i32);
    if told {
        batch.sampled_rows.push(batch.ids.len() as i64 - 1);
    }
}

/// The likeliest token behind each row that is told, and the time that it took.
///
/// # Errors
/// The library's words.
pub(super) fn infer(backend: &mut dyn Backend, batch: &Batch) -> Result<(Vec<u32>, Duration), String> {
    let logits = backend.infer(batch)?;
    let begun = Instant::now();
    let told = (0..batch.sampled_rows.len()).map(|at| likeliest(logits.row(at).unwrap_or_default()));
    Ok((told.collect(), logits.bind + logits.infer + begun.elapsed()))
}

/// The place of the largest number, the first of equal ones. Of a row that has none 0: a guess may be wrong.
fn likeliest(row: &[f32]) -> u32 {
    const LANES: usize = 16;
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    let most = lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter().position(|&value| value == most).and_then(|at| u32::try_from(at).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_is_the_first_of_the_largest_whatever_else_is_in_the_row() {
        let mut row = vec![-3.0; 50];
        row[49] = 2.0;
        assert_eq!(likeliest(&row), 49);
        (row[7], row[20]) = (2.0, f32::NAN);
        assert_eq!(likeliest(&row), 7);
        assert_eq!((likeliest(&[]), likeliest(&[f32::NAN; 20])), (0, 0));
    }
}
