//! An answer as a body: takes all that waits at once, stamps its delivery, and ends its generations when it is dropped.

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::task::coop::has_budget_remaining;
use tokio::time::Sleep;

use crate::generate::{Cause, End, Usage};
use crate::sched::Generation;
use crate::sched::flood::GATHER;
use crate::sched::roster::Ticket;

/// A comment that keeps proxies and clients from giving up on a silent stream.
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";
/// Bytes up to this many are short: they are copied, and their memory stays.
pub(super) const SMALL: usize = 1024;
/// After this long without bytes a comment is sent.
const SILENCE: Duration = Duration::from_secs(15);

/// Writes what follows the last of all choices.
pub trait Tail: Send {
    /// Appends it to `out`; `ends` has how each choice ended.
    fn write(&self, ends: &[(End, Usage)], out: &mut Vec<u8>);
}

/// The body of a streamed answer.
pub struct Stream {
    /// None once its last bytes were handed over.
    running: Option<Running>,
    /// A comment goes first: the head left before there was a token.
    greet: bool,
    /// Since when there were no bytes.
    quiet: Instant,
    /// Until when what comes waits for company: the engine outruns the wire.
    gather: Option<Instant>,
    /// Never later than the silence is over: it is set anew when it ends, not with every token.
    silence: Silence,
}

/// What [`Stream::poll_into`] gave.
#[derive(PartialEq, Eq)]
pub(super) enum Given {
    /// Something; there may be more.
    More,
    /// Something, and all of it: what comes next wakes the task.
    All,
    /// The last.
    Last,
}

struct Running {
    /// Nearly always one, which then lies in the stream itself.
    choices: SmallVec<[Choice; 1]>,
    tail: Box<dyn Tail>,
    _tickets: Vec<Ticket>,
}

/// What was taken of an answer.
struct Taken {
    bytes: Vec<u8>,
    at: Instant,
    /// What comes next waits for company.
    flood: bool,
}

struct Choice {
    generation: Generation,
    /// How it ended.
    end: Option<(End, Usage)>,
}

/// A timer that is looked at only when it can be over: it stays set for the task that polls it.
struct Silence {
    timer: std::pin::Pin<Box<Sleep>>,
    /// When it is over: not before, and at most a few milliseconds later.
    until: Instant,
    /// Who is woken by it.
    set_for: Option<Waker>,
}

impl Silence {
    fn from(quiet: Instant) -> Silence {
        let until = quiet + SILENCE;
        Silence { timer: Box::pin(tokio::time::sleep_until(until.into())), until, set_for: None }
    }

    /// Without a look at the clock: it wakes the task when it is over, and says so itself.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let set = self.set_for.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if set && !self.timer.is_elapsed() {
            return Poll::Pending;
        }
        let over = self.timer.as_mut().poll(cx);
        // A task that has had its turn is told to wait without the timer being set for it.
        self.set_for = has_budget_remaining().then(|| cx.waker().clone());
        over
    }

    fn reset(&mut self, until: Instant) {
        self.timer.as_mut().reset(until.into());
        (self.until, self.set_for) = (until, None);
    }
}

impl Stream {
    /// The body of an answer with these choices; `early` when its head leaves before the first token.
    pub fn new(choices: Vec<Generation>, tail: Box<dyn Tail>, tickets: Vec<Ticket>, early: bool) -> Stream {
        let choices = choices.into_iter().map(|generation| Choice { generation, end: None }).collect();
        let running = Running { choices, tail, _tickets: tickets };
        let quiet = Instant::now();
        Stream { running: Some(running), greet: early, quiet, gather: None, silence: Silence::from(quiet) }
    }

