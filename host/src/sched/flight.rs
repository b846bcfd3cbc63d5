//! The state that the engine's thread and the client's side share: bytes that wait to be sent, and the end.
//!
//! What must hold: whoever ends a flight first decides how; afterwards it takes nothing from the engine (it is a shadow
//! that waits for the engine's finish). Bytes and their token counts change together, under one lock, which is held for
//! microseconds and never over a call into a plugin.

mod mode;
mod plain;
mod room;
#[cfg(test)]
mod tests;

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

pub use mode::Mode;
use room::{AHEAD, BEGINS, Room};

use super::flood::Tide;
use super::moment::Moment;
use crate::generate::assemble::{Progress, Shown};
use crate::generate::outbox::Parcel;
use crate::generate::{Assembler, Cause, Consumer, End, Event, Failure, Finish, Outbox, Piece, Usage};

/// Bytes above which a client that does not read counts as slow: also the most that is handed over at once, so that what
/// counts as delivered is not far ahead of the client.
const PART: usize = 64 * 1024;

/// One generation between engine and client.
pub struct Flight {
    /// The task's id at its engine; never used twice.
    pub task: u64,
    mode: Mode,
    /// Ends the client's connection, when nothing else reaches it.
    connection: CancellationToken,
    state: Mutex<State>,
}

struct State {
    /// None once ended.
    live: Option<Live>,
    /// A text goes into the outbox as it is: see [`plain`].
    passes: bool,
    out: Outbox,
    /// How many of the bytes that wait are counted among those of all streams.
    counted: usize,
    tokens: u32,
    /// In collect mode: when how many tokens came.
    stamps: Vec<(Instant, u32)>,
    end: Option<End>,
    /// Set instead of the end's own outcome when the client never took what waited for it.
    cut: Option<Cause>,
    /// The counts of one that has ended.
    usage: Usage,
    accepted: bool,
    waiting_since: Option<Instant>,
    /// For how long its bytes may wait until it counts as one that is not read.
    ahead: Duration,
    tide: Tide,
    /// Who reads: the body, or who collects the answer.
    waker: Option<Waker>,
    /// Who waits for a slot, which may be another task than the reader's: one must not take the other's wake.
    entering: Option<Waker>,
}

struct Live {
    assembler: Assembler,
    consumer: Box<dyn Consumer>,
}

/// What waits for the client.
#[derive(Debug, Default)]
pub struct Ready {
    /// Bytes to send.
    pub bytes: Vec<u8>,
    /// Tokens they stand for.
    pub tokens: u32,
    /// Set when these are the last.
    pub end: Option<End>,
    /// What comes next is to wait for company, for [`super::flood::GATHER`].
    pub flood: bool,
}

/// What the engine's thread has to do after a piece.
#[derive(Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing.
    Nothing,
    /// Tell the engine to stop: the host has ended this one.
    Cancel,
    /// Let the client's side have a turn: the engine is far ahead of it.
    Pause,
}

impl Flight {
    /// A flight for `task`; `consumer` writes what `assembler` gives.
    pub fn new(
        task: u64,
        mode: Mode,
        assembler: Assembler,
        consumer: Box<dyn Consumer>,
        connection: CancellationToken,
    ) -> Flight {
        let (Mode::Stream { limit, .. } | Mode::Collect { limit }) = mode;
        let state = State {
            live: Some(Live { assembler, consumer }),
            passes: false,
            out: Outbox::new(mode.framing()),
            counted: 0,
            tokens: 0,
            stamps: Vec::new(),
            end: None,
            cut: None,
            usage: Usage::default(),
            accepted: false,
            waiting_since: None,
            ahead: BEGINS,
            tide: Tide::new(limit),
            waker: None,
            entering: None,
        };
        Flight { task, mode, connection, state: Mutex::new(state) }
    }

    /// The engine took the task: its prompt counts from now on.
    pub fn accepted(&self) {
        self.state.lock().accepted = true;
    }

    /// Takes a piece from the engine. `unknown_token` is called when it held ids without text. Whoever waits for it is put
    /// into `wakers`, for the caller to wake once it holds no lock and has delivered the other pieces of the push.
    pub fn deliver(
        &self,
        piece: Piece<'_>,
        now: Moment,
        wakers: &mut Vec<Waker>,
        unknown_token: impl FnOnce(),
    ) -> After {
        let mut state = self.state.lock();
        if self.pass(&mut state, &piece, now, wakers) {
            return After::Nothing;
        }
        self.weigh(&mut state, piece, now, wakers, unknown_token)
    }

