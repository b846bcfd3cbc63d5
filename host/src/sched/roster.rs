//! The running requests by their ids: for the cancel route, for duplicates, for slow clients and for the shutdown.
//!
//! Invariant: an entry is removed by the one who inserted it, when its ticket drops.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::flight::Flight;
use super::unread::Unread;
use super::worker::Worker;
use crate::generate::{Cause, End};

/// A request: its generations, and the worker that has them.
struct Entry {
    flights: Vec<Weak<Flight>>,
    worker: Arc<Worker>,
}

/// All running requests.
#[derive(Default)]
pub struct Roster {
    entries: Mutex<HashMap<String, Entry>>,
}

/// A request's place on the roster.
pub struct Ticket {
    roster: Arc<Roster>,
    id: String,
}

impl Roster {
    /// Puts a request on the roster; none when a running one has the same id.
    pub fn enter(
        self: &Arc<Roster>,
        id: &str,
        flights: &[Arc<Flight>],
        worker: &Arc<Worker>,
    ) -> Option<Ticket> {
        use std::collections::hash_map::Entry::Vacant;
        match self.entries.lock().entry(id.to_owned()) {
            Vacant(slot) => {
                let flights = flights.iter().map(Arc::downgrade).collect();
                slot.insert(Entry { flights, worker: Arc::clone(worker) });
                Some(Ticket { roster: Arc::clone(self), id: id.to_owned() })
            }
            std::collections::hash_map::Entry::Occupied(_) => None,
        }
    }

    /// Cancels a request; an id that is not running is nothing to do.
    pub fn cancel(&self, id: &str) {
        let found = self.entries.lock().get(id).map(Entry::running);
        for (flight, worker) in found.unwrap_or_default() {
            if flight.end(End::Cancelled(Cause::CancelRoute)) {
                worker.cancel(flight.task);
            }
        }
    }

    /// Ends the connections of clients that have not read for `patience`.
    pub fn cut_slow(&self, patience: Duration) {
        let now = Instant::now();
        for (flight, worker) in self.running() {
            if flight.cut_if_slow(now, patience) {
                worker.cancel(flight.task);
            }
        }
    }

    /// Ends those that wait longest, while the bytes that clients have not read are over `most`.
    pub fn make_room(&self, unread: &Unread, most: usize) {
        if unread.total() <= most {
            return;
        }
        let idle = |(flight, worker): (Arc<Flight>, _)| Some((flight.idle_since()?, flight, worker));
        let mut waiting: Vec<_> = self.running().into_iter().filter_map(idle).collect();
        waiting.sort_by_key(|(since, ..)| *since);
        let now = Instant::now();
        for (_, flight, worker) in waiting {
            if flight.cut_if_crowded(now) {
                worker.cancel(flight.task);
            }
        }
    }

    /// Ends all that run.
    pub fn tear_down(&self) {
        // All are ended before any engine hears of it: a slot that comes free must not let one from the queue run.
        let ended: Vec<_> =
            self.running().into_iter().filter(|(flight, _)| flight.end(End::Teardown)).collect();
        for (flight, worker) in ended {
            worker.cancel(flight.task);
        }
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn running(&self) -> Vec<(Arc<Flight>, Arc<Worker>)> {
        self.entries.lock().values().flat_map(Entry::running).collect()
    }
}

impl Entry {
    fn running(&self) -> Vec<(Arc<Flight>, Arc<Worker>)> {
        let flights = self.flights.iter().filter_map(Weak::upgrade);
        flights.map(|flight| (flight, Arc::clone(&self.worker))).collect()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.roster.entries.lock().remove(&self.id);
    }
}
