//! Decides whether a generation may run: a slot at once, a place in a bounded queue with a deadline, or a refusal.
//!
//! Invariant: a generation that got a [`Permit`] has a slot until the permit drops. Knows nothing of HTTP or plugins.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::telemetry::metrics::Metrics;

/// A slot.
#[derive(Debug)]
pub struct Permit(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

/// Why there is no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Slots and queue are full.
    Full,
    /// The wait took too long.
    TooLong,
    /// The worker is gone.
    Closed,
}

/// The slots and the queue of one worker.
pub struct Gate {
    slots: Arc<Semaphore>,
    count: usize,
    places: usize,
    timeout: Duration,
    waiting: AtomicUsize,
    metrics: Arc<Metrics>,
}

impl Gate {
    /// `slots` at once, `places` in the queue, each for at most `timeout`.
    pub fn new(slots: usize, places: usize, timeout: Duration, metrics: Arc<Metrics>) -> Gate {
        let semaphore = Arc::new(Semaphore::new(slots));
        Gate { slots: semaphore, count: slots, places, timeout, waiting: AtomicUsize::new(0), metrics }
    }

    /// A slot, perhaps after a wait in arrival order. Dropping the future leaves the queue.
    pub async fn enter(&self) -> Result<Permit, Refused> {
        // The semaphore gives freed slots to waiters first, so this cannot overtake the queue.
        if let Ok(permit) = Arc::clone(&self.slots).try_acquire_owned() {
            self.metrics.queue_wait.observe(0.0);
            return Ok(Permit(permit));
        }
        if self.slots.is_closed() {
            return Err(Refused::Closed);
        }
        let place = Place::take(self).ok_or(Refused::Full)?;
        let begun = Instant::now();
        let waited = tokio::time::timeout(self.timeout, Arc::clone(&self.slots).acquire_owned()).await;
        drop(place);
        match waited {
            Ok(Ok(permit)) => {
                self.metrics.queue_wait.observe(begun.elapsed().as_secs_f64());
                Ok(Permit(permit))
            }
            Ok(Err(_)) => Err(Refused::Closed),
            Err(_) => Err(Refused::TooLong),
        }
    }

    /// A slot that is free now, outside the queue and uncounted: for requests of the host's own.
    pub fn at_once(&self) -> Option<Permit> {
        Arc::clone(&self.slots).try_acquire_owned().ok().map(Permit)
    }

    /// No slot from now on; those who wait are told.
    pub fn close(&self) {
        self.slots.close();
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.count
    }

    /// Number of places in the queue.
    pub fn places(&self) -> usize {
        self.places
    }

    /// How long a wait may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// A place in the queue; given back when dropped.
struct Place<'a>(&'a Gate);

impl Place<'_> {
    fn take(gate: &Gate) -> Option<Place<'_>> {
        let add = |n| (n < gate.places).then_some(n + 1);
        gate.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()?;
        gate.metrics.queue_depth.inc();
        Some(Place(gate))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
        self.0.metrics.queue_depth.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    /// Whether the future is still pending after one poll.
    async fn poll_once<F: Future + Unpin>(future: &mut F) -> bool {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())
        })
        .await
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(test);
    }

    fn gate(slots: usize, places: usize, timeout: Duration) -> Gate {
        Gate::new(slots, places, timeout, Arc::new(Metrics::new()))
    }

    #[test]
    fn a_full_queue_refuses_and_a_freed_slot_goes_to_the_first_who_waits() {
        run(async {
            let gate = gate(1, 1, LONG);
            let first = gate.enter().await.expect("a slot");
            let mut second = Box::pin(gate.enter());
            assert!(poll_once(&mut second).await, "it waits");
            assert_eq!(gate.metrics.queue_depth.get(), 1);
            assert_eq!(gate.enter().await.expect_err("full"), Refused::Full);
            drop(first);
            second.await.expect("the freed slot");
            assert_eq!(gate.metrics.queue_depth.get(), 0);
        });
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        run(async {
            let gate = gate(1, 1, Duration::from_millis(5));
            let _held = gate.enter().await.expect("a slot");
            assert_eq!(gate.enter().await.expect_err("deadline"), Refused::TooLong);
            assert_eq!(gate.metrics.queue_depth.get(), 0);
        });
    }

    #[test]
    fn a_dropped_wait_leaves_the_queue() {
        run(async {
            let gate = gate(1, 1, LONG);
            let _held = gate.enter().await.expect("a slot");
            {
                let mut left = Box::pin(gate.enter());
                assert!(poll_once(&mut left).await, "it waits");
                assert_eq!(gate.metrics.queue_depth.get(), 1);
            }
            assert_eq!(gate.metrics.queue_depth.get(), 0);
        });
    }

    #[test]
    fn closing_tells_those_who_wait() {
        run(async {
            let gate = gate(1, 1, LONG);
            let _held = gate.enter().await.expect("a slot");
            let mut waits = Box::pin(gate.enter());
            assert!(poll_once(&mut waits).await, "it waits");
            gate.close();
            assert_eq!(waits.await.expect_err("closed"), Refused::Closed);
            assert_eq!(gate.enter().await.expect_err("closed"), Refused::Closed);
        });
    }
}
