//! The beat that all streams of an anchor share, as those of an engine share its steps.

use std::time::{Duration, Instant};

/// Points in time at equal distances.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beat {
    begun: Instant,
    pace: Duration,
}

impl Beat {
    /// A beat of `pace_us` microseconds from now; none for 0.
    pub(crate) fn new(pace_us: u64) -> Option<Beat> {
        (pace_us > 0).then(|| Beat { begun: Instant::now(), pace: Duration::from_micros(pace_us) })
    }

    /// The first point after `now`.
    pub(crate) fn after(&self, now: Instant) -> Instant {
        let passed = now.saturating_duration_since(self.begun).as_nanos() / self.pace.as_nanos();
        self.begun + self.pace * (u32::try_from(passed).unwrap_or(u32::MAX - 1) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_point_lies_ahead_and_on_the_beat() {
        let beat = Beat::new(5000).expect("a pace");
        let at = |us: u64| beat.after(beat.begun + Duration::from_micros(us)) - beat.begun;
        assert_eq!(at(0), Duration::from_millis(5));
        assert_eq!(at(4999), Duration::from_millis(5));
        assert_eq!(at(5000), Duration::from_millis(10));
        assert!(Beat::new(0).is_none());
    }
}
