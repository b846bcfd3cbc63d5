//! One link: whole frames over a connection that was greeted.
//!
//! What must hold: nothing of a frame is handed out before all of it came; memory for a payload grows with the bytes that
//! came, never with what a header says; after an end in the middle of a frame no byte is read as the begin of another.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::frame::{self, Fixed, Head, MAX_HEAD};
use super::socket::{Stream, Wish, wait};
use super::until::{Patience, Until};
use super::{Error, Limits, Result};
use crate::telemetry::labels::{Direction, LinkError};
use crate::telemetry::transport::{PeerMetrics, Whole};

/// A payload's first piece of memory, and the most that is kept for the next one. Bytes.
const FIRST: usize = 64 * 1024;
const KEPT: usize = 4 * 1024 * 1024;
/// Parts that the system takes in one call.
const PARTS: usize = 1024;

/// A received frame, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// A kind of the boundary.
    pub kind: u32,
    /// Element type; 0 of raw frames.
    pub dtype: u32,
    /// Dimensions; none of raw frames.
    pub dims: &'a [u64],
    /// The bytes.
    pub payload: &'a [u8],
}

/// What a frame to send says of itself.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    /// A kind of the boundary.
    pub kind: u32,
    /// Element type; 0 of raw frames.
    pub dtype: u32,
    /// Dimensions; none of raw frames.
    pub dims: &'a [u64],
}

/// A link between two stages.
pub struct Link {
    stream: Stream,
    /// The peer's address, for people.
    name: String,
    limits: Limits,
    /// Largest tensor frame that the peer takes.
    largest: u64,
    peer: Arc<PeerMetrics>,
    sending: Mutex<()>,
    receiving: Mutex<Incoming>,
    closed: AtomicBool,
    up: AtomicBool,
    /// Why nothing can be sent, or received, any more.
    send_end: OnceLock<String>,
    recv_end: OnceLock<String>,
}

impl Link {
    /// A link over a greeted connection.
    pub(super) fn new(
        stream: Stream,
        name: String,
        limits: Limits,
        largest: u64,
        peer: Arc<PeerMetrics>,
    ) -> Link {
        peer.up();
        Link {
            stream,
            name,
            limits,
            largest,
            peer,
            sending: Mutex::new(()),
            receiving: Mutex::default(),
            closed: AtomicBool::new(false),
            up: AtomicBool::new(true),
            send_end: OnceLock::new(),
            recv_end: OnceLock::new(),
        }
    }

