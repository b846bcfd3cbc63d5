//! Where the likeliest tokens of a row have a given share of it, without sorting the row.
//!
//! A pass weighs what stands at and above a few cuts. The edge lies between two neighbouring ones; what is between is cut anew
//! until few enough tokens are left to sort. So a flat row costs some passes more than a peaked one, and never a wrong edge.

use crate::draw::Scale;
use crate::kernels::{CUTS, Passes};
use crate::order::{self, Edge};
use crate::row::{self, NOTHING, Shares};

/// So many are sorted rather than cut again: a sort of them costs about one pass.
const FEW: usize = 1024;
/// Each pass leaves half of the band at most, and mostly an eighth; what is left after so many of them is sorted.
const PASSES: usize = 24;
/// Exponents of the first cuts: a peaked row ends in the first band, a usual one in the second.
const FIRST: [f64; CUTS] = [-3.0, -6.0, -11.0, NOTHING as f64];

/// The edge of the likeliest tokens that have at least `share` of the row's mass.
pub(crate) fn edge(passes: &Passes, row: &[f32], scale: Scale, share: f32, keys: &mut Vec<u64>) -> Edge {
    let mut cuts = FIRST.map(|exponent| scale.logit(exponent));
    let mut shares = row::shares(passes, row, scale.max, scale.factor(), &cuts);
    let mut band = Band { low: scale.max, high: f32::INFINITY, above: 0.0, below: 0.0, over: 0, count: 0 };
    // Never nothing: a band that reaches what is needed then holds a token.
    let needed = (f64::from(share) * shares.mass[CUTS - 1]).max(f64::MIN_POSITIVE);
    let mut start = band;
    for _ in 0..PASSES {
        band = start.part(&cuts, &shares, needed);
        if band.count <= FEW || band.low.next_up() >= band.high {
            break;
        }
        let Some(next) = band.cuts(scale.max, needed) else { break };
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
    /// Mass from `low` on.
    below: f64,
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
                let (below, count) = (shares.mass[i], shares.count[i].saturating_sub(over));
                return Band { low, high, above, below, over, count };
            }
            (high, above, over) = (low, shares.mass[i], shares.count[i]);
        }
        // The lowest cut is the foot of this band, which has the edge.
        self
    }

    /// Four falling cuts, the lowest at its foot: two around the place where the edge would be if the mass lay evenly, and one in the
    /// middle of the longer rest. `None` where no value is left between.
    fn cuts(self, max: f32, needed: f64) -> Option<[f32; CUTS]> {
        let (low, high) = (f64::from(self.low), f64::from(self.high.min(max.next_up())));
        let wide = high - low;
        let part = ((needed - self.above) / (self.below - self.above)).clamp(0.0, 1.0);
        let edge = high - wide * part;
        let (up, down) = (edge + wide / 16.0, edge - wide / 16.0);
        let third = if part < 0.5 { (low + down) / 2.0 } else { (high + up) / 2.0 };
        let mut cuts = [up, down, third, low].map(|cut| (cut.clamp(low, high)) as f32);
        cuts.sort_unstable_by(|a, b| b.total_cmp(a));
        (cuts.iter().any(|&cut| self.low < cut && cut < self.high)).then_some(cuts)
    }

    /// Sorts the band and walks down to the edge.
    fn edge(self, passes: &Passes, row: &[f32], scale: Scale, needed: f64, keys: &mut Vec<u64>) -> Edge {
        keys.clear();
        row::each_in(passes, row, self.low, Some(self.high), |token, x| {
            keys.push(order::key(x, token));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::random;
    use crate::kernels::Kernel;

    /// Sorts everything: what the tokens up to the edge weigh, without and with the edge itself.
    fn around(row: &[f32], scale: Scale, edge: Edge) -> (f64, f64) {
        let total: f64 = row.iter().map(|&x| scale.weight(x)).sum();
        let with: f64 = (0u32..)
            .zip(row)
            .filter(|&(t, &x)| x > edge.value || (x == edge.value && t <= edge.token))
            .map(|(_, &x)| scale.weight(x))
            .sum();
        ((with - scale.weight(edge.value)) / total, with / total)
    }

    #[test]
    fn the_edge_is_the_first_token_with_which_the_share_is_full() {
        for len in [1, 3, 900, 1025, 30_000] {
            let of = |f: fn(f64, usize) -> f64| -> Vec<f32> {
                (0..len).map(|at| f(random(1, at), at) as f32).collect()
            };
            let rows = [
                of(|_, _| 0.25),
                of(|u, _| u * 0.01),
                of(|u, _| u * 100.0),
                of(|u, _| u.ln() * 2.0),
                of(|u, at| if at % 100 == 0 { 9.0 } else { (u * 4.0).round() }),
                of(|u, at| if at % 3 == 0 { u } else { f64::NEG_INFINITY }),
                of(|u, at| if at == 0 { 3e38 } else { -3e38 * u }),
            ];
            for (which, row) in rows.iter().enumerate() {
                for passes in Kernel::ALL.into_iter().filter_map(Passes::of) {
                    for (share, temperature) in
                        [(0.0, 1.0), (0.3, 0.1), (0.5, 1.0), (0.95, 0.8), (0.95, 1e30), (1.0 - 1e-6, 40.0)]
                    {
                        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                        let scale = Scale { max, temperature };
                        let edge = edge(passes, row, scale, share, &mut Vec::new());
                        let (without, with) = around(row, scale, edge);
                        let share = f64::from(share);
                        assert!(
                            without < share.max(1e-12) + 2e-6 && share - 2e-6 <= with,
                            "{which} of {len}, {share} at {temperature}, {:?}: {without} {with} {edge:?}",
                            passes.kernel
                        );
                    }
                }
            }
        }
    }
}
