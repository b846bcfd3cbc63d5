//! Decides whether a generation may run: a slot at once, a place in a bounded queue with a deadline, or a refusal.
//!
//! Invariant: a generation that got a [`Permit`] has a slot until the permit drops. Knows nothing of HTTP or plugins.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::telemetry::metrics::Metrics;

/// A slot.
#[derive(Debug)]
pub struct Permit {
    slot: Option<OwnedSemaphorePermit>,
    bounds: Arc<Mutex<Bounds>>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        // Under the lock, so that a change of the limits sees each slot in one place.
        let mut bounds = self.bounds.lock();
        if bounds.debt > 0 {
            bounds.debt -= 1;
            if let Some(slot) = self.slot.take() {
                slot.forget();
            }
        }
        drop(self.slot.take());
    }
}

/// What a gate allows now.
#[derive(Debug)]
struct Bounds {
    slots: usize,
    places: usize,
    timeout: Duration,
    /// Slots that are in use and will not come back: there are fewer by now.
    debt: usize,
}

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
    free: Arc<Semaphore>,
    bounds: Arc<Mutex<Bounds>>,
    waiting: AtomicUsize,
    metrics: Arc<Metrics>,
}

impl Gate {
    /// `slots` at once, `places` in the queue, each for at most `timeout`.
    pub fn new(slots: usize, places: usize, timeout: Duration, metrics: Arc<Metrics>) -> Gate {
        let bounds = Arc::new(Mutex::new(Bounds { slots, places, timeout, debt: 0 }));
        Gate { free: Arc::new(Semaphore::new(slots)), bounds, waiting: AtomicUsize::new(0), metrics }
    }

    /// Changes the limits. What runs and what waits goes on: with fewer slots the next ones end first, and a wait keeps
    /// the deadline it began with.
    pub fn change(&self, slots: usize, places: usize, timeout: Duration) {
        let mut bounds = self.bounds.lock();
        (bounds.places, bounds.timeout) = (places, timeout);
        let (more, fewer) = (slots.saturating_sub(bounds.slots), bounds.slots.saturating_sub(slots));
        let kept = more.min(bounds.debt);
        bounds.debt -= kept;
        self.free.add_permits(more - kept);
        bounds.debt += fewer - self.free.forget_permits(fewer);
        bounds.slots = slots;
    }

    /// A slot, perhaps after a wait in arrival order. Dropping the future leaves the queue.
    pub async fn enter(&self) -> Result<Permit, Refused> {
        // The semaphore gives freed slots to waiters first, so this cannot overtake the queue.
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            self.metrics.queue_wait.observe(0.0);
            return Ok(self.permit(permit));
        }
        if self.free.is_closed() {
            return Err(Refused::Closed);
        }
        let place = Place::take(self).ok_or(Refused::Full)?;
        let begun = Instant::now();
        let waited = tokio::time::timeout(self.timeout(), Arc::clone(&self.free).acquire_owned()).await;
        drop(place);
        match waited {
            Ok(Ok(permit)) => {
                self.metrics.queue_wait.observe(begun.elapsed().as_secs_f64());
                Ok(self.permit(permit))
            }
            Ok(Err(_)) => Err(Refused::Closed),
            Err(_) => Err(Refused::TooLong),
        }
    }

    /// A slot that is free now, outside the queue and uncounted: for requests of the host's own.
    pub fn at_once(&self) -> Option<Permit> {
        Arc::clone(&self.free).try_acquire_owned().ok().map(|slot| self.permit(slot))
    }

    /// No slot from now on; those who wait are told.
    pub fn close(&self) {
        self.free.close();
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.bounds.lock().slots
    }

    /// Number of places in the queue.
    pub fn places(&self) -> usize {
        self.bounds.lock().places
    }

    /// How long a wait may take.
    pub fn timeout(&self) -> Duration {
        self.bounds.lock().timeout
    }

    fn permit(&self, slot: OwnedSemaphorePermit) -> Permit {
        Permit { slot: Some(slot), bounds: Arc::clone(&self.bounds) }
    }
}

/// A place in the queue; given back when dropped.
struct Place<'a>(&'a Gate);

impl Place<'_> {
    fn take(gate: &Gate) -> Option<Place<'_>> {
        let places = gate.places();
        let add = |n| (n < places).then_some(n + 1);
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

    #[test]
    fn fewer_slots_let_the_running_ones_end_and_more_come_at_once() {
        run(async {
            let gate = gate(2, 1, LONG);
            let (first, second) = (gate.enter().await.expect("a slot"), gate.enter().await.expect("a slot"));
            gate.change(1, 1, LONG);
            assert_eq!(gate.slots(), 1);
            drop(first);
            assert!(gate.at_once().is_none(), "the one slot is in use");
            drop(second);
            let held = gate.at_once().expect("the slot");
            assert!(gate.at_once().is_none());
            gate.change(3, 1, LONG);
            let more = [gate.at_once().expect("a second"), gate.at_once().expect("a third")];
            assert!(gate.at_once().is_none());
            // Down and up again while all are in use: none is lost, none is made.
            gate.change(1, 1, LONG);
            gate.change(2, 1, LONG);
            drop((held, more));
            let all = [gate.at_once(), gate.at_once(), gate.at_once()];
            assert_eq!(all.iter().flatten().count(), 2);
        });
    }

    #[test]
    fn more_slots_wake_those_who_wait_and_places_change_too() {
        run(async {
            let gate = gate(1, 1, LONG);
            let _held = gate.enter().await.expect("a slot");
            let mut waits = Box::pin(gate.enter());
            assert!(poll_once(&mut waits).await, "it waits");
            gate.change(2, 0, LONG);
            waits.await.expect("the new slot");
            let _second = gate.enter().await.expect("given back");
            assert_eq!(gate.enter().await.expect_err("no places"), Refused::Full);
        });
    }
}