    /// Sends one frame made of `parts`.
    pub fn send(&self, shape: Shape<'_>, parts: &[IoSlice<'_>], until: Until) -> Result<()> {
        let mut patience = Patience::new(until);
        let len = parts.iter().map(|part| part.len() as u64).sum();
        let head = Head::new(shape.kind, shape.dtype, shape.dims.to_vec(), len, self.limits.sizes())
            .map_err(|fault| Error::Invalid(fault.to_string()))?;
        if len > self.largest {
            let message =
                format!("a frame of {len} bytes is over the {} that {} takes", self.largest, self.name);
            return Err(Error::Invalid(message));
        }
        let _turn = self.turn(&self.sending, &patience, "send")?;
        self.usable(&self.send_end)?;
        let bytes = head.bytes();
        let mut all = Vec::with_capacity(parts.len() + 1);
        all.push(IoSlice::new(&bytes));
        all.extend(parts.iter().filter(|part| !part.is_empty()).copied());
        let begun = Instant::now();
        self.write(&mut all, head.whole(), &mut patience)?;
        let whole = Whole { kind: head.kind, bytes: head.whole(), took: begun.elapsed() };
        self.peer.whole(Direction::Sent, whole);
        Ok(())
    }

    fn write(&self, mut rest: &mut [IoSlice<'_>], whole: u64, patience: &mut Patience) -> Result<()> {
        let mut written: u64 = 0;
        while !rest.is_empty() {
            match self.stream.write(&rest[..rest.len().min(PARTS)]) {
                Ok(0) => return Err(self.send_failed(ErrorKind::WriteZero.into(), written > 0)),
                Ok(n) => {
                    if written == 0 {
                        self.peer.begun(Direction::Sent);
                    }
                    self.peer.moved(Direction::Sent, n);
                    patience.moved();
                    written += n as u64;
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock && !patience.is_over() => {
                    let begun = Instant::now();
                    wait(&self.stream, Wish::Write, patience.end())
                        .map_err(|e| self.send_failed(e, written > 0))?;
                    self.peer.blocked(begun.elapsed());
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock && written == 0 => {
                    return Err(Error::Deadline(format!(
                        "{} does not read; nothing of the frame was sent",
                        self.name
                    )));
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.peer.given_up(Direction::Sent);
                    let why =
                        format!("{} did not read: {written} of a frame's {whole} bytes were sent", self.name);
                    self.break_off(why.clone(), LinkError::Stalled);
                    return Err(Error::Deadline(format!("{why}; the link has ended")));
                }
                Err(e) => return Err(self.send_failed(e, written > 0)),
            }
        }
        Ok(())
    }

    /// What came before may still be received, so only this direction ends.
    fn send_failed(&self, error: io::Error, begun: bool) -> Error {
        if begun {
            self.peer.given_up(Direction::Sent);
        }
        if self.closed.load(Ordering::Acquire) {
            return Error::Closed(format!("the link to {} was closed", self.name));
        }
        self.send_end.get_or_init(|| format!("sending to {} failed: {error}", self.name));
        self.down(Some(LinkError::Lost));
        self.usable(&self.send_end).err().unwrap_or_else(|| Error::Lost(error.to_string()))
    }

    /// Receives one frame and lends it to `take`, during which the link is free for others.
    pub fn recv<T>(&self, until: Until, take: impl FnOnce(Frame<'_>) -> T) -> Result<T> {
        let mut patience = Patience::new(until);
        let mut incoming = self.turn(&self.receiving, &patience, "receive")?;
        let head = loop {
            self.usable(&self.recv_end)?;
            match incoming.pull(&self.stream, &self.limits) {
                Ok(Pulled { bytes, whole }) => {
                    if !std::mem::replace(&mut incoming.booked, true) {
                        self.peer.begun(Direction::Received);
                    }
                    self.peer.moved(Direction::Received, bytes);
                    patience.moved();
                    if let Some(head) = whole {
                        break head;
                    }
                }
                Err(Stop::Nothing) => self.wait_for_more(&mut incoming, &patience)?,
                Err(Stop::Left) => return Err(self.left(&mut incoming)),
                Err(Stop::Failed(e)) => {
                    let why = format!("the link to {} was lost: {e}", self.name);
                    return Err(self.recv_failed(&mut incoming, why, Some(LinkError::Lost)));
                }
                Err(Stop::Against(fault)) => {
                    let reason = match fault {
                        frame::Fault::Broken(_) => LinkError::Protocol,
                        frame::Fault::Oversize { .. } => LinkError::Oversize,
                    };
                    let why = format!("{} broke the rules of the link: {fault}", self.name);
                    return Err(self.recv_failed(&mut incoming, why, Some(reason)));
                }
            }
        };
        let took = incoming.headed.map_or(Duration::ZERO, |at| at.elapsed());
        self.peer.whole(Direction::Received, Whole { kind: head.kind, bytes: head.whole(), took });
        let mut payload = incoming.restart();
        drop(incoming);
        let len = usize::try_from(head.len).unwrap_or(usize::MAX).min(payload.len());
        let taken = take(Frame {
            kind: frame::wire_kind(head.kind),
            dtype: head.dtype,
            dims: &head.dims,
            payload: &payload[..len],
        });
        // The memory serves the next frame, unless that has its own already.
        if let Some(mut incoming) = self.receiving.try_lock()
            && incoming.payload.is_empty()
            && payload.len() <= KEPT
        {
            std::mem::swap(&mut incoming.payload, &mut payload);
        }
        Ok(taken)
    }

    fn wait_for_more(&self, incoming: &mut Incoming, patience: &Patience) -> Result<()> {
        let still = incoming.last.filter(|_| incoming.begun()).map(|last| last + self.limits.still);
        if still.is_some_and(|end| Instant::now() >= end) {
            let why = format!("{} stopped inside a frame, {}", self.name, incoming.progress());
            return Err(self.recv_failed(incoming, why, Some(LinkError::Stalled)));
        }
        if patience.is_over() {
            let what = if incoming.begun() { incoming.progress() } else { "no frame began".to_owned() };
            return Err(Error::Deadline(format!("nothing whole came from {} in time: {what}", self.name)));
        }
        let end = still.map_or(patience.end(), |still| still.min(patience.end()));
        wait(&self.stream, Wish::Read, end).map_err(|e| {
            let why = format!("the link to {} was lost: {e}", self.name);
            self.recv_failed(incoming, why, Some(LinkError::Lost))
        })
    }

    fn left(&self, incoming: &mut Incoming) -> Error {
        if incoming.begun() {
            let why = format!("{} closed the link inside a frame, {}", self.name, incoming.progress());
            return self.recv_failed(incoming, why, Some(LinkError::Cut));
        }
        self.recv_failed(incoming, format!("{} closed the link", self.name), None)
    }

    fn recv_failed(&self, incoming: &mut Incoming, why: String, reason: Option<LinkError>) -> Error {
        if incoming.booked {
            self.peer.given_up(Direction::Received);
        }
        drop(incoming.restart());
        if self.closed.load(Ordering::Acquire) {
            return Error::Closed(format!("the link to {} was closed", self.name));
        }
        match reason {
            Some(reason) => self.break_off(why, reason),
            None => {
                self.recv_end.get_or_init(|| why);
                self.down(None);
            }
        }
        self.usable(&self.recv_end).err().unwrap_or_else(|| Error::Lost("the link has ended".to_owned()))
    }

    /// Ends both directions.
    fn break_off(&self, why: String, reason: LinkError) {
        self.send_end.get_or_init(|| why.clone());
        self.recv_end.get_or_init(|| why);
        self.down(Some(reason));
        self.stream.end();
    }

    fn down(&self, reason: Option<LinkError>) {
        if self.up.swap(false, Ordering::AcqRel) {
            self.peer.down(reason);
            if let Some(reason) = reason {
                let why = self.recv_end.get().or(self.send_end.get()).map(String::as_str);
                tracing::warn!(peer = self.name, reason = reason.name(), why, "a link between stages ended");
            }
        }
    }

    fn usable(&self, end: &OnceLock<String>) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed(format!("the link to {} was closed", self.name)));
        }
        end.get().map_or(Ok(()), |why| Err(Error::Lost(why.clone())))
    }

    /// The right to send or to receive, alone.
    fn turn<'a, T>(&self, lock: &'a Mutex<T>, patience: &Patience, what: &str) -> Result<MutexGuard<'a, T>> {
        lock.try_lock_until(patience.end()).ok_or_else(|| {
            Error::Deadline(format!("another call to {what} held the link to {} for too long", self.name))
        })
    }

    /// `[any]` Ends it; calls that wait on it answer that it is closed.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.down(None);
        self.stream.end();
    }

    /// What to poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
        if self.receiving.get_mut().booked {
            self.peer.given_up(Direction::Received);
        }
    }
}

