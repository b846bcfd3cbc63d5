//! What an engine pushes on its way to the flights of its tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Instant;

use super::Worker;
use crate::generate::{End, Failure, Piece};
use crate::plugins::Receiver;
use crate::sched::flight::After;
use crate::telemetry::labels::Protocol;

/// Takes what the engine pushes.
pub(super) struct Reception<'a> {
    pub(super) worker: &'a Worker,
    /// A stream is full and its client reads: the engine outruns the sockets.
    pub(super) ahead: bool,
    /// When the push came; one look at the clock for all its pieces.
    pub(super) now: Option<Instant>,
    /// Pieces of the push.
    pub(super) pieces: u64,
    /// Who waits for what the push brought. They are woken together at its end: a body that runs at once, on another
    /// core, would wait for the locks of the pieces that are still to be delivered.
    pub(super) wakers: &'a mut Vec<Waker>,
}

impl Reception<'_> {
    fn pushed(&mut self) {
        self.now = None;
        self.worker.pieces.fetch_add(std::mem::take(&mut self.pieces), Ordering::Relaxed);
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

impl Drop for Reception<'_> {
    fn drop(&mut self) {
        // A push that ended early, by a fault.
        self.pushed();
    }
}

impl Receiver for Reception<'_> {
    fn piece(&mut self, task: u64, piece: Piece<'_>) {
        let worker = self.worker;
        self.pieces += 1;
        let finishes = piece.more.finish.is_some();
        let now = *self.now.get_or_insert_with(Instant::now);
        let flight = {
            let mut inner = worker.inner.lock();
            inner.pace.piece(now);
            if finishes {
                worker.engine.link().forget(task);
                inner.tasks.remove(&task).map(|running| running.flight)
            } else {
                inner.tasks.get(&task).map(|running| Arc::clone(&running.flight))
            }
        };
        let Some(flight) = flight else {
            // A worker that ends has ended its tasks before its engine knows of it.
            if !worker.closing.load(Ordering::Relaxed) {
                worker.breach(Protocol::UnknownTask);
            }
            return;
        };
        let unknown_token = || worker.breach(Protocol::UnknownToken);
        let wakers = &mut *self.wakers;
        // A fault in the text side of one request must not cost the others of the batch.
        let deliver = AssertUnwindSafe(|| flight.deliver(piece, now, wakers, unknown_token));
        let after = catch_unwind(deliver).unwrap_or_else(|_| {
            flight.end(End::Error(Failure::fault("internal", "the host failed on this answer")));
            After::Cancel
        });
        match after {
            After::Cancel if !finishes => {
                worker.engine.link().raise(task);
                worker.inner.lock().cancels.push(task);
            }
            After::Pause => self.ahead = true,
            After::Cancel | After::Nothing => {}
        }
    }

    fn taken(&mut self, task: u64, taken: Result<(), Failure>) {
        let flight = self.worker.inner.lock().tasks.get(&task).map(|running| Arc::clone(&running.flight));
        match (flight, taken) {
            (None, _) => self.worker.metrics.protocol_error(Protocol::UnknownTask),
            (Some(flight), Ok(())) => self.worker.accepted(task, &flight),
            (Some(_), Err(failure)) => self.worker.refused(task, &failure),
        }
    }

    fn go_on(&mut self) -> bool {
        self.pushed();
        !self.worker.closing.load(Ordering::Relaxed)
    }

    fn broken(&mut self) {
        self.worker.breach(Protocol::BadChunk);
    }
}
