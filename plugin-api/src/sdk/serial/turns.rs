//! Whose turn it is with an engine: the thread that steps it, or one that wants to see it between two steps.
//!
//! Where both want it they have it in turn, so that neither a visitor who comes again and again nor an engine that is stepped
//! without a pause keeps the other off.

#![expect(
    clippy::disallowed_types,
    reason = "the SDK brings no crate into a plugin; poison is handled in `lock`"
)]

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::lock;

#[derive(Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    taken: bool,
    /// Whether the one before was a visitor.
    visited: bool,
    driver_waits: bool,
    visitors: usize,
}

/// The engine is one's own until this is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// For the thread that steps. It waits for one visitor at most.
    pub(super) fn drive(&self) -> Turn<'_> {
        let mut state = lock(&self.state);
        while state.taken || (state.visitors > 0 && !state.visited) {
            state.driver_waits = true;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (state.taken, state.visited, state.driver_waits) = (true, false, false);
        Turn(self)
    }

    /// For any other thread; none where its turn did not come within that time.
    pub(super) fn visit(&self, within: Duration) -> Option<Turn<'_>> {
        let until = Instant::now() + within;
        let mut state = lock(&self.state);
        state.visitors += 1;
        let mut late = false;
        while !late && (state.taken || (state.driver_waits && state.visited)) {
            let left = until.saturating_duration_since(Instant::now());
            let waited = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            late = waited.1.timed_out();
            state = waited.0;
        }
        state.visitors -= 1;
        if late {
            // The driver may have waited for this one only.
            self.changed.notify_all();
            return None;
        }
        (state.taken, state.visited) = (true, true);
        Some(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.taken = false;
        // Telling nobody is a system call too, and there is a turn for each step.
        if state.driver_waits || state.visitors > 0 {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_visitor_comes_in_beside_an_engine_that_is_stepped_without_a_pause() {
        let turns = Turns::default();
        let (steps, visits) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while visits.load(Ordering::SeqCst) < 200 {
                    let _turn = turns.drive();
                    steps.fetch_add(1, Ordering::SeqCst);
                }
            });
            while steps.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            for _ in 0..200 {
                assert!(turns.visit(LONG).is_some());
                visits.fetch_add(1, Ordering::SeqCst);
            }
        });
    }

    #[test]
    fn one_whose_turn_does_not_come_in_time_leaves_nobody_waiting() {
        let turns = Turns::default();
        let step = turns.drive();
        assert!(turns.visit(Duration::from_millis(1)).is_none());
        drop(step);
        drop(turns.drive());
        assert!(turns.visit(Duration::ZERO).is_some(), "it is free");
    }

    #[test]
    fn the_one_that_waits_goes_before_the_one_that_comes_again() {
        let turns = Turns::default();
        let order = Mutex::new(Vec::new());
        let visit = turns.visit(LONG);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _turn = turns.drive();
                lock(&order).push("step");
            });
            while !lock(&turns.state).driver_waits {
                std::thread::yield_now();
            }
            drop(visit);
            let again = turns.visit(LONG);
            lock(&order).push("visit");
            drop(again);
        });
        assert_eq!(*lock(&order), ["step", "visit"]);
    }
}
