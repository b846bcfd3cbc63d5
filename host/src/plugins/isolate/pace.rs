//! When the reader of a child's frames rests before it looks again.
//!
//! At thousands of frames a second most of what one costs is the reader's wake. So while they come that fast it sleeps for
//! [`REST`] instead of until the next, and reads what has gathered. An engine that makes fewer steps is never kept waiting.
//! Pure: the time is passed in.

use std::time::{Duration, Instant};

/// How long frames may gather.
pub(super) const REST: Duration = Duration::from_millis(1);
/// Bytes that make a rest too long: with more the child would stand still until they are read.
const MUCH: usize = 4 << 10;
/// How long nothing rests after so much had gathered.
const FLOOD: Duration = Duration::from_millis(100);

/// How frames come.
#[derive(Debug)]
pub(super) struct Pace {
    /// When the reader last woke to something.
    last: Instant,
    /// The last two wakes were closer together than [`REST`], or the last rest was not for nothing.
    fast: bool,
    /// Until then frames come in a flood.
    flood: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace { last: now, fast: false, flood: now }
    }

    /// How long to rest from now on; nothing where the next frame is to be waited for.
    pub(super) fn rest(&self, now: Instant) -> Option<Duration> {
        let rest = REST.saturating_sub(now.saturating_duration_since(self.last));
        (self.fast && now >= self.flood && !rest.is_zero()).then_some(rest)
    }

    /// A wait for the next frame has ended.
    pub(super) fn woke(&mut self, now: Instant) {
        self.fast = now.saturating_duration_since(self.last) < REST;
        self.last = now;
    }

    /// A rest has ended, and so many bytes had come.
    pub(super) fn rested(&mut self, now: Instant, came: usize) {
        self.fast = came > 0;
        if came > 0 {
            self.last = now;
        }
        if came >= MUCH {
            self.flood = now + FLOOD;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_let_gather_only_while_they_come_fast() {
        let begun = Instant::now();
        let at = |micros| begun + Duration::from_micros(micros);
        let mut pace = Pace::new(begun);
        pace.woke(at(5_000));
        assert_eq!(pace.rest(at(5_010)), None, "the one before was long ago");
        pace.woke(at(5_300));
        assert_eq!(pace.rest(at(5_310)), Some(Duration::from_micros(990)));
        pace.rested(at(6_300), 900);
        assert_eq!(pace.rest(at(6_300)), Some(REST), "they still come");
        assert_eq!(pace.rest(at(7_400)), None, "what took so long to read has rested enough");
        pace.rested(at(7_300), 0);
        assert_eq!(pace.rest(at(7_310)), None, "none came: the next is waited for");
        pace.woke(at(12_000));
        assert_eq!(pace.rest(at(12_010)), None);
    }

    #[test]
    fn a_flood_is_read_without_a_rest() {
        let begun = Instant::now();
        let at = |micros| begun + Duration::from_micros(micros);
        let mut pace = Pace::new(begun);
        pace.woke(at(100));
        assert!(pace.rest(at(110)).is_some());
        pace.rested(at(1_100), MUCH);
        pace.woke(at(1_110));
        assert_eq!(pace.rest(at(1_120)), None);
        pace.woke(at(101_200));
        pace.woke(at(101_300));
        assert!(pace.rest(at(101_310)).is_some(), "it is looked at again");
    }
}
