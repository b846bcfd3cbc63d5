//! What the steps of an engine are given, and what they take.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The budget of an engine's steps, and how long they took, in microseconds.
pub(super) struct Pace {
    budget: AtomicU32,
    longest: AtomicU64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { budget: AtomicU32::new(10_000), longest: AtomicU64::new(0) }
    }
}

impl Pace {
    /// Gives every step from now on that budget.
    pub(super) fn set(&self, budget_us: u32) {
        self.budget.store(budget_us, Ordering::Relaxed);
        self.longest.store(0, Ordering::Relaxed);
    }

    /// Makes a step with the budget, and looks at the clock.
    pub(super) fn timed<T>(&self, step: impl FnOnce(u32) -> T) -> T {
        let begun = Instant::now();
        let stepped = step(self.budget.load(Ordering::Relaxed));
        let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.longest.fetch_max(took, Ordering::Relaxed);
        stepped
    }

    /// The longest step since the budget was set.
    pub(super) fn longest(&self) -> Duration {
        Duration::from_micros(self.longest.load(Ordering::Relaxed))
    }
}
