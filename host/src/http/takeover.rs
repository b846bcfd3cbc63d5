//! A stream taken over from hyper: once that has sent the head and the first bytes of a streamed answer it has nothing more
//! to do with it but to frame it, and would hold two buffers for that as long as the stream lasts. So its connection is given
//! up there, the connection's task sends the rest itself, and begins anew with hyper for the client's next request.
//!
//! What must hold: bytes reach the client in the order in which they left the body. So nothing is taken over unless hyper's
//! last question found the body waiting and its buffers were flushed since; what the socket leaves of a piece goes before the
//! next. And a client that sends its next request early loses none of it: what was read ahead is read again. A request's
//! body was read to its end before an answer to it is streamed. All of it happens in the one task of the connection: the lock
//! is there for the compiler, and nobody ever waits for it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::bell::Bell;
use super::socket::Watch;
use super::stream::{Given, SMALL, Stream};

/// What hyper and the body that it sends tell of each other.
#[derive(Default)]
pub(super) struct Handover(Mutex<State>);

#[derive(Default)]
struct State {
    hyper: Hyper,
    /// The stream under way, and whether the connection stays for another request.
    stream: Option<(Weak<Mutex<Stream>>, bool)>,
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

impl Handover {
    /// This stream is sent next; the connection `stays` behind it or ends.
    pub(super) fn begin(&self, stream: Weak<Mutex<Stream>>, stays: bool) {
        let mut state = self.0.lock();
        (state.hyper, state.stream) = (Hyper::Has, Some((stream, stays)));
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
    fn written(&self) {
        let mut state = self.0.lock();
        if state.hyper == Hyper::Sent {
            state.hyper = Hyper::Asked;
        }
    }

    /// Hyper has nothing more to write.
    fn flushed(&self) {
        let mut state = self.0.lock();
        if state.hyper == Hyper::Asked {
            state.hyper = Hyper::Sent;
        }
    }

    /// The stream, if hyper is done with all that came before, and whether the connection stays behind it.
    pub(super) fn take(&self) -> Option<(Arc<Mutex<Stream>>, bool)> {
        let mut state = self.0.lock();
        if state.hyper != Hyper::Sent {
            return None;
        }
        let (stream, stays) = state.stream.take()?;
        Some((stream.upgrade()?, stays))
    }
}

/// A connection as hyper has it: what was read ahead comes first, and the handover learns of what is written.
pub(super) struct Lent<I> {
    io: I,
    ahead: Bytes,
    watch: Watch,
    handover: Option<Arc<Handover>>,
}

impl<I> Lent<I> {
    /// `io`, of which `ahead` was read already; `watch` is its socket's.
    pub(super) fn new(io: I, ahead: Bytes, watch: Watch) -> Lent<I> {
        Lent { io, ahead, watch, handover: None }
    }

    /// From now on `handover` learns of it.
    pub(super) fn tells(&mut self, handover: &Arc<Handover>) {
        self.handover = Some(Arc::clone(handover));
    }

    /// Without what was read ahead.
    pub(super) fn into_inner(self) -> I {
        self.io
    }

    /// What hyper had of it, for the rest of `stream`. Hyper has read `read` and not used it; what it had not read yet of what
    /// came ahead lies behind that.
    pub(super) fn take(self, read: &[u8], stream: Arc<Mutex<Stream>>) -> Taken<I> {
        // Copied, and it is rarely anything: a view of it, even an empty one, would keep hyper's whole buffer.
        let ahead = if self.ahead.is_empty() {
            Bytes::copy_from_slice(read)
        } else {
            [read, &self.ahead].concat().into()
        };
        let (io, watch) = (self.io, self.watch);
        Taken { io, stream, left: Vec::new(), unflushed: false, over: false, ahead, watch, bell: None }
    }