    /// The long way of a piece.
    #[inline(never)]
    fn weigh(
        &self,
        state: &mut State,
        piece: Piece<'_>,
        moment: Moment,
        wakers: &mut Vec<Waker>,
        unknown_token: impl FnOnce(),
    ) -> After {
        let now = moment.on_clock();
        let finishes = piece.more.finish.is_some();
        let waits = state.out.waits();
        // Tested before the piece: one piece, however large, is always taken from an engine that delivers the whole.
        let room = if waits > self.mode.little() { self.room(state, now) } else { Room::Enough };
        if room == Room::None {
            wakers.extend(state.waker.take());
            return if finishes { After::Nothing } else { After::Cancel };
        }
        let Some(live) = state.live.as_mut() else { return After::Nothing };
        let collects = matches!(self.mode, Mode::Collect { .. });
        let Live { assembler, consumer } = live;
        let (out, mut shown) = (&mut state.out, 0);
        if !piece.more.prompt_logprobs.is_empty() {
            consumer.write(Event::Prompt(piece.more.prompt_logprobs), out);
        }
        let progress = assembler.push(piece, |Shown { text, tokens, scores }| {
            consumer.write(Event::Text { text, tokens, scores }, out);
            shown = tokens;
        });
        if assembler.take_unknown_tokens() {
            unknown_token();
        }
        state.passes = assembler.passes() && consumer.passes();
        let after = match progress {
            Progress::Open if room == Room::Ahead => After::Pause,
            Progress::Open => After::Nothing,
            Progress::StopString => {
                state.finish(End::Stop, now);
                if finishes { After::Nothing } else { After::Cancel }
            }
            Progress::Ended(finish) => {
                // Tokens that gave no text leave with the end: they were generated and nothing will show them later.
                shown += assembler.take_pending();
                state.finish(end_of(finish), now);
                After::Nothing
            }
        };
        state.note(shown, collects, now);
        self.count(state);
        if let Mode::Stream { flood, .. } = &self.mode {
            state.tide.piece(moment, flood);
        }
        let waiting = state.out.waits();
        let worth_a_look = waiting > waits && !collects && !state.tide.can_wait(waiting);
        if worth_a_look || state.end.is_some() {
            wakers.extend(state.waker.take());
        }
        after
    }

    /// Ends the flight from the host's side. False when it had ended before.
    pub fn end(&self, end: End) -> bool {
        let mut state = self.state.lock();
        if state.live.is_none() {
            return false;
        }
        let State { live, out, .. } = &mut *state;
        if let (Some(live), true) = (live.as_mut(), end.is_answer()) {
            let Live { assembler, consumer } = live;
            let mut shown = 0;
            assembler.abandon(|Shown { text, tokens, scores }| {
                consumer.write(Event::Text { text, tokens, scores }, out);
                shown = tokens;
            });
            state.note(shown, matches!(self.mode, Mode::Collect { .. }), Instant::now());
        }
        state.finish(end, Instant::now());
        self.count(&mut state);
        let wakers = [state.waker.take(), state.entering.take()];
        // Who is woken takes the lock at once.
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
        true
    }

    /// Whether tokens wait for the client.
    pub fn has_tokens(&self) -> bool {
        self.state.lock().tokens > 0
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.state.lock().end.is_some()
    }

    /// Everything that waits for the client, once there is a token or the end. A patient reader looks again after
    /// [`super::flood::GATHER`], and is woken only for what should not wait for so long.
    pub fn poll_first(&self, cx: &mut Context<'_>, patient: bool) -> Poll<()> {
        let mut state = self.state.lock();
        if state.waits_for_company(patient) {
            return state.park(cx);
        }
        if state.tokens > 0 || state.end.is_some() { Poll::Ready(()) } else { state.park(cx) }
    }

    /// Takes what waits for the client, a part at a time: the tokens and the end come with the last part. Patience is that
    /// of [`Flight::poll_first`].
    pub fn poll_ready(&self, cx: &Context<'_>, patient: bool) -> Poll<Ready> {
        let mut state = self.state.lock();
        if state.waits_for_company(patient) {
            return state.park(cx);
        }
        // What was cut off is over with its connection: its end is not to look like that of an answer.
        if (state.out.is_empty() && state.end.is_none()) || state.cut.is_some() {
            return state.park(cx);
        }
        state.ahead = AHEAD;
        let whole = state.out.waits() <= PART;
        let parcel = state.out.take(PART);
        let mut ready = Ready::default();
        if whole {
            state.waiting_since = None;
            ready.flood = state.tide.handed_over();
            (ready.tokens, ready.end) = (std::mem::take(&mut state.tokens), state.end.clone());
        } else {
            state.waiting_since = Some(Instant::now());
        }
        self.count(&mut state);
        // Framing is work, and the engine may be about to give more.
        drop(state);
        ready.bytes = self.open(parcel);
        Poll::Ready(ready)
    }

