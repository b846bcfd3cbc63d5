//! A client's socket that notices when its client has stopped reading, or has left, and that ends so that its client can
//! read the answer.
//!
//! The body of an answer cannot notice: once it is handed over nobody asks for it any more.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, Sleep};

/// A client that has ended its side counts as gone when nobody has read up to that end for so long.
const UNREAD: Duration = Duration::from_millis(50);

/// What comes in pieces and is no longer than this is sent as one: a token's frame with the lines around it. Copying it costs
/// less than the kernel's look at each piece.
const SMALL: usize = 1024;

/// A socket whose writes must make progress.
pub(super) struct Socket {
    read: Arc<Reader>,
    write: OwnedWriteHalf,
    patience: Duration,
    /// Runs while a write waits.
    stuck: Option<Pin<Box<Sleep>>>,
}

/// What a socket shares with its watch.
struct Reader {
    half: OwnedReadHalf,
    /// The last read waits for its client: whoever reads will see that it left.
    waits: AtomicBool,
    /// Reads that gave something.
    reads: AtomicU64,
}

/// Sees a client leave while nobody reads from its socket.
#[derive(Clone)]
pub(super) struct Watch(Arc<Reader>);

impl Watch {
    /// Whoever reads was told to wait, or not. It is said where a read ends in the end: above the socket TLS, or what was read
    /// ahead, may give bytes though the socket has none, and then nobody may ask again.
    pub(super) fn read(&self, waits: bool) {
        let Watch(reader) = self;
        reader.waits.store(waits, Ordering::Relaxed);
        if !waits {
            reader.reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns when the client has ended its side and nobody reads on: behind a request whose answer is under way it sent
    /// another, and the end behind that is not seen before its turn. Must be polled after the reader, by the same task.
    pub(super) async fn left(self) {
        let Watch(reader) = &self;
        let mut left = pin!(reader.left());
        poll_fn(
            |cx| if reader.waits.load(Ordering::Relaxed) { Poll::Pending } else { left.as_mut().poll(cx) },
        )
        .await;
    }
}

impl Reader {
    async fn left(&self) {
        loop {
            // Of a TCP socket this means the end of the client's side only: its urgent data is not asked for.
            if self.half.as_ref().ready(Interest::PRIORITY).await.is_err() {
                return;
            }
            let before = self.reads.load(Ordering::Relaxed);
            tokio::time::sleep(UNREAD).await;
            if self.reads.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.half.as_ref().poll_read_ready(cx))?;
            let mut read = Err(io::ErrorKind::WouldBlock.into());
            // A read that does not fill its buffer has emptied the socket: saying so here spares the read that finds
            // nothing, as tokio's own does.
            let _told = self.half.as_ref().try_io(Interest::READABLE, || {
                let room = buf.remaining();
                read = self.half.as_ref().try_read_buf(buf);
                match &read {
                    Ok(n) if *n == 0 || *n == room => Ok(()),
                    _ => Err(io::ErrorKind::WouldBlock.into()),
                }
            });
            match read {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|_| ())),
            }
        }
    }
}

impl Socket {
    /// `inner`, whose client may leave bytes unread for `patience`.
    pub(super) fn new(inner: TcpStream, patience: Duration) -> Socket {
        let (half, write) = inner.into_split();
        let read = Arc::new(Reader { half, waits: AtomicBool::new(false), reads: AtomicU64::new(0) });
        Socket { read, write, patience, stuck: None }
    }

    /// What tells when its client has left.
    pub(super) fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.read))
    }

    /// Ends the connection after its last answer. A client that is still sending (a body that was refused) is listened to
    /// for a while: closing over bytes that nobody read is a reset, and that can overtake the answer.
    pub(super) async fn farewell(mut self, patience: Duration) {
        if self.shutdown().await.is_err() {
            return;
        }
        let mut ignored = vec![0; 16 << 10];
        let listened = async { while self.read(&mut ignored).await.is_ok_and(|n| n > 0) {} };
        // Whether it stopped by itself or not, it had its time.
        let _over = tokio::time::timeout(patience, listened).await;
    }

    /// A write that moved ends the wait; one that waits too long is an error.
    fn judge<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let deadline = Instant::now() + self.patience;
        let timer = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        match timer.as_mut().poll(cx) {
            Poll::Ready(()) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.read.poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.write).poll_write(cx, buf);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let whole: usize = bufs.iter().map(|buf| buf.len()).sum();
        let written = if bufs.len() > 1 && whole <= SMALL {
            let (mut small, mut at) = ([0; SMALL], 0);
            for buf in bufs {
                small[at..at + buf.len()].copy_from_slice(buf);
                at += buf.len();
            }
            Pin::new(&mut self.write).poll_write(cx, &small[..whole])
        } else {
            Pin::new(&mut self.write).poll_write_vectored(cx, bufs)
        };
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }
}
