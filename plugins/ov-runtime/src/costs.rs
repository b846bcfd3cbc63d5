//! What an inference costs by its number of rows: as it was measured before the first request, corrected by what steps take.
//!
//! Not a line: the library's kernels step (measured on two cores, milliseconds for 1, 2, 4, 8, 16, 32 rows: 13, 17, 20, 38, 41,
//! 68), so the times themselves are kept and what lies between is drawn straight. Longer texts and busy machines make all
//! of them slower, but only the numbers that come up are seen again: what was learned of these holds for those around them too.

use std::time::Duration;

/// Up to so many rows each number is kept apart: one row more may cost as much as sixteen.
const EACH: usize = 64;
/// Larger numbers from which on others are kept apart.
const BEYOND: [usize; 10] = [65, 80, 96, 128, 160, 192, 256, 384, 512, 1024];
/// Weight of the last time.
const WEIGHT: f64 = 0.125;
/// So many times more than it should is the most that one step may count: one that the machine interrupted is no price.
pub(crate) const OUTLIER: f64 = 4.0;
/// What was not seen again in so many steps is forgotten: the machine, or the texts, were others then.
const LASTS: u64 = 4096;

/// See the file.
#[derive(Debug, Clone)]
pub(crate) struct Costs {
    /// Rows and seconds before the first request, with rising rows.
    before: Vec<(f64, f64)>,
    seen: [Seen; EACH + BEYOND.len()],
    /// Steps that were learned from.
    steps: u64,
}

/// What steps with some number of rows took.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Smoothed.
    rows: f64,
    seconds: f64,
    /// The seconds, in those that were measured before for as many rows, or the seconds where nothing was.
    factor: f64,
    /// The step that it was last seen in; 0 = none.
    last: u64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs { before: Vec::new(), seen: [Seen::default(); EACH + BEYOND.len()], steps: 0 }
    }
}

impl Costs {
    /// Before the first request so many rows took so long; of several times the least counts.
    pub(crate) fn measured(&mut self, rows: usize, took: Duration) {
        let (rows, seconds) = (rows as f64, took.as_secs_f64());
        if seconds == 0.0 {
            // Nothing can be a multiple of it.
            return;
        }
        let place = self.before.partition_point(|known| known.0 < rows);
        match self.before.get_mut(place) {
            Some(known) if known.0 == rows => known.1 = known.1.min(seconds),
            _ => self.before.insert(place, (rows, seconds)),
        }
    }

    /// A step of so many rows took so long.
    pub(crate) fn learn(&mut self, rows: usize, took: Duration) {
        let most = self.of(rows).map_or(f64::INFINITY, |seconds| seconds * OUTLIER);
        let now = (rows as f64, took.as_secs_f64().min(most));
        self.steps += 1;
        let steps = self.steps;
        let place = rows.clamp(1, EACH) - 1 + BEYOND.partition_point(|&at| at <= rows);
        let seen = &mut self.seen[place];
        let weight = if seen.is_fresh(steps) { WEIGHT } else { 1.0 };
        seen.rows += weight * (now.0 - seen.rows);
        seen.seconds += weight * (now.1 - seen.seconds);
        seen.last = steps;
        seen.factor = seen.seconds / straight(self.before.iter().copied(), seen.rows, true).unwrap_or(1.0);
    }

    /// Seconds that so many rows will take; none where nothing was measured yet. Beyond what was measured half of the time
    /// grows with the rows: little enough that more are tried once.
    pub(crate) fn of(&self, rows: usize) -> Option<f64> {
        let rows = rows as f64;
        let seen = self.seen.iter().filter(|seen| seen.is_fresh(self.steps));
        let seen = seen.map(|seen| (seen.rows, seen.factor));
        match straight(self.before.iter().copied(), rows, true) {
            Some(seconds) => Some(seconds * straight(seen, rows, false).unwrap_or(1.0)),
            None => straight(seen, rows, true),
        }
    }
}

impl Seen {
    fn is_fresh(&self, steps: u64) -> bool {
        self.last > 0 && steps < self.last + LASTS
    }
}

/// What lies on the line through `points`, with rising rows: below the first as that, beyond the last as that or, where
/// it grows, by half of the rows.
fn straight(points: impl Iterator<Item = (f64, f64)>, rows: f64, grows: bool) -> Option<f64> {
    let (mut below, mut above) = (None::<(f64, f64)>, None);
    for (at, value) in points {
        if at <= rows {
            below = Some((at, value));
        } else {
            above = Some((at, value));
            break;
        }
    }
    match (below, above) {
        (Some((a, s)), Some((b, t))) => Some(s + (t - s) * (rows - a) / (b - a)),
        (Some((a, s)), None) if grows => Some(s * (a + rows) / (2.0 * a)),
        (one, other) => one.or(other).map(|(_, value)| value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn near(found: Option<f64>, ms: f64) {
        assert!(found.is_some_and(|found| (found * 1e3 - ms).abs() < 0.05), "{found:?} for {ms} ms");
    }

    #[test]
    fn times_are_remembered_by_rows_and_drawn_straight_between_them() {
        let mut costs = Costs::default();
        assert_eq!(costs.of(1), None);
        costs.learn(4, MS(20));
        assert_eq!((costs.of(1), costs.of(4), costs.of(8)), (Some(0.02), Some(0.02), Some(0.03)));
        costs.learn(8, MS(30));
        near(costs.of(6), 25.0);
        for _ in 0..60 {
            costs.learn(4, MS(10));
        }
        near(costs.of(4), 10.0);
        costs.learn(4, MS(10_000));
        assert!(costs.of(4).unwrap() < 0.015, "an outlier is no price");
        costs.learn(100_000, MS(1000));
        assert!(costs.of(0).is_some() && costs.of(usize::MAX >> 20).unwrap().is_finite());
    }

    #[test]
    fn what_makes_one_number_of_rows_slower_makes_those_around_it_slower() {
        let mut costs = Costs::default();
        for (rows, ms) in [(1, 13), (4, 20), (8, 38), (16, 41), (4, 23), (16, 90)] {
            costs.measured(rows, MS(ms));
        }
        near(costs.of(4), 20.0);
        near(costs.of(6), 29.0);
        // Long texts: all take half as much again, but only four rows come up.
        costs.learn(4, MS(30));
        near(costs.of(4), 30.0);
        near(costs.of(16), 61.5);
        // What is seen itself counts itself, and between both it is drawn.
        costs.learn(16, MS(41));
        near(costs.of(16), 41.0);
        near(costs.of(10), 38.75 * 1.25);
        near(costs.of(32), 41.0 * 1.5);
    }

    #[test]
    fn steps_that_take_no_time_are_no_measure() {
        let mut costs = Costs::default();
        costs.measured(1, Duration::ZERO);
        costs.learn(1, Duration::ZERO);
        assert_eq!((costs.of(1), costs.of(9)), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn what_was_not_seen_for_long_is_what_it_would_be_by_the_others() {
        let mut costs = Costs::default();
        for (rows, ms) in [(1, 10), (8, 40)] {
            costs.measured(rows, MS(ms));
        }
        costs.learn(8, MS(120));
        for _ in 0..LASTS - 1 {
            costs.learn(1, MS(10));
        }
        near(costs.of(8), 120.0);
        costs.learn(1, MS(10));
        near(costs.of(8), 40.0);
    }
}
