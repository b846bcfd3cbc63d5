//! How many guesses each of the generations gets that decode together, weighed in one go.
//!
//! A generation with k guesses, each of which holds with a chance p, gets 1 + p + ... + p^k tokens from a step, and waits for each of
//! them the step's time over that number. The mean of these waits is what is made least: all pay for the rows of one, so a
//! guess must save more than the others lose by it. Times come from [`Costs`]; their steps between numbers of rows are why every total is tried.

use crate::costs::Costs;

/// Guesses that save a generation less than this share of its wait are not looked at.
const LEAST: f64 = 1e-3;

/// What the model's inferences cost, and the draft model's where guesses are not free.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prices<'a> {
    pub(super) model: &'a Costs,
    pub(super) draft: Option<&'a Costs>,
}

/// One generation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Side {
    /// Chance that a guess of it holds.
    share: f64,
    /// Most guesses.
    most: usize,
    /// Guesses that it gets.
    pub(super) count: usize,
    /// Seconds of the machine that it then saves with each of its tokens, what its guesses cost taken off.
    pub(super) gain: f64,
}

impl Side {
    pub(super) fn new(share: f64, most: usize) -> Side {
        Side { share, most, count: 0, gain: 0.0 }
    }

    /// Tokens that it gets from a step with so many guesses.
    fn tokens(&self, count: usize) -> f64 {
        let mut chance = 1.0;
        (0..count).fold(1.0, |tokens, _| {
            chance *= self.share;
            tokens + chance
        })
    }

    /// Share of its wait that one more guess saves.
    fn saves(&self) -> f64 {
        1.0 / self.tokens(self.count) - 1.0 / self.tokens(self.count + 1)
    }
}

/// Sets the counts that make the mean wait of `decoding` generations least, `sides` among them; all 0 where that does not save
/// those that guess the share `least` of their wait.
pub(super) fn split(prices: Prices<'_>, decoding: usize, least: f64, sides: &mut [Side]) {
    let n = decoding.max(sides.len()).max(1);
    let Some(plain) = prices.model.of(n) else { return };
    let mut draft = Rounds { costs: prices.draft, members: Vec::new(), seconds: 0.0 };
    let (mut wait, mut guessing, mut taken) = (n as f64, 0.0, Vec::new());
    // Of all totals so far the best: its mean wait, how many guesses, and the seconds that they cost.
    let (mut lowest, mut best, mut extra) = (plain, 0, 0.0);
    loop {
        let open = (0..sides.len()).filter(|&at| sides[at].count < sides[at].most);
        let saving = open.map(|at| (at, sides[at].saves())).filter(|(_, saved)| *saved >= LEAST);
        let Some((at, saved)) = saving.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))) else { break };
        wait -= saved;
        guessing += if sides[at].count == 0 { 1.0 } else { 0.0 };
        sides[at].count += 1;
        draft.add(sides[at].count);
        taken.push(at);
        let Some(step) = prices.model.of(n + taken.len()) else { break };
        let step = step + draft.seconds;
        let mean = step * wait / n as f64;
        if mean < lowest && mean < plain * (1.0 - least * guessing / n as f64) {
            (lowest, best, extra) = (mean, taken.len(), step - plain);
        }
    }
    for &at in &taken[best..] {
        sides[at].count -= 1;
    }
    for side in sides.iter_mut().filter(|side| side.count > 0) {
        let tokens = side.tokens(side.count);
        let costs = extra * side.count as f64 / best as f64;
        side.gain = (plain / n as f64 * (tokens - 1.0) - costs) / tokens;
    }
}

/// The inferences of the draft model in a turn: the first reads and guesses, each further one guesses once more.
struct Rounds<'a> {
    costs: Option<&'a Costs>,
    members: Vec<usize>,
    seconds: f64,
}

