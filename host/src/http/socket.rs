//! A client's socket that notices when its client has stopped reading, and that ends so that its client can read the answer.
//!
//! The body of an answer cannot notice: once it is handed over nobody asks for it any more.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// A socket whose writes must make progress.
pub(super) struct Socket {
    inner: TcpStream,
    /// Read already, and to be read again.
    begun: Vec<u8>,
    patience: Duration,
    /// Runs while a write waits.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    /// `inner`, of which `begun` was read already, whose client may leave bytes unread for `patience`.
    pub(super) fn new(inner: TcpStream, begun: &[u8], patience: Duration) -> Socket {
        Socket { inner, begun: begun.to_vec(), patience, stuck: None }
    }

    /// Ends the connection after its last answer. A client that is still sending (a body that was refused) is listened to
    /// for a while: closing over bytes that nobody read is a reset, and that can overtake the answer.
    pub(super) async fn farewell(mut self, patience: Duration) {
        if self.inner.shutdown().await.is_err() {
            return;
        }
        let mut ignored = vec![0; 16 << 10];
        let listened = async { while self.inner.read(&mut ignored).await.is_ok_and(|n| n > 0) {} };
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
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.begun.is_empty() {
            let n = self.begun.len().min(buf.remaining());
            buf.put_slice(&self.begun[..n]);
            self.begun.drain(..n);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
