//! Whole rows through the passes of the kernels: blocks that f32 lanes can add without harm, summed in f64.

use crate::kernels::{BLOCK, CUTS, Passes};
use crate::scratch::Error;

/// Exponents of weights below this one count as nothing, since the smallest of their f32 weights would be no normal number; all of a large
/// vocabulary together weigh less than 1e-32 there.
pub(crate) const NOTHING: f32 = -87.0;

/// The largest value of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Peak {
    /// No NaN, and not minus infinity. Tokens at plus infinity share everything.
    pub(crate) max: f32,
    /// Where the first block begins that has it.
    pub(crate) from: usize,
}

impl Peak {
    pub(crate) fn is_infinite(self) -> bool {
        self.max == f32::INFINITY
    }
}

/// What stands at and above each of some cuts, together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Shares {
    pub(crate) mass: [f64; CUTS],
    pub(crate) count: [usize; CUTS],
}

/// The largest value; an error where a value is no number, or all are minus infinity.
pub(crate) fn peak(passes: &Passes, row: &[f32]) -> Result<Peak, Error> {
    let mut peak = Peak { max: f32::NEG_INFINITY, from: 0 };
    for (at, block) in row.chunks(BLOCK).enumerate() {
        match (passes.peak)(block) {
            (_, true) => return Err(Error::NotANumber),
            (max, _) if max > peak.max => peak = Peak { max, from: at * BLOCK },
            _ => {}
        }
    }
    if peak.max == f32::NEG_INFINITY { Err(Error::NothingAllowed) } else { Ok(peak) }
}

/// Sum of `exp((x - max) * scale)`.
pub(crate) fn total(passes: &Passes, row: &[f32], max: f32, scale: f32) -> f64 {
    row.chunks(BLOCK).map(|block| f64::from((passes.sum)(block, max, scale))).sum()
}

/// Sums of `exp((x - max) * scale)` over what is at least each cut, and how many that are.
pub(crate) fn shares(passes: &Passes, row: &[f32], max: f32, scale: f32, cuts: &[f32; CUTS]) -> Shares {
    let mut all = Shares::default();
    for block in row.chunks(BLOCK) {
        let (mass, count) = (passes.weigh)(block, max, scale, cuts);
        for i in 0..CUTS {
            all.mass[i] += f64::from(mass[i]);
            all.count[i] += count[i] as usize;
        }
    }
    all
}

/// Calls `with(token, logit)` for what is at least `low`, and below `high` if that is given, in the order of ids, until it answers
/// false. Whether all were seen.
pub(crate) fn each_in(
    passes: &Passes,
    row: &[f32],
    low: f32,
    high: Option<f32>,
    mut with: impl FnMut(u32, f32) -> bool,
) -> bool {
    for (at, chunk) in row.chunks(64).enumerate() {
        let mut bits = (passes.at_least)(chunk, low);
        if let Some(high) = high {
            bits &= !(passes.at_least)(chunk, high);
        }
        while bits != 0 {
            let place = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            if !with((at * 64 + place) as u32, chunk[place]) {
                return false;
            }
        }
    }
    true
}
