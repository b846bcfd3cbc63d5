//! The short way of a token to its client: past hyper, which has nothing to do with it but to frame it.
//!
//! While an answer is streamed over HTTP/1.1 and hyper has sent all that it was given, the next small piece of the body is
//! framed and sent here. Everything else is hyper's: heads, large pieces, ends, and whatever the socket did not take at once.
//!
//! What must hold: bytes reach the socket in the order in which they left the body. So nothing is sent here unless hyper's
//! last question found the body waiting and its buffers were flushed since; and what the socket left of a piece is sent by
//! [`super::socket::Socket`] before any byte of hyper's. All of it happens in the one task of the connection: the locks are
//! there for the compiler, and nobody ever waits for them.

use std::io;
use std::sync::Weak;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use smallvec::SmallVec;

/// Largest piece that goes the short way. A larger one is moved into hyper's buffers without a copy.
const SMALL: usize = 1024;
/// Room for the line in front of a piece: the digits of its length, and the line's end.
const LINE: usize = 5;
const END: &[u8] = b"\r\n";

/// A body of which small pieces may be taken past hyper.
pub(super) trait Pieces: Send {
    /// Gives what waits to `take`, where it is at most `small` bytes and not the last; or says that it is to be asked for as
    /// hyper does.
    fn poll_piece(&mut self, cx: &Context<'_>, small: usize, take: &mut dyn FnMut(&[u8])) -> Poll<Piece>;
}

/// What waits of a body.
pub(super) enum Piece {
    /// It was taken.
    Taken,
    /// Hyper is to ask for it.
    Other,
}

/// What the task of a connection, its socket and the body that it sends know of each other.
#[derive(Default)]
pub(super) struct Shortcut(Mutex<State>);

#[derive(Default)]
struct State {
    hyper: Hyper,
    /// The body under way.
    body: Option<Weak<Mutex<dyn Pieces>>>,
    /// Who is woken when the body has something.
    tokens: Option<Waker>,
    /// What the socket did not take of a piece.
    left: Vec<u8>,
}

/// What hyper is known to have done last.
#[derive(Default, PartialEq, Eq, Clone, Copy)]
enum Hyper {
    /// It has bytes, or is about to: of a head, of a body.
    #[default]
    Has,
    /// It found the body waiting.
    Asked,
    /// And has sent everything before.
    Sent,
}

impl Shortcut {
    /// Whom the body is to wake when it has something.
    pub(super) fn wakes(&self, tokens: Waker) {
        self.0.lock().tokens = Some(tokens);
    }

    /// Who is to be woken when the body has something; none before the task has run.
    pub(super) fn waker(&self) -> Option<Waker> {
        self.0.lock().tokens.clone()
    }

    /// Whether the socket did not take the whole of a piece.
    pub(super) fn has_left(&self) -> bool {
        !self.0.lock().left.is_empty()
    }

    /// This body is sent next.
    pub(super) fn begin(&self, body: Weak<Mutex<dyn Pieces>>) {
        let mut state = self.0.lock();
        (state.hyper, state.body) = (Hyper::Has, Some(body));
    }

    /// Hyper has asked the body, which had something or waits.
    pub(super) fn asked(&self, waits: bool) {
        let mut state = self.0.lock();
        state.hyper = match state.hyper {
            _ if !waits => Hyper::Has,
            // It asks again when it has sent everything, and still has nothing.
            Hyper::Sent => Hyper::Sent,
            _ => Hyper::Asked,
        };
    }

    /// Hyper writes to the socket.
    pub(super) fn written(&self) {
        let mut state = self.0.lock();
        if state.hyper == Hyper::Sent {
            state.hyper = Hyper::Asked;
        }
    }

    /// Hyper has nothing more to write.
    pub(super) fn flushed(&self) {
        let mut state = self.0.lock();
        if state.hyper == Hyper::Asked {
            state.hyper = Hyper::Sent;
        }
    }

