//! The random number of a token, and the token that it falls on. Candidates stand in the order of their ids, whichever way they were found.

use crate::kernels::{BLOCK, Passes};
use crate::order::Edge;
use crate::row::NOTHING;
use crate::scratch::Error;

/// A candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Member {
    pub(crate) token: u32,
    pub(crate) logit: f32,
    /// In proportion to its probability.
    pub(crate) weight: f64,
}

/// A piece of a row and what its candidates weigh.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Piece {
    from: usize,
    to: usize,
    weight: f64,
}

/// How logits become weights.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) max: f32,
    pub(crate) temperature: f32,
}

impl Scale {
    /// For the kernels.
    pub(crate) fn factor(self) -> f32 {
        1.0 / self.temperature
    }

    /// The weight of a logit; that of the largest is 1.
    pub(crate) fn weight(self, x: f32) -> f64 {
        ((f64::from(x) - f64::from(self.max)) / f64::from(self.temperature)).exp()
    }

    /// The logit whose weight is `exp(exponent)`.
    pub(crate) fn logit(self, exponent: f64) -> f32 {
        (f64::from(self.max) + exponent * f64::from(self.temperature)) as f32
    }
}

/// A number from 0 up to, not including, 1. It is output `position` of a SplitMix64 generator (Steele, Lea and Flood, 2014) that starts
/// at the mixed seed: its state is a counter, so that any output is found at once.
pub(crate) fn random(seed: u64, position: usize) -> f64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let start = mix(seed.wrapping_add(STEP));
    let z = mix(start.wrapping_add(STEP.wrapping_mul((position as u64).wrapping_add(1))));
    (z >> 11) as f64 / (1u64 << 53) as f64
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The candidate at `u` of the sum of all weights.
pub(crate) fn of_members(members: &[Member], u: f64) -> Result<u32, Error> {
    let total: f64 = members.iter().map(|m| m.weight).sum();
    let mut left = u * total;
    let mut last = None;
    for member in members.iter().filter(|m| m.weight > 0.0) {
        last = Some(member.token);
        left -= member.weight;
        if left < 0.0 {
            break;
        }
    }
    last.ok_or(Error::NothingAllowed)
}

/// The same for the tokens of a row from `edge` on, or all of them, without a list of them.
pub(crate) fn of_row(
    passes: &Passes,
    row: &[f32],
    scale: Scale,
    edge: Option<Edge>,
    u: f64,
    pieces: &mut Vec<Piece>,
) -> Result<u32, Error> {
    pieces.clear();
    // Of the tokens that equal the edge those up to its token stay: no piece lies on both sides of it.
    let border = edge.map_or(row.len(), |e| (e.token as usize).saturating_add(1).min(row.len()));
    let mut from = 0;
    while from < row.len() {
        let stop = if from < border { border } else { row.len() };
        let to = (from + BLOCK).min(stop);
        let block = &row[from..to];
        let weight = match edge {
            None => (passes.sum)(block, scale.max, scale.factor()),
            Some(e) => {
                let cut = if from < border { e.value } else { e.value.next_up() };
                (passes.weigh)(block, scale.max, scale.factor(), &[cut; _]).0[0]
            }
        };
        if weight > 0.0 {
            pieces.push(Piece { from, to, weight: f64::from(weight) });
        }
        from = to;
    }
    let total: f64 = pieces.iter().map(|p| p.weight).sum();
    let mut left = u * total;
    let mut chosen = pieces.last();
    for piece in pieces.iter() {
        if left < piece.weight {
            chosen = Some(piece);
            break;
        }
        left -= piece.weight;
    }
    let piece = chosen.ok_or(Error::NothingAllowed)?;
    let mut last = None;
    for (place, &x) in row[piece.from..piece.to].iter().enumerate() {
        let token = (piece.from + place) as u32;
        let stays = edge.is_none_or(|e| e.holds(x, token));
        if !stays || (x - scale.max) * scale.factor() < NOTHING {
            continue;
        }
        last = Some(token);
        left -= scale.weight(x);
        if left < 0.0 {
            break;
        }
    }
    last.ok_or(Error::NothingAllowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_seed_are_even_and_those_of_the_next_seed_are_others() {
        for seed in [0, 1, 2, u64::MAX] {
            let mut bins = [0u32; 16];
            for position in 0..16_000 {
                bins[(random(seed, position) * 16.0) as usize] += 1;
            }
            // 1000 in each, with a deviation of 31: six of them are never seen.
            assert!(bins.iter().all(|&n| (814..1186).contains(&n)), "{bins:?}");
        }
        assert_ne!(random(5, 1), random(6, 0));
        assert_ne!(random(5, 0), random(6, 0));
        assert_eq!(random(5, 7), random(5, 7));
    }

    #[test]
    fn a_row_and_a_list_of_its_members_give_the_same_token_up_to_the_edge_and_no_further() {
        use crate::kernels::Kernel;
        let scale = Scale { max: 4.0, temperature: 1.0 };
        for len in [1, 3, 40, BLOCK + 30] {
            let mut row: Vec<f32> = (0..len).map(|at| (at % 3) as f32 - 20.0).collect();
            row[0] = 4.0;
            for at in [len / 2, len * 2 / 3, len - 1] {
                row[at] = 3.5;
            }
            for token in [0, len / 2, len * 2 / 3, len - 1] {
                let edge = Edge { value: row[token], token: token as u32 };
                let members: Vec<Member> = (0u32..)
                    .zip(&row)
                    .filter(|&(t, &x)| edge.holds(x, t))
                    .map(|(token, &logit)| Member { token, logit, weight: scale.weight(logit) })
                    .collect();
                for passes in Kernel::ALL.into_iter().filter_map(Passes::of) {
                    for position in 0..200 {
                        let u = random(8, position);
                        let drawn = of_row(passes, &row, scale, Some(edge), u, &mut Vec::new());
                        assert_eq!(drawn, of_members(&members, u), "{len} {edge:?} {:?}", passes.kernel);
                    }
                }
            }
        }
    }
}
