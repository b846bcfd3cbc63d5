//! The passes in 512-bit vectors. What is left of a row behind the last whole vector is read under a mask.
#![expect(unsafe_code, reason = "vector loads and stores, and calls of functions that need AVX-512")]

use super::{AHEAD, BLOCK, CUTS, Kernel, LN2_HIGH, LN2_LOW, Passes, SERIES, Weighed};
use crate::row::NOTHING;
use std::arch::x86_64::*;

const LANES: usize = 16;

/// Only `Passes::of` hands these out, and only where the processor has AVX-512 F, BW, DQ and VL.
pub(super) static PASSES: Passes = Passes {
    kernel: Kernel::Avx512,
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

/// Lanes that a chunk of up to 16 values has.
fn lanes(len: usize) -> __mmask16 {
    if len >= LANES { 0xffff } else { (1 << len) - 1 }
}

/// Up to 16 values; the lanes behind them hold `rest`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn load(chunk: &[f32], rest: __m512) -> __m512 {
    // SAFETY: only lanes are read for which the slice has a value.
    unsafe { _mm512_mask_loadu_ps(rest, lanes(chunk.len()), chunk.as_ptr()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn peak(row: &[f32]) -> (f32, bool) {
    let none = _mm512_set1_ps(f32::NEG_INFINITY);
    let mut max = [none; 4];
    let mut nan = [0; 4];
    let mut see = |i: usize, x| {
        nan[i] |= _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
        // Of a NaN and a number it takes the second.
        max[i] = _mm512_max_ps(x, max[i]);
    };
    // Whole vectors apart from the rest, so that only the rest is loaded under a mask.
    let wholes = row.chunks_exact(4 * LANES);
    for part in wholes.remainder().chunks(LANES) {
        see(0, load(part, none));
    }
    for whole in wholes {
        let ahead = whole.as_ptr().cast::<i8>().wrapping_add(AHEAD);
        for line in 0..4 {
            _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(line * 64));
        }
        for (i, part) in whole.chunks_exact(LANES).enumerate() {
            see(i, load(part, none));
        }
    }
    let both = _mm512_max_ps(_mm512_max_ps(max[0], max[1]), _mm512_max_ps(max[2], max[3]));
    (_mm512_reduce_max_ps(both), nan.iter().any(|&n| n != 0))
}

/// `exp(y)`, and 0 below [`NOTHING`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn exp(y: __m512) -> __m512 {
    let counts = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(y, _mm512_set1_ps(NOTHING));
    let y = _mm512_maskz_mov_ps(counts, y);
    let n = _mm512_roundscale_ps::<0>(_mm512_mul_ps(y, _mm512_set1_ps(std::f32::consts::LOG2_E)));
    let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_HIGH), y);
    let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_LOW), r);
    let mut p = _mm512_set1_ps(SERIES[5]);
    for c in SERIES[..5].iter().rev() {
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(*c));
    }
    let p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0)));
    _mm512_maskz_scalef_ps(counts, p, n)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn sum(block: &[f32], max: f32, scale: f32) -> f32 {
    debug_assert!(block.len() <= BLOCK);
    let (max, scale) = (_mm512_set1_ps(max), _mm512_set1_ps(scale));
    let none = _mm512_set1_ps(f32::NEG_INFINITY);
    let mut sums = [_mm512_setzero_ps(); 4];
    for chunk in block.chunks(4 * LANES) {
        for (i, part) in chunk.chunks(LANES).enumerate() {
            let y = _mm512_mul_ps(_mm512_sub_ps(load(part, none), max), scale);
            sums[i] = _mm512_add_ps(sums[i], exp(y));
        }
    }
    let both = _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
    _mm512_reduce_add_ps(both)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn weigh(block: &[f32], max: f32, scale: f32, cuts: &[f32; CUTS]) -> Weighed {
    debug_assert!(block.len() <= BLOCK);
    let (max, scale) = (_mm512_set1_ps(max), _mm512_set1_ps(scale));
    let none = _mm512_set1_ps(f32::NAN);
    let cuts = cuts.map(|cut| _mm512_set1_ps(cut));
    let mut sums = [_mm512_setzero_ps(); CUTS];
    let mut counts = [0; CUTS];
    let mut add = |x| {
        let weight = exp(_mm512_mul_ps(_mm512_sub_ps(x, max), scale));
        for i in 0..CUTS {
            let stays = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, cuts[i]);
            sums[i] = _mm512_mask_add_ps(sums[i], stays, sums[i], weight);
            counts[i] += stays.count_ones();
        }
    };
    // Whole vectors apart from the rest, so that only the rest is loaded under a mask.
    let parts = block.chunks_exact(LANES);
    let rest = parts.remainder();
    for part in parts {
        add(load(part, none));
    }
    if !rest.is_empty() {
        add(load(rest, none));
    }
    (sums.map(|s| _mm512_reduce_add_ps(s)), counts)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn at_least(chunk: &[f32], cut: f32) -> u64 {
    debug_assert!(chunk.len() <= 64);
    let (cut, none) = (_mm512_set1_ps(cut), _mm512_set1_ps(f32::NAN));
    let mut bits = 0;
    for (i, part) in chunk.chunks(LANES).enumerate() {
        let stays = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(load(part, none), cut);
        bits |= u64::from(stays) << (i * LANES);
    }
    bits
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn masked(row: &[f32], words: &[u32], copy: &mut [f32]) {
    assert!(words.len() * 32 >= row.len() && copy.len() == row.len());
    let none = _mm512_set1_ps(f32::NEG_INFINITY);
    for ((from, to), &word) in row.chunks(32).zip(copy.chunks_mut(32)).zip(words) {
        let halves = [word as u16, (word >> 16) as u16];
        for ((from, to), half) in from.chunks(LANES).zip(to.chunks_mut(LANES)).zip(halves) {
            let x = _mm512_mask_mov_ps(none, half, load(from, none));
            // SAFETY: only lanes are written for which the slice has a place.
            unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), lanes(to.len()), x) };
        }
    }
}