/// What has come of the next frame.
struct Incoming {
    head: [u8; MAX_HEAD],
    /// Bytes of the header that came.
    headed_bytes: usize,
    /// It stands in the metrics as begun.
    booked: bool,
    fixed: Option<Fixed>,
    parsed: Option<Head>,
    /// Memory for the payload: some of it from earlier frames.
    payload: Vec<u8>,
    /// Bytes of the payload that came.
    have: usize,
    /// When the header was whole.
    headed: Option<Instant>,
    /// When the last byte came.
    last: Option<Instant>,
}

impl Default for Incoming {
    fn default() -> Incoming {
        Incoming {
            head: [0; MAX_HEAD],
            headed_bytes: 0,
            booked: false,
            fixed: None,
            parsed: None,
            payload: Vec::new(),
            have: 0,
            headed: None,
            last: None,
        }
    }
}

/// What one look at the connection brought.
struct Pulled {
    bytes: usize,
    whole: Option<Head>,
}

/// Why a look brought nothing.
enum Stop {
    Nothing,
    Left,
    Failed(io::Error),
    Against(frame::Fault),
}

impl Incoming {
    fn begun(&self) -> bool {
        self.headed_bytes > 0
    }

    fn progress(&self) -> String {
        match &self.parsed {
            Some(head) => format!("{} of its {} bytes came", self.have, head.len),
            None => format!("{} bytes of its header came", self.headed_bytes),
        }
    }