impl Rounds<'_> {
    /// A generation takes part in round `round`, counted from 1, too.
    fn add(&mut self, round: usize) {
        let Some(costs) = self.costs else { return };
        if self.members.len() < round {
            self.members.resize(round, 0);
        }
        let members = &mut self.members[round - 1];
        // After guesses that all held, two tokens are to be read.
        let rows = |members: usize| members + if round == 1 { members / 2 } else { 0 };
        let seconds = |rows: usize| if rows == 0 { 0.0 } else { costs.of(rows).unwrap_or(0.0) };
        self.seconds += seconds(rows(*members + 1)) - seconds(rows(*members));
        *members += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn costs(known: &[(usize, u64)]) -> Costs {
        let mut costs = Costs::default();
        known.iter().for_each(|&(rows, ms)| costs.measured(rows, Duration::from_millis(ms)));
        costs
    }

    fn counts(costs: &Costs, draft: Option<&Costs>, shares: &[f64]) -> Vec<usize> {
        let mut sides: Vec<Side> = shares.iter().map(|&share| Side::new(share, 4)).collect();
        split(Prices { model: costs, draft }, shares.len(), 0.0, &mut sides);
        sides.iter().map(|side| side.count).collect()
    }

    /// The mean wait of all ways to share out, tried one by one.
    fn best(costs: &Costs, shares: &[f64]) -> f64 {
        let tokens = |share: f64, count: usize| (0..=count).map(|k| share.powi(k as i32)).sum::<f64>();
        (0..5usize.pow(shares.len() as u32))
            .map(|way| {
                let counts = (0..shares.len()).map(|at| way / 5usize.pow(at as u32) % 5);
                let (rows, wait) =
                    shares.iter().zip(counts).fold((0, 0.0), |(rows, wait), (share, count)| {
                        (rows + 1 + count, wait + 1.0 / tokens(*share, count))
                    });
                costs.of(rows).unwrap() * wait / shares.len() as f64
            })
            .fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn no_other_way_to_share_out_is_better() {
        let steps =
            costs(&[(1, 13), (2, 16), (3, 16), (4, 20), (5, 28), (8, 38), (12, 40), (16, 41), (20, 55)]);
        for shares in [[0.9; 4], [0.9, 0.1, 0.1, 0.1], [0.95, 0.9, 0.3, 0.0], [1.0, 1.0, 0.2, 0.6], [0.5; 4]]
        {
            let mut sides = shares.map(|share| Side::new(share, 4));
            split(Prices { model: &steps, draft: None }, 4, 0.0, &mut sides);
            let (rows, wait) = sides.iter().fold((0, 0.0), |(rows, wait), side| {
                (rows + 1 + side.count, wait + 1.0 / side.tokens(side.count))
            });
            let found = steps.of(rows).unwrap() * wait / 4.0;
            assert!((found - best(&steps, &shares)).abs() < 1e-4, "{shares:?}: {sides:?}, {found}");
        }
    }

    #[test]
    fn one_whose_guesses_hold_does_not_hold_up_three_whose_do_not() {
        // Four rows fit where four decode; the fifth costs as much as eight do.
        let steep = costs(&[(1, 13), (4, 20), (5, 38), (8, 38), (16, 41)]);
        assert_eq!(counts(&steep, None, &[0.9, 0.1, 0.1, 0.1]), [0; 4]);
        assert!(counts(&steep, None, &[0.9; 4]).iter().all(|count| *count >= 2));
        // What is free is taken, by whom it serves most.
        let flat = costs(&[(1, 13), (4, 20), (6, 20), (7, 90), (8, 90), (16, 200), (64, 900)]);
        assert_eq!(counts(&flat, None, &[0.9, 0.5, 0.1, 0.1]), [1, 1, 0, 0]);
        // Also by one among many, where the mean hardly moves.
        let room = costs(&[(30, 60), (32, 60), (33, 90), (64, 120)]);
        let mut sides: Vec<Side> = (0..30).map(|at| Side::new(if at == 7 { 0.9 } else { 0.0 }, 4)).collect();
        split(Prices { model: &room, draft: None }, 30, 0.05, &mut sides);
        assert_eq!(sides[7].count, 2);
        assert!(sides[7].gain > 0.001 && sides[8].gain == 0.0, "{sides:?}");
    }

    #[test]
    fn a_draft_model_is_paid_for_each_of_its_rounds() {
        let model = costs(&[(1, 20), (2, 21), (5, 22), (64, 40)]);
        let cheap = costs(&[(1, 1), (64, 1)]);
        let dear = costs(&[(1, 16), (64, 16)]);
        assert_eq!(counts(&model, Some(&cheap), &[0.95]), [4]);
        let few = counts(&model, Some(&dear), &[0.95])[0];
        assert!(few < 4, "{few}");
        assert_eq!(counts(&model, Some(&model), &[1.0]), [0]);
        // One round serves many.
        assert!(counts(&model, Some(&dear), &[0.95; 8])[0] >= few);
    }

    #[test]
    fn nothing_is_guessed_without_prices_chances_or_room() {
        assert_eq!(counts(&Costs::default(), None, &[1.0, 1.0]), [0, 0]);
        let free = costs(&[(1, 10), (64, 10)]);
        assert_eq!(counts(&free, None, &[0.9, f64::NAN]), [4, 0]);
        let mut none = [Side::new(1.0, 0)];
        split(Prices { model: &free, draft: None }, 0, 0.0, &mut none);
        assert_eq!(none, [Side::new(1.0, 0)]);
    }
}