    fn open(&self, parcel: Parcel) -> Vec<u8> {
        parcel.open(self.mode.framing())
    }

    /// Gives what waits for the client to `take`, where it is at most `small` bytes and not the last; answers its tokens, or
    /// none where it is to be taken with [`Flight::poll_ready`]. Whoever asks is woken by what comes next in any case, unless
    /// that is to wait for company: that is said beside the tokens.
    pub fn poll_small(
        &self,
        cx: &Context<'_>,
        small: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Poll<Option<(u32, bool)>> {
        let mut state = self.state.lock();
        state.waits_for_company(false);
        if (state.out.is_empty() && state.end.is_none()) || state.cut.is_some() {
            return state.park(cx);
        }
        if state.end.is_some() || state.out.waits() > small {
            return Poll::Ready(None);
        }
        state.out.empty_into(self.mode.framing(), take);
        (state.waiting_since, state.ahead) = (None, AHEAD);
        self.count(&mut state);
        let _waits: Poll<()> = state.park(cx);
        Poll::Ready(Some((std::mem::take(&mut state.tokens), state.tide.handed_over())))
    }

    /// Waits for an end before there is a slot.
    pub fn poll_given_up(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.end.is_some() { Poll::Ready(()) } else { park(&mut state.entering, cx) }
    }

    /// Waits for the end, in collect mode.
    pub fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.end.is_some() { Poll::Ready(()) } else { state.park(cx) }
    }

    /// What was collected, with the times of its tokens. Called after the end.
    pub fn take_collected(&self) -> (Vec<u8>, Vec<(Instant, u32)>) {
        let mut state = self.state.lock();
        state.waiting_since = None;
        (self.open(state.out.take(usize::MAX)), std::mem::take(&mut state.stamps))
    }

    /// How it ended, the counts, whether the engine took it, and what cut the client's side off.
    pub fn outcome(&self) -> Outcome {
        let state = self.state.lock();
        let usage = state.live.as_ref().map_or(state.usage, |live| live.assembler.usage());
        Outcome { end: state.end.clone(), usage, accepted: state.accepted, cut: state.cut }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.discard();
    }
}

/// What is known about a flight.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended, if it has.
    pub end: Option<End>,
    /// The counts so far.
    pub usage: Usage,
    /// The engine took the task.
    pub accepted: bool,
    /// The client's side was cut off.
    pub cut: Option<Cause>,
}

impl State {
    /// Whether a patient reader is to look again later, for more than there is.
    fn waits_for_company(&mut self, patient: bool) -> bool {
        let waits = self.out.waits();
        self.tide.asked(patient && self.end.is_none() && self.cut.is_none(), waits)
    }

    fn drop_out(&mut self) {
        self.out.clear();
        self.tokens = 0;
    }

    fn finish(&mut self, end: End, now: Instant) {
        if let Some(mut live) = self.live.take() {
            self.usage = live.assembler.usage();
            live.consumer.write(Event::End { end: &end, usage: self.usage }, &mut self.out);
        }
        self.waiting_since.get_or_insert(now);
        self.end = Some(end);
    }

    fn note(&mut self, tokens: u32, collects: bool, now: Instant) {
        if tokens > 0 {
            self.tokens += tokens;
            if collects {
                self.stamps.push((now, tokens));
            }
        }
        if !self.out.is_empty() && !collects {
            self.waiting_since.get_or_insert(now);
        }
    }

    fn park<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        park(&mut self.waker, cx)
    }
}

fn park<T>(slot: &mut Option<Waker>, cx: &Context<'_>) -> Poll<T> {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
    Poll::Pending
}

fn end_of(finish: Finish) -> End {
    match finish {
        Finish::Stop => End::Stop,
        Finish::Length => End::Length,
        // The host did not ask for it, or the flight would have ended before: the engine gave the task up.
        Finish::Cancelled => {
            End::Error(Failure::fault("cancelled", "the engine cancelled the task by itself"))
        }
        Finish::Error(failure) => End::Error(failure),
    }
}
