//! The passes in 256-bit vectors. What is left of a row behind the last whole vector goes through a vector on the stack.
#![expect(unsafe_code, reason = "vector loads and stores, and calls of functions that need AVX2 and FMA")]

use super::{AHEAD, BLOCK, CUTS, Kernel, LN2_HIGH, LN2_LOW, Passes, SERIES, Weighed, portable};
use crate::row::NOTHING;
use std::arch::x86_64::*;

const LANES: usize = 8;

/// Only `Passes::of` hands these out, and only where the processor has AVX2 and FMA.
pub(super) static PASSES: Passes = Passes {
    kernel: Kernel::Avx2,
    // SAFETY: of all five: the processor has the features, as said above.
    peak: |row| unsafe { peak(row) },
    // SAFETY: as above.
    sum: |block, max, scale| unsafe { sum(block, max, scale) },
    // SAFETY: as above.
    weigh: |block, max, scale, cuts| unsafe { weigh(block, max, scale, cuts) },
    // SAFETY: as above.
    at_least: |chunk, cut| unsafe { at_least(chunk, cut) },
    // SAFETY: as above.
    masked: |row, words, copy| unsafe { masked(row, words, copy) },
};

/// Up to 8 values; the lanes behind them hold `rest`.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn load(chunk: &[f32], rest: f32) -> __m256 {
    let mut whole = [rest; LANES];
    let from = if chunk.len() >= LANES {
        chunk.as_ptr()
    } else {
        whole[..chunk.len()].copy_from_slice(chunk);
        whole.as_ptr()
    };
    // SAFETY: eight values lie there, in the slice or in `whole`.
    unsafe { _mm256_loadu_ps(from) }
}

/// The lanes of a vector.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn values(x: __m256) -> [f32; LANES] {
    let mut values = [0.0; LANES];
    // SAFETY: eight places lie there.
    unsafe { _mm256_storeu_ps(values.as_mut_ptr(), x) };
    values
}

#[target_feature(enable = "avx2,fma")]
fn peak(row: &[f32]) -> (f32, bool) {
    let none = _mm256_set1_ps(f32::NEG_INFINITY);
    let mut max = [none; 4];
    let mut nan = [_mm256_setzero_ps(); 4];
    for chunk in row.chunks(4 * LANES) {
        let ahead = chunk.as_ptr().cast::<i8>().wrapping_add(AHEAD);
        _mm_prefetch::<_MM_HINT_T0>(ahead);
        _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(64));
        for (i, part) in chunk.chunks(LANES).enumerate() {
            let x = load(part, f32::NEG_INFINITY);
            nan[i] = _mm256_or_ps(nan[i], _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
            // Of a NaN and a number it takes the second.
            max[i] = _mm256_max_ps(x, max[i]);
        }
    }
    let both = _mm256_max_ps(_mm256_max_ps(max[0], max[1]), _mm256_max_ps(max[2], max[3]));
    let any = _mm256_or_ps(_mm256_or_ps(nan[0], nan[1]), _mm256_or_ps(nan[2], nan[3]));
    (portable::peak(&values(both)).0, _mm256_movemask_ps(any) != 0)
}

/// `exp(y)`, and 0 below [`NOTHING`].
#[inline]
#[target_feature(enable = "avx2,fma")]
fn exp(y: __m256) -> __m256 {
    let counts = _mm256_cmp_ps::<_CMP_GE_OQ>(y, _mm256_set1_ps(NOTHING));
    let y = _mm256_and_ps(counts, y);
    let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm256_mul_ps(
        y,
        _mm256_set1_ps(std::f32::consts::LOG2_E),
    ));
    let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN2_HIGH), y);
    let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN2_LOW), r);
    let mut p = _mm256_set1_ps(SERIES[5]);
    for c in SERIES[..5].iter().rev() {
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(*c));
    }
    let p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0)));
    let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    let power = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent));
    _mm256_and_ps(counts, _mm256_mul_ps(p, power))
}

#[target_feature(enable = "avx2,fma")]
fn sum(block: &[f32], max: f32, scale: f32) -> f32 {
    debug_assert!(block.len() <= BLOCK);
    let (max, scale) = (_mm256_set1_ps(max), _mm256_set1_ps(scale));
    let mut sums = [_mm256_setzero_ps(); 4];
    for chunk in block.chunks(4 * LANES) {
        for (i, part) in chunk.chunks(LANES).enumerate() {
            let y = _mm256_mul_ps(_mm256_sub_ps(load(part, f32::NEG_INFINITY), max), scale);
            sums[i] = _mm256_add_ps(sums[i], exp(y));
        }
    }
    let both = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
    values(both).iter().sum()
}

#[target_feature(enable = "avx2,fma")]
fn weigh(block: &[f32], max: f32, scale: f32, cuts: &[f32; CUTS]) -> Weighed {
    debug_assert!(block.len() <= BLOCK);
    let (max, scale) = (_mm256_set1_ps(max), _mm256_set1_ps(scale));
    let cuts = cuts.map(|cut| _mm256_set1_ps(cut));
    let mut sums = [_mm256_setzero_ps(); CUTS];
    let mut counts = [_mm256_setzero_si256(); CUTS];
    let mut add = |x| {
        let weight = exp(_mm256_mul_ps(_mm256_sub_ps(x, max), scale));
        for i in 0..CUTS {
            let stays = _mm256_cmp_ps::<_CMP_GE_OQ>(x, cuts[i]);
            sums[i] = _mm256_add_ps(sums[i], _mm256_and_ps(stays, weight));
            counts[i] = _mm256_sub_epi32(counts[i], _mm256_castps_si256(stays));
        }
    };
    let parts = block.chunks_exact(LANES);
    let rest = parts.remainder();
    for part in parts {
        add(load(part, f32::NAN));
    }
    if !rest.is_empty() {
        add(load(rest, f32::NAN));
    }
    let counted = |c| values(_mm256_castsi256_ps(c)).iter().map(|n| n.to_bits()).sum();
    (sums.map(|s| values(s).iter().sum()), counts.map(counted))
}

#[target_feature(enable = "avx2,fma")]
fn at_least(chunk: &[f32], cut: f32) -> u64 {
    debug_assert!(chunk.len() <= 64);
    let cut = _mm256_set1_ps(cut);
    let mut bits = 0;
    for (i, part) in chunk.chunks(LANES).enumerate() {
        let stays = _mm256_cmp_ps::<_CMP_GE_OQ>(load(part, f32::NAN), cut);
        bits |= (_mm256_movemask_ps(stays) as u64) << (i * LANES);
    }
    bits
}

#[target_feature(enable = "avx2,fma")]
fn masked(row: &[f32], words: &[u32], copy: &mut [f32]) {
    assert!(words.len() * 32 >= row.len() && copy.len() == row.len());
    let none = _mm256_set1_ps(f32::NEG_INFINITY);
    let places = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    for ((from, to), &word) in row.chunks(32).zip(copy.chunks_mut(32)).zip(words) {
        for (i, (from, to)) in from.chunks(LANES).zip(to.chunks_mut(LANES)).enumerate() {
            let byte = _mm256_set1_epi32((word >> (i * LANES)) as i32 & 0xff);
            let set = _mm256_cmpeq_epi32(_mm256_and_si256(byte, places), places);
            let x = _mm256_blendv_ps(none, load(from, 0.0), _mm256_castsi256_ps(set));
            if to.len() >= LANES {
                // SAFETY: eight places lie there.
                unsafe { _mm256_storeu_ps(to.as_mut_ptr(), x) };
            } else {
                to.copy_from_slice(&values(x)[..to.len()]);
            }
        }
    }
}
