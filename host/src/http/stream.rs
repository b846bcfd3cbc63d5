//! A generation as a body: takes all that waits at once, stamps its delivery, and ends the generation when it is dropped.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::Sleep;

use crate::sched::Generation;
use crate::sched::roster::Ticket;

/// A comment that keeps proxies and clients from giving up on a silent stream.
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";
/// After this long without bytes a comment is sent.
const SILENCE: Duration = Duration::from_secs(15);

/// The body of a streamed answer.
pub struct Stream {
    /// None once its last bytes were handed over.
    running: Option<Running>,
    /// A comment goes first: the head left before there was a token.
    greet: bool,
    silence: std::pin::Pin<Box<Sleep>>,
}

struct Running {
    generation: Generation,
    _tickets: Vec<Ticket>,
}

impl Stream {
    /// The body of `generation`; `early` when its head leaves before the first token.
    pub fn new(generation: Generation, tickets: Vec<Ticket>, early: bool) -> Stream {
        let running = Running { generation, _tickets: tickets };
        Stream { running: Some(running), greet: early, silence: Box::pin(tokio::time::sleep(SILENCE)) }
    }

    /// The next bytes; none at the end.
    pub fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(running) = &mut self.running else { return Poll::Ready(None) };
        if std::mem::take(&mut self.greet) {
            return Poll::Ready(Some(Bytes::from_static(KEEP_ALIVE)));
        }
        let Poll::Ready(ready) = running.generation.flight().poll_ready(cx) else {
            if self.silence.as_mut().poll(cx).is_ready() {
                self.restart();
                cx.waker().wake_by_ref();
                return Poll::Ready(Some(Bytes::from_static(KEEP_ALIVE)));
            }
            return Poll::Pending;
        };
        // The moment of delivery: from here on the bytes are the connection's.
        running.generation.hand_over(&ready, Instant::now());
        if ready.end.is_some() {
            self.running = None;
        } else {
            self.restart();
        }
        let bytes = Bytes::from(ready.bytes);
        Poll::Ready((!bytes.is_empty()).then_some(bytes))
    }

    /// Whether nothing will come.
    pub fn is_over(&self) -> bool {
        self.running.is_none()
    }

    fn restart(&mut self) {
        self.silence.as_mut().reset(tokio::time::Instant::now() + SILENCE);
    }
}