    fn written(&self) {
        if let Some(handover) = &self.handover {
            handover.written();
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Lent<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.poll_both(cx, buf);
        self.watch.read(read.is_pending());
        read
    }
}

impl<I: AsyncRead + Unpin> Lent<I> {
    fn poll_both(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let n = self.ahead.len().min(buf.remaining());
        if n == 0 {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        buf.put_slice(&self.ahead[..n]);
        self.ahead.advance(n);
        if !self.ahead.is_empty() || buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        // Nothing of what came before is kept alive by an empty rest of it.
        self.ahead = Bytes::new();
        // With what came behind it: for a head that comes in two parts hyper's buffer grows to twice its size.
        match Pin::new(&mut self.io).poll_read(cx, buf) {
            Poll::Pending => Poll::Ready(Ok(())),
            read => read,
        }
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Lent<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.written();
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.written();
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        if let Some(handover) = &self.handover {
            handover.flushed();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// A stream that the connection's task sends itself.
pub(super) struct Taken<I> {
    io: I,
    stream: Arc<Mutex<Stream>>,
    /// What the socket did not take of a piece.
    left: Vec<u8>,
    /// Something was written since the last flush.
    unflushed: bool,
    /// The last piece was written.
    over: bool,
    /// What the client sent of its next request.
    ahead: Bytes,
    watch: Watch,
    /// Rings when the client sends, or leaves.
    bell: Option<Arc<Bell>>,
}

impl<I: AsyncRead + AsyncWrite + Unpin> Taken<I> {
    /// Sends what there is; ready when all is sent, or with what keeps it from being sent: a client that left is the end of
    /// a file.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.look_at_client(cx)?;
        let (mut waits, mut pieces) = (false, 0);
        loop {
            ready!(self.poll_left(cx))?;
            if self.unflushed {
                ready!(Pin::new(&mut self.io).poll_flush(cx))?;
                self.unflushed = false;
            }
            if self.over {
                return Poll::Ready(Ok(()));
            }
            if waits {
                return Poll::Pending;
            }
            if pieces == AT_ONE_GO {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            pieces += 1;
            waits = ready!(self.poll_piece(cx))?;
        }
    }

    /// Whether nobody looks for the client's end: what it sent ahead has not been used yet.
    pub(super) fn looks_away(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// The connection as hyper takes it for the next request.
    pub(super) fn into_lent(self) -> Lent<I> {
        Lent::new(self.io, self.ahead, self.watch)
    }

    /// Without what was read ahead.
    pub(super) fn into_inner(self) -> I {
        self.io
    }

    /// Reads until the client has nothing more to say for now, or something, which is kept for later.
    fn look_at_client(&mut self, cx: &Context<'_>) -> io::Result<()> {
        let bell = Bell::of(&mut self.bell, cx.waker());
        if !bell.rang() || !self.ahead.is_empty() {
            return Ok(());
        }
        let (waker, mut room) = (bell.waker(), [0; AHEAD]);
        let mut room = ReadBuf::new(&mut room);
        let read = Pin::new(&mut self.io).poll_read(&mut Context::from_waker(&waker), &mut room);
        self.watch.read(read.is_pending());
        match read {
            Poll::Pending => {}
            Poll::Ready(read) => {
                read?;
                if room.filled().is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.ahead = Bytes::copy_from_slice(room.filled());
            }
        }
        Ok(())
    }

    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.left.is_empty() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, &self.left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n if n == self.left.len() => self.left = Vec::new(),
                n => drop(self.left.drain(..n)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the next piece, as far as the socket takes it; answers whether nothing is known to be behind it.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut framed: Framed = SmallVec::new();
        framed.resize(LINE, 0);
        let given = self.stream.lock().poll_into(cx, &mut |bytes| framed.extend_from_slice(bytes));
        let given = ready!(given);
        self.over = given == Given::Last;
        let mut begin = frame(&mut framed);
        if self.over {
            framed.extend_from_slice(LAST);
        }
        self.unflushed |= begin < framed.len();
        while begin < framed.len() {
            match Pin::new(&mut self.io).poll_write(cx, &framed[begin..])? {
                Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(n) => begin += n,
                Poll::Pending => {
                    self.left = framed[begin..].to_vec();
                    break;
                }
            }
        }
        Poll::Ready(Ok(given == Given::All))
    }
}

/// Pieces that are sent in one turn: a socket may take many of an engine that runs ahead, and the other streams wait.
const AT_ONE_GO: u32 = 4;
/// Bytes of a next request that are read while an answer is under way; more waits in the socket.
const AHEAD: usize = 1024;
/// Room for the line in front of a piece: the digits of its length, and the line's end.
const LINE: usize = 2 * size_of::<usize>() + END.len();
const END: &[u8] = b"\r\n";
/// The chunk behind the last.
const LAST: &[u8] = b"0\r\n\r\n";

/// A short piece is framed without memory of its own.
type Framed = SmallVec<[u8; LINE + SMALL + END.len() + LAST.len()]>;

/// Makes a chunk of HTTP/1.1 (RFC 9112, 7.1) of the piece behind [`LINE`] free bytes; answers where it begins. An empty piece
/// gives none: that would be the last.
fn frame(framed: &mut Framed) -> usize {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut length = framed.len() - LINE;
    if length == 0 {
        return LINE;
    }
    let mut begin = LINE - END.len();
    framed[begin..LINE].copy_from_slice(END);
    while length > 0 {
        begin -= 1;
        framed[begin] = DIGITS[length & 15];
        length >>= 4;
    }
    framed.extend_from_slice(END);
    begin
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt;

    use super::super::socket::Socket;
    use super::*;

    #[test]
    fn a_piece_becomes_a_chunk_and_an_empty_one_nothing() {
        for length in [1, 9, 15, 16, 255, 256, SMALL, 1 << 20] {
            let mut framed: Framed = SmallVec::new();
            framed.resize(LINE, 0);
            framed.resize(LINE + length, b'x');
            let begin = frame(&mut framed);
            assert_eq!(framed[begin..], *format!("{length:x}\r\n{}\r\n", "x".repeat(length)).as_bytes());
            assert_eq!(framed.spilled(), length > SMALL);
        }
        let mut framed: Framed = SmallVec::new();
        framed.resize(LINE, 0);
        assert_eq!(frame(&mut framed), framed.len());
    }

    #[test]
    fn it_is_open_only_while_hyper_has_asked_and_sent_everything() {
        let handover = Handover::default();
        let open = || handover.0.lock().hyper == Hyper::Sent;
        handover.flushed();
        assert!(!open(), "a head may be under way");
        handover.asked(false);
        handover.flushed();
        assert!(!open(), "it has been given bytes");
        handover.asked(true);
        assert!(!open(), "they have not been sent");
        handover.written();
        handover.flushed();
        assert!(open());
        handover.written();
        assert!(!open(), "it writes something of its own");
        handover.flushed();
        assert!(open());
        handover.asked(true);
        assert!(open(), "nothing has come between");
        handover.asked(false);
        assert!(!open());
    }

    /// The watch of a socket, and its client.
    async fn watched() -> (tokio::net::TcpStream, Watch) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let client =
            tokio::net::TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connects");
        let (socket, _) = listener.accept().await.expect("accepts");
        (client, Socket::new(socket, Duration::from_secs(1)).watch())
    }

    #[tokio::test]
    async fn what_was_read_ahead_comes_first_and_what_comes_behind_it_with_it() {
        let (_client, watch) = watched().await;
        let mut lent = Lent::new(&b"behind"[..], Bytes::from_static(b"ahead, "), watch);
        let mut got = [0; 3];
        lent.read_exact(&mut got).await.expect("reads");
        assert_eq!(&got, b"ahe");
        let mut rest = [0; 64];
        let n = lent.read(&mut rest).await.expect("reads");
        assert_eq!(&rest[..n], b"ad, behind");
    }

    struct NoTail;

    impl crate::http::stream::Tail for NoTail {
        fn write(&self, _: &[(crate::generate::End, crate::generate::Usage)], _: &mut Vec<u8>) {}
    }

    #[tokio::test]
    async fn what_hyper_has_not_read_of_what_came_ahead_stays_behind_what_it_has() {
        let (_client, watch) = watched().await;
        let mut lent = Lent::new(&b""[..], Bytes::from_static(b"one two three"), watch);
        let mut got = [0; 7];
        lent.read_exact(&mut got).await.expect("reads");
        let stream = Stream::new(Vec::new(), Box::new(NoTail), Vec::new(), false);
        // Of what it has read it has used the first word.
        let taken = lent.take(b"two", Arc::new(Mutex::new(stream)));
        assert_eq!(&taken.ahead[..], b"two three");
    }
}
