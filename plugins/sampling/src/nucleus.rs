//! Where the likeliest tokens of a row have a given share of it, without sorting the row.
//!
//! A pass weighs what stands at and above a few cuts. The edge lies between two neighbouring ones; what is between is cut anew
//! until few enough tokens are left to sort. So a flat row costs some passes more than a peaked one, and never a wrong edge.

use crate::draw::Scale;
use crate::kernels::{CUTS, Passes};
use crate::order::{self, Edge};
use crate::row::{self, NOTHING, Shares};

/// So many are sorted rather than cut again: a sort of them costs about one pass.
const FEW: usize = 512;
/// Each pass parts the band in five; after so many of them f32 has no values left in between.
const PASSES: usize = 16;
/// Exponents of the first cuts: a peaked row ends in the first band, a usual one in the second.
const FIRST: [f64; CUTS] = [-3.0, -6.0, -11.0, NOTHING as f64];

/// The edge of the likeliest tokens that have at least `share` of the row's mass.
pub(crate) fn edge(passes: &Passes, row: &[f32], scale: Scale, share: f32, keys: &mut Vec<u64>) -> Edge {
    let mut cuts = FIRST.map(|exponent| scale.logit(exponent));
    let mut shares = row::shares(passes, row, scale.max, scale.factor(), &cuts);
    let mut band = Band { low: scale.max, high: f32::INFINITY, above: 0.0, over: 0, count: 0 };
    // Never nothing: a band that reaches what is needed then holds a token.
    let needed = (f64::from(share) * shares.mass[CUTS - 1]).max(f64::MIN_POSITIVE);
    let mut start = band;
    for _ in 0..PASSES {
        band = start.part(&cuts, &shares, needed);
        if band.count <= FEW || band.low.next_up() >= band.high {
            break;
        }
        let Some(next) = band.cuts(scale.max) else { break };
        cuts = next;
        shares = row::shares(passes, row, scale.max, scale.factor(), &cuts);
        start = band;
    }
    band.edge(passes, row, scale, needed, keys)
}

/// Values from `low` up to, not including, `high`, in which the edge lies.
#[derive(Debug, Clone, Copy)]
struct Band {
    low: f32,
    high: f32,
    /// Mass from `high` on.
    above: f64,
    /// Tokens from `high` on.
    over: usize,
    /// Tokens in the band.
    count: usize,
}

impl Band {
    /// The part of this band that has the edge, after a pass over `cuts`, which fall.
    fn part(self, cuts: &[f32; CUTS], shares: &Shares, needed: f64) -> Band {
        let (mut high, mut above, mut over) = (self.high, self.above, self.over);
        for (i, &low) in cuts.iter().enumerate() {
            if shares.mass[i] >= needed {
                return Band { low, high, above, over, count: shares.count[i].saturating_sub(over) };
            }
            (high, above, over) = (low, shares.mass[i], shares.count[i]);
        }
        // The lowest cut is the foot of this band, which has the edge.
        self
    }

    /// Four cuts that part it in five, the lowest at its foot; `None` where no value is left between.
    fn cuts(self, max: f32) -> Option<[f32; CUTS]> {
        let (low, high) = (f64::from(self.low), f64::from(self.high.min(max.next_up())));
        let cut = |part: f64| (low + (high - low) * part) as f32;
        let cuts = [cut(0.75), cut(0.5), cut(0.25), self.low];
        (cuts[2] > self.low && cuts[0] < self.high).then_some(cuts)
    }

    /// Sorts the band and walks down to the edge.
    fn edge(self, passes: &Passes, row: &[f32], scale: Scale, needed: f64, keys: &mut Vec<u64>) -> Edge {
        keys.clear();
        row::each_from(passes, row, self.low, |token, x| {
            if x < self.high {
                keys.push(order::key(x, token));
            }
            true
        });
        keys.sort_unstable();
        let mut kept = self.above;
        let mut last = Edge::from(self.high);
        for &key in keys.iter() {
            let (value, token) = order::of(key);
            last = Edge { value, token };
            kept += scale.weight(value);
            if kept >= needed {
                break;
            }
        }
        last
    }
}
