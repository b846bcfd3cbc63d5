//! The child's way to its host: whole frames, from any of its threads.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;

use super::frame::{Frame, HEAD};
use super::pipe;
use crate::plugins::leave;

/// The way to the host.
#[derive(Clone)]
pub(super) struct Home(Arc<Mutex<Out>>);

struct Out {
    stream: UnixStream,
    /// One write a frame.
    frame: Vec<u8>,
}

impl Home {
    pub(super) fn new(stream: UnixStream) -> Home {
        Home(Arc::new(Mutex::new(Out { stream, frame: Vec::new() })))
    }

    /// Sends a frame; waits while the host does not read. A host that is gone ends the process.
    pub(super) fn send(&self, kind: Frame, bytes: &[u8]) {
        let mut out = self.0.lock();
        let Out { stream, frame } = &mut *out;
        let sent = pipe::head(kind, bytes.len()).and_then(|head| {
            frame.clear();
            frame.extend_from_slice(&head);
            frame.extend_from_slice(bytes);
            frame.resize(HEAD + bytes.len().next_multiple_of(8), 0);
            stream.write_all(frame)
        });
        if sent.is_err() {
            leave(0);
        }
    }

    /// Sends a message.
    pub(super) fn send_json(&self, kind: Frame, value: &impl serde::Serialize) {
        match serde_json::to_vec(value) {
            Ok(bytes) => self.send(kind, &bytes),
            Err(error) => tracing::error!(%error, "a message could not be written"),
        }
    }
}
