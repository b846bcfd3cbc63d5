//! The likeliest tokens of a row, in one pass that seldom stops: a chunk is looked at only where something beats the worst
//! of those kept.

use crate::kernels::Passes;
use crate::order::{self, Edge};

/// Up to here the kept ones are a sorted list; beyond, inserting costs more than a selection over the whole row.
const LISTED: usize = 256;

/// The first `n` tokens of the row by [`order::key`], with their logits.
pub(crate) fn top(passes: &Passes, row: &[f32], n: usize) -> Vec<(f32, u32)> {
    listed(passes, row, n).into_iter().map(order::of).collect()
}

/// The edge that lets `k` tokens stay; `k` must be neither 0 nor more than the row has.
pub(crate) fn edge(passes: &Passes, row: &[f32], k: usize, keys: &mut Vec<u64>) -> Edge {
    let last = if k <= LISTED {
        listed(passes, row, k).last().copied()
    } else {
        keys.clear();
        keys.extend(row.iter().enumerate().map(|(token, &x)| order::key(x, token as u32)));
        let place = (k - 1).min(keys.len() - 1);
        Some(*keys.select_nth_unstable(place).1)
    };
    let (value, token) = order::of(last.expect("a row has tokens, and at least one is asked for"));
    Edge { value, token }
}

fn listed(passes: &Passes, row: &[f32], n: usize) -> Vec<u64> {
    let mut best: Vec<u64> = Vec::with_capacity(n + 1);
    if n == 0 {
        return best;
    }
    let mut worst = f32::NEG_INFINITY;
    for (at, chunk) in row.chunks(64).enumerate() {
        let mut bits = (passes.at_least)(chunk, worst);
        while bits != 0 {
            let place = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let key = order::key(chunk[place], (at * 64 + place) as u32);
            if best.len() == n && best.last().is_some_and(|&last| key >= last) {
                continue;
            }
            let to = best.partition_point(|&other| other < key);
            best.insert(to, key);
            best.truncate(n);
        }
        if let (true, Some(&last)) = (best.len() == n, best.last()) {
            // Equal ones come later and stay out: on a flat row they would all be looked at.
            worst = order::of(last).0.next_up();
        }
    }
    best
}
