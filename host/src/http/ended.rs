//! How connections end, and the count of it. Some of hyper's errors are how clients leave every day.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::telemetry::labels::ConnectionEnd;
use crate::telemetry::metrics::Metrics;

/// A connection in the metrics: counted as accepted, and when it is dropped as ended.
pub(super) struct Booked {
    metrics: Arc<Metrics>,
    /// How it ends; an error where nobody comes to say so.
    pub(super) end: ConnectionEnd,
}

impl Booked {
    /// One was accepted.
    pub(super) fn new(metrics: Arc<Metrics>) -> Booked {
        metrics.connections.inc();
        Booked { metrics, end: ConnectionEnd::Error }
    }
}

impl Drop for Booked {
    fn drop(&mut self) {
        self.metrics.connection_ended(self.end);
    }
}

/// How it ended; `two` where HTTP/2 was spoken.
pub(super) fn of(ended: hyper::Result<()>, two: bool, peer: SocketAddr) -> ConnectionEnd {
    let Err(error) = ended else { return ConnectionEnd::Closed };
    let cause = error.source().map(ToString::to_string);
    tracing::debug!(%peer, %error, cause, "connection failed");
    let below = io_kind(&error);
    if below == Some(io::ErrorKind::TimedOut) {
        // The socket's patience with a client that does not read.
        ConnectionEnd::Cut
    } else if error.is_timeout() && !two {
        ConnectionEnd::NoRequest
    } else if error.is_parse() {
        ConnectionEnd::Malformed
    } else if below.is_some()
        || error.is_incomplete_message()
        || error.is_body_write_aborted()
        // An answer to a ping of HTTP/2.
        || error.is_timeout()
    {
        ConnectionEnd::ClientLeft
    } else {
        ConnectionEnd::Error
    }
}

/// How it ended behind an error of the socket while a stream was under way.
pub(super) fn of_stream(error: &io::Error, peer: SocketAddr) -> ConnectionEnd {
    tracing::debug!(%peer, %error, "stream not sent to its end");
    match error.kind() {
        // The socket's patience with a client that does not read.
        io::ErrorKind::TimedOut => ConnectionEnd::Cut,
        _ => ConnectionEnd::ClientLeft,
    }
}

/// What failed below hyper, where that is the cause.
fn io_kind(error: &hyper::Error) -> Option<io::ErrorKind> {
    let causes = std::iter::successors(error.source(), |error| (*error).source());
    causes.into_iter().find_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind)
}
