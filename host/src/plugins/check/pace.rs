//! The test of a step's budget: a hint, of which any is taken. Steps over it are told and no fault.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::ask::Ask;
use super::note::note;
use super::rig::Rig;
use super::{Outcome, Plan, Test};

pub(super) const TESTS: &[Test] =
    &[Test { name: "the work gets done whatever the budget of a step", run: budgets }];

/// How far a step may go over its budget before that is told.
const GRACE: Duration = Duration::from_millis(50);

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
    fn set(&self, budget_us: u32) {
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
    fn longest(&self) -> Duration {
        Duration::from_micros(self.longest.load(Ordering::Relaxed))
    }
}

fn budgets(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let mut told = Vec::new();
    for (budget_us, words) in [(1, "1 us"), (10_000, "10 ms"), (u32::MAX, "an hour")] {
        rig.pace().set(budget_us);
        let task = rig.submit(&Ask::short(&rig.card))?;
        note(&format!("step with a budget of {words}"));
        rig.finish(&[task]).map_err(|why| format!("with a budget of {words}: {why}"))?;
        let longest = rig.pace().longest();
        let most = Duration::from_micros(budget_us.into()) + GRACE;
        let over = if longest > most { ", over it" } else { "" };
        told.push(format!("{:.1} ms at {words}{over}", longest.as_secs_f64() * 1e3));
    }
    Ok(format!("longest steps: {}", told.join(", ")))
}
