//! Runs each kind of step once: the library makes the kernels of a kind at its first inference, and the first requests would
//! pay for it.

use cascadia_batching::Batch;
use cascadia_plugin_api::sdk::{Error, Result};

use crate::backend::Backend;
use crate::costs::Costs;

/// Numbers of rows whose costs are measured: a second or so for a small model.
const MEASURED: [usize; 11] = [1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 64];

/// A chunk of a prompt, one that decodes, and as many as may decode at once. Whatever it leaves in the blocks is written over
/// before it is read. `tell` gets how many of how many steps are done, and may end it.
///
/// # Errors
/// The model fails, or `tell` says stop.
pub(crate) fn up(
    backend: &mut dyn Backend,
    sequences: usize,
    rows: usize,
    blocks: usize,
    tell: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<()> {
    let size = backend.facts().block_tokens;
    let steps = [
        (1, rows.min(blocks.saturating_mul(size)), 0),
        (1, 1, 1),
        // A block each; with fewer, fewer decode at once in earnest too.
        (sequences.min(blocks), 1, 1),
    ];
    for (done, &(sequences, rows, past)) in steps.iter().enumerate() {
        tell(done as u64, steps.len() as u64)?;
        let batch = batch(sequences, rows, past, size);
        backend.infer(&batch).map(drop).map_err(|e| Error::backend(format!("warm-up: {e}")))?;
    }
    tell(steps.len() as u64, steps.len() as u64)
}

/// What inferences of one row each for some sequences cost, up to `most` rows (at least 1, and at most the blocks there are).
///
/// # Errors
/// As [`up`].
pub(crate) fn costs(
    backend: &mut dyn Backend,
    most: usize,
    tell: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<Costs> {
    let size = backend.facts().block_tokens;
    let mut costs = Costs::default();
    for (done, &rows) in MEASURED.iter().enumerate().take_while(|(_, rows)| **rows <= most.max(1)) {
        tell(done as u64, MEASURED.len() as u64)?;
        let batch = batch(rows, 1, 1, size);
        // The first makes the kernels.
        for counts in [false, true, true] {
            let done = backend.infer(&batch).map_err(|e| Error::backend(format!("warm-up: {e}")))?;
            if counts {
                costs.measured(rows, done.bind + done.infer);
            }
        }
    }
    Ok(costs)
}

/// So many sequences with so many new rows each, after `past` positions; their last rows are sampled.
fn batch(sequences: usize, rows: usize, past: usize, size: usize) -> Batch {
    let each = (past + rows).div_ceil(size);
    let numbers = |count: usize, step: usize| (0..=count).map(move |n| (n * step) as i32);
    Batch {
        // Any token will do; 1 is one of every vocabulary.
        ids: vec![1; sequences * rows],
        positions: (0..sequences).flat_map(|_| past as i64..(past + rows) as i64).collect(),
        past_lens: vec![past as i32; sequences],
        subsequence_begins: numbers(sequences, rows).collect(),
        block_indices: (0..(sequences * each) as i32).collect(),
        block_indices_begins: numbers(sequences, each).collect(),
        max_context_len: (past + rows) as i32,
        sampled_rows: (1..=sequences).map(|n| (n * rows) as i64 - 1).collect(),
        ..Batch::default()
    }
}
