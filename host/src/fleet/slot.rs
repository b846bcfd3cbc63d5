//! One model to serve, and where its engine stands. Pure: the keeper passes the time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::job::{Job, Source};
use crate::models::Model;
use crate::telemetry::metrics::Held;

/// Failures within [`WINDOW`] after which the engine is left alone for [`PAUSE`].
const TOO_MANY: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);
pub(super) const PAUSE: Duration = Duration::from_secs(300);
/// First and longest wait before an engine is built anew.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Where an engine stands.
pub(super) enum Phase {
    /// No plugin brings its engine.
    Waiting,
    /// It is being built; beside it an earlier one may serve.
    Building {
        /// What serves meanwhile.
        serving: Option<Arc<Model>>,
    },
    /// It serves.
    Up(Arc<Model>),
    /// It failed and will be built anew.
    Failed {
        /// When.
        again: Instant,
    },
}

/// One model.
pub(super) struct Slot {
    /// Tells it from every other, also of the same name.
    pub(super) number: u64,
    pub(super) job: Job,
    pub(super) source: Source,
    pub(super) phase: Phase,
    /// What the engine that serves was built from; another than `job` when that one failed.
    pub(super) served: Option<Job>,
    /// Why it is not up, or why what is wanted by now is not, when that failed.
    pub(super) reason: Option<String>,
    /// Turns true when the build that runs should be given up.
    pub(super) give_up: Arc<AtomicBool>,
    /// Who wants to know what comes of the first build.
    pub(super) waiters: Vec<oneshot::Sender<Result<(), String>>>,
    /// Engines built so far for its name.
    pub(super) generation: u32,
    /// Keeps the series of its model.
    pub(super) held: Option<Held>,
    /// Progress of the engine when it was last seen to move, and when that was.
    pub(super) moved: (u64, Instant),
    failures: VecDeque<Instant>,
}

impl Slot {
    pub(super) fn new(number: u64, job: Job, source: Source, now: Instant) -> Slot {
        Slot {
            number,
            job,
            source,
            phase: Phase::Waiting,
            served: None,
            reason: None,
            give_up: Arc::default(),
            waiters: Vec::new(),
            generation: 0,
            held: None,
            moved: (0, now),
            failures: VecDeque::new(),
        }
    }

    /// The build that runs, if one does, is not wanted any more.
    pub(super) fn stop_building(&self) {
        self.give_up.store(true, Ordering::Relaxed);
    }

    /// Whether the build that runs was told to give up.
    pub(super) fn is_given_up(&self) -> bool {
        self.give_up.load(Ordering::Relaxed)
    }

    /// Whether nothing serves what is wanted and nobody is at work on it.
    pub(super) fn lags(&self) -> bool {
        match &self.phase {
            Phase::Failed { .. } => true,
            Phase::Up(_) => self.served.as_ref().is_some_and(|served| !self.job.is_served_by(served)),
            Phase::Waiting | Phase::Building { .. } => false,
        }
    }

    /// Tells those who wait what came of the build.
    pub(super) fn tell(&mut self, outcome: &Result<(), String>) {
        for waiter in self.waiters.drain(..) {
            // One who has left needs no answer.
            drop(waiter.send(outcome.clone()));
        }
    }

    /// The model that answers requests now.
    pub(super) fn serving(&self) -> Option<&Arc<Model>> {
        match &self.phase {
            Phase::Up(model) | Phase::Building { serving: Some(model) } => Some(model),
            _ => None,
        }
    }

    /// The engine failed: how long until it is built anew. Doubles with each failure of the last minute; after five of
    /// them it is left alone for some minutes.
    pub(super) fn failed(&mut self, now: Instant) -> Duration {
        while self.failures.front().is_some_and(|at| now.saturating_duration_since(*at) > WINDOW) {
            self.failures.pop_front();
        }
        self.failures.push_back(now);
        let n = self.failures.len();
        let wait = if n >= TOO_MANY {
            self.failures.clear();
            PAUSE
        } else {
            (FIRST_WAIT * (1 << (n - 1))).min(LONGEST_WAIT)
        };
        self.phase = Phase::Failed { again: now + wait };
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_the_fifth_failure_in_a_minute_opens_the_circuit() {
        let now = Instant::now();
        let mut slot = Slot::new(1, Job::for_test("m"), Source::Admin, now);
        let waits: Vec<_> = (0..5).map(|i| slot.failed(now + Duration::from_secs(i)).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 300_000]);
        assert_eq!(slot.failed(now + Duration::from_secs(400)).as_millis(), 500);
    }

    #[test]
    fn failures_of_long_ago_do_not_count() {
        let now = Instant::now();
        let mut slot = Slot::new(1, Job::for_test("m"), Source::Admin, now);
        for i in 0..10 {
            assert_eq!(slot.failed(now + Duration::from_secs(i * 61)), FIRST_WAIT);
        }
    }
}
