//! What an engine pushes on its way to the flights of its tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::task::Waker;

use super::Worker;
use super::at_work::AtWork;
use crate::generate::{End, Failure, Piece};
use crate::plugins::Receiver;
use crate::sched::Moment;
use crate::sched::flight::After;
use crate::telemetry::labels::Protocol;

/// Takes what the engine pushes.
pub(super) struct Reception<'a> {
    pub(super) worker: &'a Worker,
    /// A stream is full and its client reads: the engine outruns the sockets.
    pub(super) ahead: bool,
    /// When the push came; one look at the clock for all its pieces.
    pub(super) now: Option<Moment>,
    /// Pieces of the push.
    pub(super) pieces: u64,
    pub(super) at_work: &'a mut AtWork,
}

impl Reception<'_> {
    fn pushed(&mut self) {
        self.now = None;
        // Counted by this thread alone, and so without a locked instruction.
        let pieces = self.worker.pieces.load(Ordering::Relaxed);
        let all = pieces.wrapping_add(std::mem::take(&mut self.pieces));
        self.worker.pieces.store(all, Ordering::Relaxed);
        self.at_work.wakers.drain(..).for_each(Waker::wake);
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
        let (worker, at_work) = (self.worker, &mut *self.at_work);
        self.pieces += 1;
        let finishes = piece.more.finish.is_some();
        let now = *self.now.get_or_insert_with(|| worker.pushes(&mut at_work.pace));
        let Some(flight) = at_work.flights.get(&task) else {
            // A worker that ends has ended its tasks before its engine knows of it.
            if !worker.closing.load(Ordering::Relaxed) {
                worker.breach(Protocol::UnknownTask);
            }
            return;
        };
        if finishes {
            // Before its client hears of it, who may ask again at once.
            worker.finished(task);
        }
        let unknown_token = || worker.breach(Protocol::UnknownToken);
        let wakers = &mut at_work.wakers;
        // A fault in the text side of one request must not cost the others of the batch.
        let deliver = AssertUnwindSafe(|| flight.deliver(piece, now, wakers, unknown_token));
        let after = catch_unwind(deliver).unwrap_or_else(|_| {
            flight.end(End::Error(Failure::fault("internal", "the host failed on this answer")));
            After::Cancel
        });
        if finishes {
            at_work.flights.remove(&task);
        }
        match after {
            After::Cancel if !finishes => {
                worker.engine.link().raise(task);
                at_work.cancels.push(task);
            }
            After::Pause => self.ahead = true,
            After::Cancel | After::Nothing => {}
        }
    }

    fn taken(&mut self, task: u64, taken: Result<(), Failure>) {
        match (self.at_work.flights.get(&task), taken) {
            (None, _) => self.worker.metrics.protocol_error(Protocol::UnknownTask),
            (Some(flight), Ok(())) => self.worker.accepted(task, flight),
            (Some(_), Err(failure)) => self.worker.refused(task, &failure, self.at_work),
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
