//! Numbers about numbers: a histogram that is cheap to fill, and medians with quartiles.

/// Buckets of each doubling: a value is known to 3 %.
const PARTS: u64 = 32;

/// Counts of whole numbers (here: microseconds), coarser the larger they are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    most: u64,
}

impl Histogram {
    /// Counts `value`, `times` times.
    pub(crate) fn add(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        let at = bucket(value);
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += times;
        self.total += times;
        self.most = self.most.max(value);
    }

    /// The value below which that part of all lies, 0 of none.
    pub(crate) fn quantile(&self, part: f64) -> u64 {
        let wanted = (part * self.total as f64).ceil() as u64;
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && *count > 0 {
                return lowest(at).min(self.most);
            }
        }
        self.most
    }

    /// The largest.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }
}

fn bucket(value: u64) -> usize {
    let doublings = u64::from(value.max(PARTS).ilog2() - PARTS.ilog2());
    (doublings * PARTS + (value >> doublings)) as usize
}

fn lowest(bucket: usize) -> u64 {
    let (doublings, part) = ((bucket as u64 / PARTS).saturating_sub(1), bucket as u64 % PARTS);
    if (bucket as u64) < PARTS { bucket as u64 } else { (part + PARTS) << doublings }
}

/// Median and quartiles of a figure over the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    /// Half are below.
    pub(crate) median: f64,
    /// A quarter is below.
    pub(crate) low: f64,
    /// A quarter is above.
    pub(crate) high: f64,
}

impl Spread {
    /// Of these; not a number of none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = part * (sorted.len().max(1) - 1) as f64;
            let of = |i: f64| sorted.get(i as usize).copied().unwrap_or(f64::NAN);
            of(place.floor()) + (of(place.ceil()) - of(place.floor())) * place.fract()
        };
        Spread { median: at(0.5), low: at(0.25), high: at(0.75) }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let digits = match self.low {
            low if low >= 100.0 => 0,
            low if low >= 10.0 => 1,
            _ => 2,
        };
        format!("{:.digits$} ({:.digits$}-{:.digits$})", self.median, self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_lowest_value_and_are_narrow() {
        for value in (0..5000).chain([1 << 20, (1 << 30) + 12345]) {
            let low = lowest(bucket(value));
            assert!(low <= value && value - low <= value / PARTS, "{value} in a bucket from {low}");
        }
    }

    #[test]
    fn quantiles_are_of_all_that_was_counted() {
        let mut histogram = Histogram::default();
        histogram.add(10, 98);
        histogram.add(2000, 2);
        assert_eq!((histogram.quantile(0.5), histogram.quantile(0.98), histogram.most()), (10, 10, 2000));
        assert!((1950..=2000).contains(&histogram.quantile(0.99)));
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }

    #[test]
    fn quartiles_lie_between_values_where_they_must() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0, 5.0]);
        assert_eq!((spread.median, spread.low, spread.high), (3.0, 2.0, 4.0));
        assert_eq!(Spread::of([1.0, 2.0]).median, 1.5);
        assert!(Spread::of([]).median.is_nan());
    }
}