    /// The next bytes; none at the end.
    pub fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let patient = self.is_patient();
        let Some(running) = &mut self.running else { return Poll::Ready(None) };
        if std::mem::take(&mut self.greet) {
            return Poll::Ready(Some(Bytes::from_static(KEEP_ALIVE)));
        }
        let Poll::Ready(Taken { bytes, at, flood }) = running.poll_bytes(cx, patient) else {
            return self.poll_silence(cx).map(|()| Some(Bytes::from_static(KEEP_ALIVE)));
        };
        if running.is_over() {
            self.running = None;
        }
        self.handed_over(at, flood);
        Poll::Ready((!bytes.is_empty()).then(|| Bytes::from(bytes)))
    }

    /// The next bytes, given to `take`. What is short leaves its memory to what comes next.
    pub(super) fn poll_into(&mut self, cx: &mut Context<'_>, take: &mut dyn FnMut(&[u8])) -> Poll<Given> {
        if let Some(Running { choices, .. }) = &mut self.running
            && let [Choice { generation, end: None }] = choices.as_mut_slice()
            && !self.greet
            && self.gather.is_none()
        {
            match generation.flight().poll_small(cx, SMALL, take) {
                Poll::Ready(Some((tokens, flood))) => {
                    let now = Instant::now();
                    generation.hand_over_part(tokens, now);
                    self.handed_over(now, flood);
                    // The timer may have woken the task this time, and will not again before it is set anew.
                    let unset = self.silence.set_for.is_none();
                    let over = now >= self.silence.until || (unset && self.silence.poll(cx).is_ready());
                    return Poll::Ready(if over { Given::More } else { Given::All });
                }
                // Long, or the last.
                Poll::Ready(None) => {}
                Poll::Pending => {
                    return self.poll_silence(cx).map(|()| {
                        take(KEEP_ALIVE);
                        Given::More
                    });
                }
            }
        }
        self.poll_bytes(cx).map(|bytes| {
            take(&bytes.unwrap_or_default());
            if self.is_over() { Given::Last } else { Given::More }
        })
    }

    /// Bytes were handed over; in a flood the next ones wait for company.
    fn handed_over(&mut self, now: Instant, flood: bool) {
        self.quiet = now;
        self.gather = flood.then(|| now + GATHER);
        if let Some(until) = self.gather {
            self.silence.reset(until);
        }
    }

    /// Whether what has come may wait for more.
    fn is_patient(&mut self) -> bool {
        self.gather = self.gather.filter(|until| Instant::now() < *until);
        self.gather.is_some()
    }

    /// Ready when there were no bytes for so long that there is to be a comment; the silence begins anew.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.silence.poll(cx).is_ready() {
            let over = self.quiet.elapsed() >= SILENCE;
            if over {
                self.quiet = Instant::now();
            }
            self.silence.reset(self.quiet + SILENCE);
            // Held up between its question and this one, a patient reader finds the timer over that should have woken it: what
            // has come meanwhile wakes nobody, so it asks again.
            let patient = self.gather.take().is_some();
            if over || patient {
                cx.waker().wake_by_ref();
                return if over { Poll::Ready(()) } else { Poll::Pending };
            }
        }
        Poll::Pending
    }

    /// Whether nothing will come.
    pub fn is_over(&self) -> bool {
        self.running.is_none()
    }
}

impl Running {
    /// What waits of any choice, and the tail behind the last of all.
    fn poll_bytes(&mut self, cx: &Context<'_>, patient: bool) -> Poll<Taken> {
        let (mut bytes, mut taken, mut flood) = (Vec::new(), None, false);
        for Choice { generation, end } in &mut self.choices {
            if end.is_some() {
                continue;
            }
            let Poll::Ready(ready) = generation.flight().poll_ready(cx, patient) else { continue };
            // The moment of delivery: from here on the bytes are the connection's.
            let now = *taken.get_or_insert_with(Instant::now);
            generation.hand_over(&ready, now);
            flood |= ready.flood;
            if bytes.is_empty() {
                bytes = ready.bytes;
            } else {
                bytes.extend_from_slice(&ready.bytes);
            }
            if let Some(how) = ready.end {
                *end = Some((how, generation.flight().outcome().usage));
            }
        }
        let Some(at) = taken else { return Poll::Pending };
        if self.ends().any(|(end, _)| !end.is_answer()) {
            self.give_up_the_others();
        }
        if self.is_over() {
            let ends: Vec<_> = self.ends().cloned().collect();
            self.tail.write(&ends, &mut bytes);
        }
        Poll::Ready(Taken { bytes, at, flood })
    }

    /// How those that have ended did.
    fn ends(&self) -> impl Iterator<Item = &(End, Usage)> {
        self.choices.iter().filter_map(|choice| choice.end.as_ref())
    }

    fn is_over(&self) -> bool {
        self.choices.iter().all(|choice| choice.end.is_some())
    }

    /// One choice has failed: the answer is none, so the others are not worth their work.
    fn give_up_the_others(&mut self) {
        for Choice { generation, end } in self.choices.iter_mut().filter(|choice| choice.end.is_none()) {
            generation.cancel(Cause::Sibling);
            *end = Some((End::Cancelled(Cause::Sibling), generation.flight().outcome().usage));
        }
    }
}