    /// Forgets the frame; what was its payload.
    fn restart(&mut self) -> Vec<u8> {
        let payload = std::mem::take(&mut self.payload);
        *self = Incoming::default();
        payload
    }

    /// Reads once. `whole` is given when the frame's last byte came.
    fn pull(&mut self, stream: &Stream, limits: &Limits) -> std::result::Result<Pulled, Stop> {
        let bytes = match &self.parsed {
            None => {
                let end = self.fixed.map_or(frame::FIXED, Fixed::head_len);
                let n = read(stream, &mut self.head[self.headed_bytes..end])?;
                self.headed_bytes += n;
                self.look_at_head(limits).map_err(Stop::Against)?;
                n
            }
            Some(head) => {
                let len = usize::try_from(head.len).unwrap_or(usize::MAX);
                if self.have == self.payload.len() {
                    // Twice what came, so that who announces much and sends little costs little.
                    let room = (2 * self.have).max(FIRST).min(len);
                    self.payload.resize(room, 0);
                }
                let end = self.payload.len().min(len);
                let n = read(stream, &mut self.payload[self.have..end])?;
                self.have += n;
                n
            }
        };
        self.last = Some(Instant::now());
        let whole = self.parsed.as_ref().is_some_and(|head| self.have as u64 == head.len);
        Ok(Pulled { bytes, whole: if whole { self.parsed.take() } else { None } })
    }

    fn look_at_head(&mut self, limits: &Limits) -> std::result::Result<(), frame::Fault> {
        if self.headed_bytes == frame::FIXED {
            let fixed = self.head.first_chunk::<{ frame::FIXED }>();
            self.fixed = fixed.map(|bytes| Fixed::read(bytes, limits.sizes())).transpose()?;
        }
        if let Some(fixed) = self.fixed
            && self.headed_bytes == fixed.head_len()
        {
            self.parsed = Some(fixed.with_dims(&self.head[frame::FIXED..self.headed_bytes], limits.sizes())?);
            self.headed = Some(Instant::now());
        }
        Ok(())
    }
}

fn read(stream: &Stream, into: &mut [u8]) -> std::result::Result<usize, Stop> {
    loop {
        match stream.read(into) {
            Ok(0) => return Err(Stop::Left),
            Ok(n) => return Ok(n),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Err(Stop::Nothing),
            Err(e) => return Err(Stop::Failed(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn memory_grows_with_what_came_and_not_with_what_is_announced() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("set");
        let stream = Stream::Unix(ours);
        let mut incoming = Incoming::default();
        let mut head = b"CFR1\x01\x05\x01\0".to_vec();
        head.extend((400_u64 << 20).to_le_bytes());
        head.extend((400_u64 << 20).to_le_bytes());
        theirs.write_all(&head).expect("there is room");
        while incoming.pull(&stream, &Limits::CONTRACT).is_ok() {}
        assert!(incoming.parsed.is_some());
        assert!(incoming.payload.capacity() <= FIRST);
        let mut sent = 0;
        while sent < 4 * FIRST {
            theirs.write_all(&[1; 32 * 1024]).expect("there is room");
            sent += 32 * 1024;
            while incoming.pull(&stream, &Limits::CONTRACT).is_ok() {}
            assert_eq!(incoming.have, sent);
            assert!(incoming.payload.capacity() <= 2 * sent.max(FIRST), "{}", incoming.payload.capacity());
        }
    }
}
