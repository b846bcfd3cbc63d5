//! The body of a response: some bytes, or a generation as it comes.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;

use super::shortcut::Shortcut;
use super::stream::Stream;

/// A response's body.
pub enum Body {
    /// Bytes that are there.
    Full(Bytes),
    /// A generation; its connection looks at it too, where it has a shortcut.
    Stream(Arc<Mutex<Stream>>),
}

impl Body {
    /// Whether it is a generation as it comes.
    pub fn is_stream(&self) -> bool {
        matches!(self, Body::Stream(_))
    }

    /// Its small pieces may go this way, past hyper.
    pub(super) fn shorten(&self, way: &Arc<Shortcut>) {
        if let Body::Stream(stream) = self {
            let pieces: Weak<Mutex<Stream>> = Arc::downgrade(stream);
            way.begin(pieces);
            stream.lock().shorten(Arc::clone(way));
        }
    }

    /// No bytes.
    pub fn empty() -> Body {
        Body::Full(Bytes::new())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Body::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Body::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Body::Stream(stream) => {
                stream.lock().poll_bytes(cx).map(|bytes| bytes.map(|b| Ok(Frame::data(b))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Full(bytes) => bytes.is_empty(),
            Body::Stream(stream) => stream.lock().is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Stream(_) => SizeHint::default(),
        }
    }
}
