//! The passes in plain Rust, written in lanes so that a compiler can make vectors of them.

use super::{BLOCK, CUTS, Kernel, LN2_HIGH, LN2_LOW, Passes, SERIES, Weighed};
use crate::row::NOTHING;

const LANES: usize = 16;

pub(super) static PASSES: Passes = Passes { kernel: Kernel::Portable, peak, sum, weigh, at_least, masked };

pub(super) fn peak(row: &[f32]) -> (f32, bool) {
    let mut max = [f32::NEG_INFINITY; LANES];
    let mut nan = [false; LANES];
    let mut chunks = row.chunks_exact(LANES);
    for chunk in &mut chunks {
        for lane in 0..LANES {
            let x = chunk[lane];
            max[lane] = if x > max[lane] { x } else { max[lane] };
            nan[lane] |= x.is_nan();
        }
    }
    let rest = chunks.remainder();
    let max = max.iter().chain(rest).fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m });
    (max, nan.iter().any(|&n| n) || rest.iter().any(|x| x.is_nan()))
}

/// `exp(y)`, and 0 below [`NOTHING`]; `y` must not be above 0.
#[inline]
pub(super) fn exp(y: f32) -> f32 {
    /// Adding it leaves the nearest whole number in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let clamped = if y < NOTHING { NOTHING } else { y };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (clamped - n * LN2_HIGH) - n * LN2_LOW;
    let mut p = SERIES[5];
    for c in SERIES[..5].iter().rev() {
        p = p * r + c;
    }
    let p = p * (r * r) + (r + 1.0);
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits());
    let power = f32::from_bits(exponent.wrapping_add(127) << 23);
    if y < NOTHING { 0.0 } else { p * power }
}

pub(super) fn sum(block: &[f32], max: f32, scale: f32) -> f32 {
    debug_assert!(block.len() <= BLOCK);
    let mut lanes = [0.0f32; LANES];
    let mut chunks = block.chunks_exact(LANES);
    for chunk in &mut chunks {
        for lane in 0..LANES {
            lanes[lane] += exp((chunk[lane] - max) * scale);
        }
    }
    for (lane, x) in chunks.remainder().iter().enumerate() {
        lanes[lane] += exp((x - max) * scale);
    }
    lanes.iter().sum()
}

/// Weights first, then one loop for each cut: sums and counts of all cuts together would not fit into the registers.
pub(super) fn weigh(block: &[f32], max: f32, scale: f32, cuts: &[f32; CUTS]) -> Weighed {
    assert!(block.len() <= BLOCK);
    let mut weights = [0.0f32; BLOCK];
    let mut values = [f32::NAN; BLOCK];
    let len = block.len().next_multiple_of(LANES).min(BLOCK);
    values[..block.len()].copy_from_slice(block);
    for (weight, x) in weights[..len].iter_mut().zip(&values[..len]) {
        *weight = exp((x - max) * scale);
    }
    let (mut mass, mut count) = ([0.0; CUTS], [0; CUTS]);
    for (i, &cut) in cuts.iter().enumerate() {
        let mut sums = [0.0f32; LANES];
        let mut counts = [0u32; LANES];
        for (values, weights) in values[..len].chunks_exact(LANES).zip(weights[..len].chunks_exact(LANES)) {
            for lane in 0..LANES {
                // Bits rather than a choice: a compiler makes jumps of the latter, ten times as slow.
                let stays = 0u32.wrapping_sub(u32::from(values[lane] >= cut));
                sums[lane] += f32::from_bits(weights[lane].to_bits() & stays);
                counts[lane] = counts[lane].wrapping_sub(stays);
            }
        }
        mass[i] = sums.iter().sum();
        count[i] = counts.iter().sum();
    }
    (mass, count)
}

pub(super) fn at_least(chunk: &[f32], cut: f32) -> u64 {
    debug_assert!(chunk.len() <= 64);
    let mut bits = 0;
    for (place, &x) in chunk.iter().enumerate() {
        bits |= u64::from(x >= cut) << place;
    }
    bits
}

pub(super) fn masked(row: &[f32], words: &[u32], copy: &mut [f32]) {
    assert!(words.len() * 32 >= row.len() && copy.len() == row.len());
    for ((from, to), &word) in row.chunks(32).zip(copy.chunks_mut(32)).zip(words) {
        for (bit, (x, y)) in from.iter().zip(to).enumerate() {
            let set = 0u32.wrapping_sub(word >> bit & 1);
            *y = f32::from_bits((x.to_bits() & set) | (f32::NEG_INFINITY.to_bits() & !set));
        }
    }
}
