//! What an inference costs by its number of rows, as it was measured last.
//!
//! Not a line: the library's kernels step (measured on two cores, milliseconds for 1, 2, 4, 8, 16, 32 rows: 13, 17, 20, 38, 41,
//! 68), so the times themselves are kept and what lies between is drawn straight.

use std::time::Duration;

/// Up to so many rows each number is kept apart: one row more may cost as much as sixteen.
const EACH: usize = 64;
/// Larger numbers that are kept apart; others count as the nearest below.
const BEYOND: [usize; 9] = [80, 96, 128, 160, 192, 256, 384, 512, 1024];
/// Weight of the last time.
const WEIGHT: f64 = 0.125;

/// See the file.
#[derive(Debug, Clone)]
pub(crate) struct Costs {
    /// Rows and seconds of each number that was measured, both smoothed; 0 where it was not.
    known: [(f64, f64); EACH + BEYOND.len()],
}

impl Default for Costs {
    fn default() -> Costs {
        Costs { known: [(0.0, 0.0); EACH + BEYOND.len()] }
    }
}

impl Costs {
    /// So many rows took so long.
    pub(crate) fn learn(&mut self, rows: usize, took: Duration) {
        let place = rows.clamp(1, EACH) - 1 + BEYOND.partition_point(|&at| at <= rows);
        let (known, now) = (&mut self.known[place], (rows as f64, took.as_secs_f64()));
        if known.0 == 0.0 {
            *known = now;
        } else {
            // One step that the machine interrupted is no price.
            let capped = now.1.min(known.1 * 4.0);
            *known = (known.0 + WEIGHT * (now.0 - known.0), known.1 + WEIGHT * (capped - known.1));
        }
    }

    /// Seconds that so many rows will take; none where nothing was measured yet. Beyond what was measured half of the time
    /// grows with the rows: little enough that more are tried once.
    pub(crate) fn of(&self, rows: usize) -> Option<f64> {
        let rows = rows as f64;
        let (mut below, mut above) = (None::<(f64, f64)>, None);
        for &(at, seconds) in self.known.iter().filter(|(at, _)| *at > 0.0) {
            if at <= rows {
                below = Some((at, seconds));
            } else if above.is_none() {
                above = Some((at, seconds));
            }
        }
        match (below, above) {
            (Some((a, s)), Some((b, t))) => Some(s + (t - s) * (rows - a) / (b - a)),
            (Some((a, s)), None) => Some(s * (a + rows) / (2.0 * a)),
            (None, above) => above.map(|(_, seconds)| seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn times_are_remembered_by_rows_and_drawn_straight_between_them() {
        let mut costs = Costs::default();
        assert_eq!(costs.of(1), None);
        costs.learn(4, MS(20));
        assert_eq!((costs.of(1), costs.of(4), costs.of(8)), (Some(0.02), Some(0.02), Some(0.03)));
        costs.learn(8, MS(40));
        assert!((costs.of(6).unwrap() - 0.03).abs() < 1e-9);
        for _ in 0..60 {
            costs.learn(4, MS(10));
        }
        assert!((costs.of(4).unwrap() - 0.01).abs() < 1e-4, "it follows");
        costs.learn(4, MS(10_000));
        assert!(costs.of(4).unwrap() < 0.015, "an outlier is no price");
        costs.learn(100_000, MS(1000));
        assert!(costs.of(0).is_some() && costs.of(usize::MAX >> 20).unwrap().is_finite());
    }
}
