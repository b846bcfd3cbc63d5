//! The body of a response: some bytes, or a generation as it comes.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;

use super::stream::Stream;
use super::takeover::Handover;

/// A response's body.
pub enum Body {
    /// Bytes that are there.
    Full(Bytes),
    /// A generation as it comes.
    Stream(Streamed),
}

/// A generation that its connection may take over from hyper.
pub struct Streamed {
    stream: Arc<Mutex<Stream>>,
    handover: Option<Arc<Handover>>,
}

impl From<Stream> for Body {
    fn from(stream: Stream) -> Body {
        Body::Stream(Streamed { stream: Arc::new(Mutex::new(stream)), handover: None })
    }
}

impl Body {
    /// Whether it is a generation as it comes.
    pub fn is_stream(&self) -> bool {
        matches!(self, Body::Stream(..))
    }

    /// A stream may be taken over by the connection, which `stays` behind it or ends.
    pub(super) fn offer(&mut self, handover: &Arc<Handover>, stays: bool) {
        if let Body::Stream(streamed) = self {
            handover.begin(Arc::downgrade(&streamed.stream), stays);
            streamed.handover = Some(Arc::clone(handover));
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
            Body::Stream(Streamed { stream, handover }) => {
                let bytes = stream.lock().poll_bytes(cx);
                if let Some(handover) = handover {
                    handover.asked(bytes.is_pending());
                }
                bytes.map(|bytes| bytes.map(|b| Ok(Frame::data(b))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Full(bytes) => bytes.is_empty(),
            Body::Stream(streamed) => streamed.stream.lock().is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Stream(..) => SizeHint::default(),
        }
    }
}