    /// Sends what waits of the body. False when that is hyper's: it must be asked then.
    pub(super) fn send(&self, write: impl FnOnce(&[u8]) -> io::Result<usize>) -> bool {
        let (body, tokens) = {
            let state = self.0.lock();
            if state.hyper != Hyper::Sent || !state.left.is_empty() {
                return false;
            }
            (state.body.as_ref().and_then(Weak::upgrade), state.tokens.clone())
        };
        let (Some(body), Some(tokens)) = (body, tokens) else { return false };
        let mut framed: SmallVec<[u8; LINE + SMALL + END.len()]> = SmallVec::new();
        framed.resize(LINE, 0);
        match body
            .lock()
            .poll_piece(&Context::from_waker(&tokens), SMALL, &mut |piece| framed.extend_from_slice(piece))
        {
            Poll::Pending => return true,
            Poll::Ready(Piece::Other) => return false,
            Poll::Ready(Piece::Taken) => {}
        }
        let begin = frame(&mut framed);
        // Where it fails hyper learns why: it asks the socket to flush.
        let sent = write(&framed[begin..]).unwrap_or_default();
        let whole = begin + sent == framed.len();
        if !whole {
            self.0.lock().left.extend_from_slice(&framed[begin + sent..]);
        }
        whole
    }

    /// Sends what was left of a piece; ready once nothing is.
    pub(super) fn poll_left(
        &self,
        mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        while !state.left.is_empty() {
            match write(&state.left) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => drop(state.left.drain(..n)),
            }
        }
        if state.left.capacity() > 0 {
            state.left = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

/// Makes a chunk of HTTP/1.1 (RFC 9112, 7.1) of the piece behind [`LINE`] free bytes; answers where it begins.
fn frame(framed: &mut SmallVec<[u8; LINE + SMALL + END.len()]>) -> usize {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut length = framed.len() - LINE;
    let mut begin = LINE - END.len();
    framed[begin..LINE].copy_from_slice(END);
    while length > 0 && begin > 0 {
        begin -= 1;
        framed[begin] = DIGITS[length & 15];
        length >>= 4;
    }
    framed.extend_from_slice(END);
    begin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_becomes_a_chunk() {
        for length in [1, 9, 15, 16, 255, 256, SMALL] {
            let mut framed = SmallVec::new();
            framed.resize(LINE, 0);
            framed.resize(LINE + length, b'x');
            let begin = frame(&mut framed);
            assert_eq!(framed[begin..], *format!("{length:x}\r\n{}\r\n", "x".repeat(length)).as_bytes());
            assert!(!framed.spilled());
        }
    }

    #[test]
    fn it_is_open_only_while_hyper_has_asked_and_sent_everything() {
        let shortcut = Shortcut::default();
        let open = || shortcut.0.lock().hyper == Hyper::Sent;
        shortcut.flushed();
        assert!(!open(), "a head may be under way");
        shortcut.asked(false);
        shortcut.flushed();
        assert!(!open(), "it has been given bytes");
        shortcut.asked(true);
        assert!(!open(), "they have not been sent");
        shortcut.written();
        shortcut.flushed();
        assert!(open());
        shortcut.written();
        assert!(!open(), "it writes something of its own");
        shortcut.flushed();
        assert!(open());
        shortcut.asked(true);
        assert!(open(), "nothing has come between");
        shortcut.asked(false);
        assert!(!open());
    }

    #[test]
    fn what_was_left_goes_in_order_and_once() {
        let shortcut = Shortcut::default();
        shortcut.0.lock().left = b"0123456789".to_vec();
        let (mut room, mut got) = (4, Vec::new());
        let mut write = |bytes: &[u8]| {
            if room == 0 {
                return Poll::Pending;
            }
            let n = bytes.len().min(room);
            room -= n;
            got.extend_from_slice(&bytes[..n]);
            Poll::Ready(Ok(n))
        };
        assert!(shortcut.poll_left(&mut write).is_pending());
        assert_eq!(shortcut.0.lock().left, b"456789");
        assert!(shortcut.poll_left(|bytes| Poll::Ready(Ok(bytes.len()))).is_ready());
        assert_eq!((got, shortcut.0.lock().left.len()), (b"0123".to_vec(), 0));
        let nobody = |_: &[u8]| Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        assert!(matches!(shortcut.poll_left(nobody), Poll::Ready(Ok(()))), "nothing is written twice");
    }
}
