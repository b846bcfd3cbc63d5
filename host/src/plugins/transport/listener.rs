//! Where peers come in: greets several at a time, so that one who says nothing keeps nobody out.
//!
//! What must hold: only a peer with this link version and this purpose becomes a link; everyone else is told why, as far
//! as it can understand, and counted.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::address::Address;
use super::greeting::{Greeting, Silence, say};
use super::hello::{self, Hello, Word};
use super::socket::{Acceptor, Stream, poll};
use super::until::{Patience, Until};
use super::{Error, Limits, Result};
use crate::telemetry::labels::LinkError;
use crate::telemetry::transport::TransportMetrics;

/// Connections that are greeted at once; a further one takes the place of the oldest.
const GREETED: usize = 16;
/// Between two lines in the log about refused connections: a scan of the port must not fill it.
const QUIET: Duration = Duration::from_secs(1);

/// A listener of a worker.
pub struct Listener {
    acceptor: Acceptor,
    /// Where peers find it.
    pub(super) bound: Address,
    /// What was asked for, the name of its series.
    pub(super) asked: Address,
    purpose: String,
    limits: Limits,
    metrics: Arc<TransportMetrics>,
    arriving: Mutex<Vec<Arriving>>,
    warned: Mutex<Option<Instant>>,
    closed: AtomicBool,
}

/// A connection whose greeting is not whole.
struct Arriving {
    stream: Stream,
    greeting: Greeting,
    since: Instant,
}

impl Arriving {
    fn pull(&mut self) -> std::result::Result<Option<Hello>, Silence> {
        self.greeting.pull(&self.stream)
    }
}

/// A peer that was let in.
pub(super) struct Guest {
    pub(super) stream: Stream,
    pub(super) largest: u64,
}

impl Listener {
    pub(super) fn new(
        asked: Address,
        purpose: String,
        limits: Limits,
        metrics: Arc<TransportMetrics>,
    ) -> Result<Listener> {
        if purpose.len() > hello::MAX_TEXT {
            return Err(Error::long_purpose(purpose.len()));
        }
        let (acceptor, bound) = Acceptor::bind(&asked, Instant::now() + limits.greeting)
            .map_err(|e| Error::Failed(format!("cannot listen on {asked}: {e}")))?;
        if !asked.is_local() {
            tracing::warn!(address = %bound, purpose, "stages on other machines may come in; links have no keys");
        }
        let (arriving, warned) = (Mutex::default(), Mutex::default());
        Ok(Listener {
            acceptor,
            bound,
            asked,
            purpose,
            limits,
            metrics,
            arriving,
            warned,
            closed: AtomicBool::new(false),
        })
    }

    /// What it is for.
    pub fn purpose(&self) -> &str {
        &self.purpose
    }

    /// Waits for the next peer with the right greeting.
    pub(super) fn accept(&self, until: Until) -> Result<Guest> {
        let patience = Patience::new(until);
        let late = || Error::Deadline(format!("no peer came to {} in time", self.bound));
        let mut arriving = self.arriving.try_lock_until(patience.end()).ok_or_else(late)?;
        let mut last_look = false;
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(Error::Closed(format!("the listener at {} was closed", self.bound)));
            }
            if let Some(guest) = self.greet(&mut arriving) {
                return Ok(guest);
            }
            if last_look {
                return Err(late());
            }
            last_look = patience.is_over();
            let fds: Vec<BorrowedFd<'_>> = std::iter::once(self.acceptor.as_fd())
                .chain(arriving.iter().map(|a| a.stream.as_fd()))
                .collect();
            let end =
                arriving.iter().map(|a| a.since + self.limits.greeting).fold(patience.end(), Instant::min);
            let ready = poll(&fds, end).map_err(|e| self.failed(&e))?;
            if ready.first() == Some(&true) {
                self.take_in(&mut arriving)?;
            }
        }
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        Error::Failed(format!("the listener at {} failed: {error}", self.bound))
    }

    fn take_in(&self, arriving: &mut Vec<Arriving>) -> Result<()> {
        loop {
            match self.acceptor.accept() {
                Ok(stream) => {
                    if arriving.len() >= GREETED {
                        drop(arriving.remove(0));
                        self.metrics.error(LinkError::Rejected);
                    }
                    arriving.push(Arriving { stream, greeting: Greeting::new(), since: Instant::now() });
                    // A flood must not keep those from being greeted who are in.
                    if arriving.len() >= GREETED {
                        return Ok(());
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                // It was closed meanwhile, or the peer gave up on the way in.
                Err(_) if self.closed.load(Ordering::Acquire) => return Ok(()),
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(e) => return Err(self.failed(&e)),
            }
        }
    }

    /// Listens to everyone who is in; the first that is right comes out.
    fn greet(&self, arriving: &mut Vec<Arriving>) -> Option<Guest> {
        let mut at = 0;
        while at < arriving.len() {
            match arriving[at].pull() {
                Ok(None) if arriving[at].since.elapsed() < self.limits.greeting => at += 1,
                Ok(None) => self.refuse(&arriving.remove(at).stream, "it said nothing"),
                Ok(Some(hello)) => {
                    let stream = arriving.remove(at).stream;
                    if let Some(guest) = self.judge(stream, &hello) {
                        return Some(guest);
                    }
                }
                Err(Silence::Against(fault)) => self.refuse(&arriving.remove(at).stream, &fault.to_string()),
                // Nobody to refuse: a look at the port, or a peer that gave up.
                Err(Silence::Left | Silence::Failed(_)) => drop(arriving.remove(at)),
            }
        }
        None
    }

    fn judge(&self, stream: Stream, hello: &Hello) -> Option<Guest> {
        if hello.word != Word::Hello {
            self.refuse(&stream, &hello::Fault::Stranger.to_string());
            return None;
        }
        if hello.text != self.purpose {
            self.refuse(&stream, &format!("it came for {:?}, here is {:?}", hello.text, self.purpose));
            return None;
        }
        // Who gave up while it waited is no peer.
        if stream.is_left() {
            return None;
        }
        let welcome = Hello { word: Word::Welcome, largest: self.limits.tensor, text: self.purpose.clone() };
        say(&stream, &welcome, Instant::now() + self.limits.greeting).ok()?;
        Some(Guest { stream, largest: hello.largest })
    }

    fn refuse(&self, stream: &Stream, why: &str) {
        self.metrics.error(LinkError::Rejected);
        let mut warned = self.warned.lock();
        if warned.is_none_or(|at| at.elapsed() >= QUIET) {
            *warned = Some(Instant::now());
            tracing::warn!(address = %self.bound, why, "a connection to a stage was refused");
        }
        drop(warned);
        let refusal = Hello { word: Word::Refused, largest: 0, text: why.to_owned() };
        // A stranger may not listen; one more look at what it said keeps the system from taking the answer back.
        if say(stream, &refusal, Instant::now()).is_ok() {
            drop(stream.read(&mut [0; 1024]));
        }
        stream.end();
    }

    /// `[any]` Ends it; who waits on it is told that it is closed.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.acceptor.end();
    }
}
