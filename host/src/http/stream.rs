//! An answer as a body: takes all that waits at once, stamps its delivery, and ends its generations when it is dropped.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::Sleep;

use crate::generate::{Cause, End, Usage};
use crate::sched::Generation;
use crate::sched::roster::Ticket;

/// A comment that keeps proxies and clients from giving up on a silent stream.
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";
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
    /// Never later than the silence is over: it is set anew when it ends, not with every token.
    silence: std::pin::Pin<Box<Sleep>>,
}

struct Running {
    choices: Vec<Generation>,
    /// How those that have ended did.
    ends: Vec<Option<(End, Usage)>>,
    tail: Box<dyn Tail>,
    _tickets: Vec<Ticket>,
}

impl Stream {
    /// The body of an answer with these choices; `early` when its head leaves before the first token.
    pub fn new(choices: Vec<Generation>, tail: Box<dyn Tail>, tickets: Vec<Ticket>, early: bool) -> Stream {
        let ends = choices.iter().map(|_| None).collect();
        let running = Running { choices, ends, tail, _tickets: tickets };
        let silence = Box::pin(tokio::time::sleep(SILENCE));
        Stream { running: Some(running), greet: early, quiet: Instant::now(), silence }
    }

    /// The next bytes; none at the end.
    pub fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(running) = &mut self.running else { return Poll::Ready(None) };
        if std::mem::take(&mut self.greet) {
            return Poll::Ready(Some(Bytes::from_static(KEEP_ALIVE)));
        }
        // The moment of delivery: from here on the bytes are the connection's.
        let now = Instant::now();
        let Poll::Ready(bytes) = running.poll_bytes(cx, now) else {
            while self.silence.as_mut().poll(cx).is_ready() {
                let over = self.quiet.elapsed() >= SILENCE;
                if over {
                    self.quiet = now;
                }
                self.silence.as_mut().reset((self.quiet + SILENCE).into());
                if over {
                    cx.waker().wake_by_ref();
                    return Poll::Ready(Some(Bytes::from_static(KEEP_ALIVE)));
                }
            }
            return Poll::Pending;
        };
        self.quiet = now;
        if running.ends.iter().all(Option::is_some) {
            self.running = None;
        }
        Poll::Ready((!bytes.is_empty()).then(|| Bytes::from(bytes)))
    }

    /// Whether nothing will come.
    pub fn is_over(&self) -> bool {
        self.running.is_none()
    }
}

impl Running {
    /// What waits of any choice, and the tail behind the last of all.
    fn poll_bytes(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<Vec<u8>> {
        let (mut bytes, mut any) = (Vec::new(), false);
        for (choice, end) in self.choices.iter_mut().zip(&mut self.ends) {
            if end.is_some() {
                continue;
            }
            let Poll::Ready(ready) = choice.flight().poll_ready(cx) else { continue };
            any = true;
            choice.hand_over(&ready, now);
            if bytes.is_empty() {
                bytes = ready.bytes;
            } else {
                bytes.extend_from_slice(&ready.bytes);
            }
            if let Some(how) = ready.end {
                *end = Some((how, choice.flight().outcome().usage));
            }
        }
        if !any {
            return Poll::Pending;
        }
        let failed = self.ends.iter().flatten().any(|(end, _)| !end.is_answer());
        if failed {
            self.give_up_the_others();
        }
        if self.ends.iter().all(Option::is_some) {
            let ends: Vec<_> = self.ends.iter().flatten().cloned().collect();
            self.tail.write(&ends, &mut bytes);
        }
        Poll::Ready(bytes)
    }

    /// One choice has failed: the answer is none, so the others are not worth their work.
    fn give_up_the_others(&mut self) {
        for (choice, end) in self.choices.iter().zip(&mut self.ends) {
            if end.is_none() {
                choice.cancel(Cause::Sibling);
                *end = Some((End::Cancelled(Cause::Sibling), choice.flight().outcome().usage));
            }
        }
    }
}
