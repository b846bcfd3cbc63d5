//! Median and quartiles of some rounds. A noisy machine spoils single rounds, so neither mean nor extremes are told.

/// What the rounds gave for one figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Half of the rounds were lower.
    pub median: f64,
    /// A quarter of the rounds were lower.
    pub low: f64,
    /// A quarter of the rounds were higher.
    pub high: f64,
}

impl Spread {
    /// Of the figures of all rounds; zero of none.
    pub fn of(mut figures: Vec<f64>) -> Spread {
        figures.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = share * figures.len().saturating_sub(1) as f64;
            let (below, above) = (figures.get(place.floor() as usize), figures.get(place.ceil() as usize));
            let (below, above) = (below.copied().unwrap_or(0.0), above.copied().unwrap_or(0.0));
            below + (above - below) * place.fract()
        };
        Spread { median: at(0.5), low: at(0.25), high: at(0.75) }
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn one_bad_round_moves_nothing() {
        let spread = Spread::of(vec![3.0, 1000.0, 1.0, 2.0, 4.0]);
        assert_eq!(spread, Spread { median: 3.0, low: 2.0, high: 4.0 });
        assert_eq!(Spread::of(vec![1.0, 2.0]).median, 1.5);
        assert_eq!(Spread::of(Vec::new()).median, 0.0);
    }
}
