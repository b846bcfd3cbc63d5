//! Every kind of pass against the portable one and against f64, over ragged lengths and values that are no usual numbers.

use super::*;
use crate::draw::random;

/// The kinds that this processor has; the portable one is always there.
fn kinds() -> Vec<&'static Passes> {
    Kernel::ALL.into_iter().filter_map(Passes::of).collect()
}

fn values(len: usize, seed: u64) -> Vec<f32> {
    (0..len).map(|at| (random(seed, at) * 60.0 - 40.0) as f32).collect()
}

const LENGTHS: [usize; 14] = [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 1000, 1024];
const SPECIAL: [f32; 7] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-42, f32::MAX, f32::MIN];

#[test]
fn every_kind_finds_the_same_peak_wherever_it_stands() {
    for passes in kinds() {
        assert_eq!((passes.peak)(&[]), (f32::NEG_INFINITY, false));
        for len in LENGTHS {
            for at in 0..len {
                let mut row = values(len, 1);
                row[at] = 30.0;
                assert_eq!((passes.peak)(&row), (30.0, false), "{:?} {len} {at}", passes.kernel);
                for special in SPECIAL {
                    row[at] = special;
                    let (max, nan) = (passes.peak)(&row);
                    let wanted =
                        row.iter().copied().filter(|x| !x.is_nan()).fold(f32::NEG_INFINITY, f32::max);
                    assert_eq!((max, nan), (wanted, special.is_nan()), "{:?} {len} {at}", passes.kernel);
                }
            }
        }
    }
}

#[test]
fn every_kind_sums_within_a_millionth_of_f64() {
    for passes in kinds() {
        for len in LENGTHS {
            for (seed, scale) in [(1, 1.0), (2, 1.0 / 0.8), (3, 0.001), (4, 30.0)] {
                let mut row = values(len, seed);
                row.push(20.5);
                if len > 2 {
                    row[1] = f32::NEG_INFINITY;
                }
                row.truncate(BLOCK);
                let exact: f64 = row
                    .iter()
                    .map(|&x| (f64::from(x) - 20.5) * f64::from(scale))
                    .filter(|&y| y >= f64::from(crate::row::NOTHING))
                    .map(f64::exp)
                    .sum();
                let sum = f64::from((passes.sum)(&row, 20.5, scale));
                assert!((sum - exact).abs() <= 1e-6 * exact, "{:?}: {sum} {exact}", passes.kernel);
            }
        }
    }
}

#[test]
fn every_kind_weighs_and_counts_what_is_at_and_above_each_cut() {
    for passes in kinds() {
        for len in LENGTHS {
            let mut row = values(len, 9);
            let cuts = [row[len / 2], 3.25, row[len - 1].min(-7.0), f32::NEG_INFINITY];
            row[0] = f32::NEG_INFINITY;
            let (mass, count) = (passes.weigh)(&row, 20.0, 0.7, &cuts);
            for i in 0..CUTS {
                let stay: Vec<f32> = row.iter().copied().filter(|&x| x >= cuts[i]).collect();
                let exact: f64 = stay.iter().map(|&x| ((f64::from(x) - 20.0) * 0.7).exp()).sum();
                assert_eq!(count[i] as usize, stay.len(), "{:?} {len} {i}", passes.kernel);
                let apart = (f64::from(mass[i]) - exact).abs();
                assert!(apart <= 2e-6 * exact, "{:?} {len}: {} {exact}", passes.kernel, mass[i]);
            }
        }
    }
}

#[test]
fn the_bits_of_a_chunk_are_those_of_a_plain_comparison() {
    for passes in kinds() {
        for len in LENGTHS.into_iter().filter(|&len| len <= 64) {
            let mut chunk = values(len, 5);
            for (at, &special) in SPECIAL.iter().enumerate().take(len) {
                chunk[len - 1 - at] = special;
            }
            for cut in [f32::NEG_INFINITY, -10.0, 0.0, -0.0, 1e-42, f32::MAX, f32::INFINITY] {
                let wanted =
                    chunk.iter().enumerate().fold(0, |bits, (at, &x)| bits | u64::from(x >= cut) << at);
                assert_eq!((passes.at_least)(&chunk, cut), wanted, "{:?} {len} {cut}", passes.kernel);
            }
        }
    }
}

#[test]
fn a_masked_copy_has_the_bits_of_the_row_or_minus_infinity() {
    for passes in kinds() {
        for len in LENGTHS {
            let mut row = values(len, 6);
            row[len / 2] = f32::NAN;
            row[len - 1] = -0.0;
            let words: Vec<u32> = (0..len.div_ceil(32) + 1).map(|at| (random(7, at) * 4e9) as u32).collect();
            let mut copy = vec![1.0; len];
            (passes.masked)(&row, &words, &mut copy);
            for (at, (x, y)) in row.iter().zip(&copy).enumerate() {
                let set = words[at / 32] >> (at % 32) & 1 == 1;
                let wanted = if set { *x } else { f32::NEG_INFINITY };
                assert_eq!(wanted.to_bits(), y.to_bits(), "{:?} {len} {at}", passes.kernel);
            }
        }
    }
}

#[test]
fn the_best_kind_is_the_first_that_is_here() {
    assert!(Kernel::Portable.is_here());
    assert_eq!(Some(Kernel::best()), kinds().first().map(|p| p.kernel));
    assert!(kinds().len() > 1 || !cfg!(target_feature = "avx2"));
}
