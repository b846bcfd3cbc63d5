//! The body of a request, and what becomes of its rest when the answer does not wait for it.
//!
//! Over HTTP/1 a connection says farewell (`socket.rs`). Over HTTP/2 a body that is let go before its end resets its stream, and some
//! clients (curl 7.88, measured) then throw away the answer that came before: nobody learns why the request was refused. So the
//! rest is read on, and forgotten.
//!
//! What must hold: reading on ends with the connection, after a while, and after some megabytes; and few bodies of a connection are
//! read on at once, because each keeps its stream from the next request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Bodies of one connection that are read on at once.
const AT_ONCE: usize = 16;
/// Bytes of a body that are read on: twice what a body may have by default.
const MOST: usize = 64 << 20;

/// A body that arrives.
pub struct Upload {
    /// None once its rest is somebody else's.
    body: Option<Incoming>,
    rest: Option<Rest>,
}

/// How the rests of a connection's bodies are read.
#[derive(Clone)]
pub(super) struct Rest {
    connection: CancellationToken,
    tasks: TaskTracker,
    patience: Duration,
    places: Arc<Semaphore>,
}

impl Rest {
    /// Until `connection` ends, each for `patience` at most, by tasks among `tasks`.
    pub(super) fn new(connection: CancellationToken, tasks: TaskTracker, patience: Duration) -> Rest {
        Rest { connection, tasks, patience, places: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Upload {
    /// `rest` says how what nobody has read is read; without it is let go.
    pub(super) fn new(body: Incoming, rest: Option<Rest>) -> Upload {
        Upload { body: Some(body), rest }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let (Some(mut body), Some(rest)) = (self.body.take(), self.rest.take()) else { return };
        if body.is_end_stream() {
            return;
        }
        // Without a runtime the host has ended, and the connection with it.
        let Ok(runtime) = Handle::try_current() else { return };
        let Rest { connection, tasks, patience, places } = rest;
        let Ok(place) = places.try_acquire_owned() else { return };
        let read_on = async move {
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await {
                read += frame.data_ref().map_or(0, Bytes::len);
                if read > MOST {
                    return;
                }
            }
        };
        tasks.spawn_on(
            async move {
                let _place = place;
                tokio::select! {
                    _ = tokio::time::timeout(patience, read_on) => {}
                    () = connection.cancelled() => {}
                }
            },
            &runtime,
        );
    }
}
