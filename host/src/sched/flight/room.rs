//! Streams whose clients do not read, or not as fast as the engine gives.
//!
//! What must hold: an engine is slowed down for a client that reads, never for one that does not: that one is cut off, alone when its
//! own room is full, and before others where the room of all is.

use std::time::{Duration, Instant};

use super::{Flight, Mode, PART, State};
use crate::generate::{Cause, End, Failure};

/// A full stream whose client took bytes this recently is one whose engine runs ahead: the engine pauses for a moment.
pub(super) const AHEAD: Duration = Duration::from_millis(100);
/// The same for one of which nothing was handed over yet: its client cannot have read, and the host may have much to do.
pub(super) const BEGINS: Duration = Duration::from_secs(1);
/// How far over its limit a stream may grow, in limits, while its client is given time to read on.
const GRACE: usize = 16;

/// What there is for one more piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    Enough,
    /// Enough, but the engine is ahead of a client that reads.
    Ahead,
    None,
}

impl Flight {
    /// Whether there is room for one more piece where much waits. Without any the flight is ended.
    #[cold]
    pub(super) fn room(&self, state: &mut State, now: Instant) -> Room {
        if state.live.is_none() {
            return Room::Enough;
        }
        if self.crowds(state, now) {
            self.cut_off(state, now);
            return Room::None;
        }
        let waits = state.out.waits();
        let idle = state.waiting_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let end = match self.mode {
            Mode::Stream { limit, patience, .. } => {
                let given_up = waits > limit && (idle > patience || waits > limit * GRACE);
                given_up.then_some(End::Cancelled(Cause::SlowClient))
            }
            Mode::Collect { limit } => (waits > limit).then(|| too_large(limit)),
        };
        if let Some(end) = end {
            state.finish(end, now);
            return Room::None;
        }
        match self.mode {
            Mode::Stream { limit, ref unread, most, .. }
                if (waits > limit || unread.total() > most) && idle < state.ahead =>
            {
                Room::Ahead
            }
            _ => Room::Enough,
        }
    }

    /// Ends the connection of a client that has not read for `patience`. True when it did. What is collected no client can
    /// read: one choice of an answer may wait for another as long as that takes.
    pub fn cut_if_slow(&self, now: Instant, patience: Duration) -> bool {
        if matches!(self.mode, Mode::Collect { .. }) {
            return false;
        }
        let mut state = self.state.lock();
        let late = state.waiting_since.is_some_and(|since| now.saturating_duration_since(since) > patience);
        if !late || (state.end.is_none() && state.out.waits() < PART) || state.cut.is_some() {
            return false;
        }
        self.cut_off(&mut state, now);
        true
    }

    /// The same where the bytes of all streams leave no room, of which this one has more than a part.
    pub fn cut_if_crowded(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let crowds = state.cut.is_none() && self.crowds(&state, now);
        if crowds {
            self.cut_off(&mut state, now);
        }
        crowds
    }

    /// Since when its client has taken nothing, if something waits for it.
    pub fn idle_since(&self) -> Option<Instant> {
        self.state.lock().waiting_since
    }

    /// Nobody will take what waits: a shadow that its engine still has must not keep it.
    pub fn discard(&self) {
        let mut state = self.state.lock();
        state.drop_out();
        self.count(&mut state);
    }

    /// Whether this stream is one of those that take the room of all. One that was read from a moment ago and is within its
    /// limit is not: its engine runs ahead, and is slowed down. Nor is one that begins, until something has left.
    fn crowds(&self, state: &State, now: Instant) -> bool {
        let Mode::Stream { limit, ref unread, most, .. } = self.mode else { return false };
        let waits = state.out.waits();
        let idle =
            || state.waiting_since.is_some_and(|since| now.saturating_duration_since(since) >= state.ahead);
        let full = waits > limit && state.ahead == AHEAD;
        waits > PART && (full || idle()) && unread.total() > most
    }

    /// Ends a client that does not read together with its connection, and lets go of what waits for it.
    fn cut_off(&self, state: &mut State, now: Instant) {
        state.cut = Some(Cause::SlowClient);
        if state.live.is_some() {
            state.finish(End::Cancelled(Cause::SlowClient), now);
        }
        state.drop_out();
        self.count(state);
        self.connection.cancel();
    }

    /// Sets right what is counted of this stream among all.
    pub(super) fn count(&self, state: &mut State) {
        if let Mode::Stream { unread, .. } = &self.mode {
            let waits = state.out.waits();
            unread.settle(&mut state.counted, waits);
        }
    }
}

fn too_large(limit: usize) -> End {
    let message = format!("the answer is over {limit} bytes; stream it, or lower max_tokens");
    End::Error(Failure::fault("answer_too_large", message))
}
