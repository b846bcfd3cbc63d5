//! How long an engine that rests waits for company before it begins.
//!
//! A model computes sixteen prompts in hardly more time than one, so a generation that begins alone delays by a whole step all
//! that come a moment later. How long waiting is worth it hangs on what a step costs: an engine that takes 50 ms
//! to a first token waits under a millisecond for the next request, and one that takes microseconds does not wait.

use std::time::{Duration, Instant};

/// Waiting for one more takes at most this part of the time to a first token.
const PAUSE_PART: u32 = 64;
const LONGEST_PAUSE: Duration = Duration::from_millis(1);
/// Waiting for all of them takes at most this part of it, within bounds of its own.
const WHOLE_PART: u32 = 8;
const SHORTEST_WHOLE: Duration = Duration::from_millis(3);
const LONGEST_WHOLE: Duration = Duration::from_millis(10);
/// Others may come before or after a look in a turn of the runtime, so that one turn without any says nothing.
const QUIET_TURNS: u32 = 2;

/// What an engine that was at rest took to a first piece.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    took: Duration,
    began: Option<Instant>,
}

impl Pace {
    /// The engine was at rest and gets work.
    pub(super) fn begins(&mut self) {
        self.began = Some(Instant::now());
    }

    /// A piece came; whether it was a first one.
    pub(super) fn piece(&mut self, now: Instant) -> bool {
        let began = self.began.take();
        if let Some(began) = began {
            let took = now.saturating_duration_since(began);
            // A long prompt says little of the next one: the shortest counts, and is forgotten slowly.
            let known = if self.took.is_zero() { took } else { self.took + self.took / 8 };
            self.took = took.min(known);
        }
        began.is_some()
    }
}

/// One wait.
#[derive(Debug)]
pub(super) struct Gathering {
    begun: Instant,
    last: Instant,
    waiting: usize,
    quiet: u32,
    pause: Duration,
    whole: Duration,
}

impl Gathering {
    /// One generation is there.
    pub(super) fn new(now: Instant, pace: Pace) -> Gathering {
        Gathering {
            begun: now,
            last: now,
            waiting: 1,
            quiet: 0,
            pause: (pace.took / PAUSE_PART).min(LONGEST_PAUSE),
            whole: (pace.took / WHOLE_PART).clamp(SHORTEST_WHOLE, LONGEST_WHOLE),
        }
    }

    /// After a turn of the runtime, with so many generations there: whether to wait for another turn.
    pub(super) fn goes_on(&mut self, waiting: usize, now: Instant) -> bool {
        if waiting > self.waiting {
            (self.waiting, self.last, self.quiet) = (waiting, now, 0);
        } else {
            self.quiet += 1;
        }
        let paused = self.quiet >= QUIET_TURNS && now.saturating_duration_since(self.last) >= self.pause;
        !paused && now.saturating_duration_since(self.begun) < self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// A pace after first pieces that took so long.
    fn pace(took: &[Duration]) -> Pace {
        let mut pace = Pace::default();
        for took in took {
            pace.begins();
            let began = pace.began.expect("it begins");
            pace.piece(began + *took);
        }
        pace
    }

    /// How many are there at the end of a wait in which they come so far apart, with turns of 10 µs; and when that is.
    fn gathered(pace: Pace, apart: Duration) -> (usize, Duration) {
        let begun = Instant::now();
        let mut gathering = Gathering::new(begun, pace);
        for turn in 1.. {
            let after = micros(10) * turn;
            let waiting = 1 + (after.as_micros() / apart.as_micros()) as usize;
            if !gathering.goes_on(waiting, begun + after) {
                return (waiting, after);
            }
        }
        unreachable!("turns are without end")
    }

    #[test]
    fn an_engine_of_microseconds_waits_two_turns() {
        assert_eq!(gathered(Pace::default(), micros(100)), (1, micros(20)));
        assert_eq!(gathered(pace(&[micros(600)]), micros(100)), (1, micros(20)));
    }

    #[test]
    fn an_engine_of_milliseconds_waits_for_the_next_and_not_for_ever() {
        let fifty = pace(&[micros(50_000)]);
        assert_eq!(gathered(fifty, micros(1_000)), (1, micros(790)), "nobody comes in a 64th of 50 ms");
        assert_eq!(gathered(fifty, micros(500)), (13, micros(6_250)), "an 8th of 50 ms is the bound");
        let slow = pace(&[Duration::from_secs(5)]);
        assert_eq!(gathered(slow, micros(1_200)), (1, micros(1_000)));
        assert_eq!(gathered(slow, micros(900)), (12, micros(10_000)));
    }

    #[test]
    fn a_long_prompt_does_not_make_the_next_wait() {
        let after = pace(&[micros(40_000), Duration::from_secs(2)]);
        assert_eq!(after.took, micros(45_000));
        assert_eq!(pace(&[micros(40_000), Duration::from_secs(2), micros(30_000)]).took, micros(30_000));
    }

    #[test]
    fn only_the_first_piece_after_a_rest_counts() {
        let mut pace = pace(&[micros(40_000)]);
        pace.piece(Instant::now());
        assert_eq!(pace.took, micros(40_000));
    }
}
