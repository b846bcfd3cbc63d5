//! Spans in the host's traces, and threads whose death the host hears of.
#![expect(unsafe_code, reason = "calls the host's tables")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use super::host::{Worker, kvs, services};
use super::{Level, log};
use crate::abi::prim::{Array, Str};
use crate::abi::task::Trace;

/// W3C trace context; all zero = none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceContext {
    /// Trace id.
    pub trace_id: [u8; 16],
    /// Id of the parent span.
    pub span_id: [u8; 8],
    /// It is recorded.
    pub sampled: bool,
}

impl TraceContext {
    pub(super) fn read(trace: &Trace) -> TraceContext {
        TraceContext { trace_id: trace.trace_id, span_id: trace.span_id, sampled: trace.flags & 1 != 0 }
    }

    fn wire(self) -> Trace {
        Trace { trace_id: self.trace_id, span_id: self.span_id, flags: self.sampled.into() }
    }
}

/// An open span; ends when dropped. Without the service, or where the host keeps no more, it does nothing.
#[derive(Debug)]
pub struct Span {
    worker: Worker,
    handle: u64,
}

impl Span {
    /// Something happened inside it.
    pub fn event(&self, name: &str, fields: &[(&str, &str)]) {
        if self.handle != 0 {
            self.worker.put_event(self.handle, name, fields);
        }
    }

    /// A span inside this one.
    pub fn span(&self, name: &str, fields: &[(&str, &str)]) -> Span {
        self.worker.open_span(TraceContext::default(), self.handle, name, fields)
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let (Some(table), true) = (services().and_then(|s| s.trace), self.handle != 0) {
            // SAFETY: the worker is the host's own pointer; the handle came from this table.
            unsafe { (table.span_end)(self.worker.0, self.handle) }
        }
    }
}

impl Worker {
    /// Opens a span in the host's traces, in the trace `parent`. No prompt or answer text in its fields.
    pub fn span(self, parent: TraceContext, name: &str, fields: &[(&str, &str)]) -> Span {
        self.open_span(parent, 0, name, fields)
    }

    /// Something happened, outside of any span.
    pub fn event(self, name: &str, fields: &[(&str, &str)]) {
        self.put_event(0, name, fields);
    }

    /// Says that the engine is lost: the host fails its tasks and builds it anew.
    pub fn fault(self, message: &str) {
        match services().and_then(|s| s.fault) {
            // SAFETY: the worker is the host's own pointer; the text lives through the call.
            Some(table) => unsafe { (table.report)(self.0, Str::new(message.as_bytes())) },
            // Then a person must hear of it: nobody else will.
            None => log(Level::Error, "sdk", "engine is lost", &[("reason", message)]),
        }
    }

    fn open_span(self, parent: TraceContext, under: u64, name: &str, fields: &[(&str, &str)]) -> Span {
        let Some(table) = services().and_then(|s| s.trace) else { return Span { worker: self, handle: 0 } };
        let fields = kvs(fields);
        // SAFETY: the worker is the host's own pointer; the views live through the call.
        let handle = unsafe {
            (table.span_start)(self.0, parent.wire(), under, Str::new(name.as_bytes()), Array::new(&fields))
        };
        Span { worker: self, handle }
    }

    fn put_event(self, span: u64, name: &str, fields: &[(&str, &str)]) {
        let Some(table) = services().and_then(|s| s.trace) else { return };
        let fields = kvs(fields);
        // SAFETY: as above.
        unsafe { (table.event)(self.0, span, Str::new(name.as_bytes()), Array::new(&fields)) }
    }
}

/// Starts a thread of an engine. Where it panics, the host hears of it at once ([`Worker::fault`]) instead of waiting for
/// an answer that will not come. Join the thread before `close` returns.
pub fn spawn(
    worker: Worker,
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let own = name.to_owned();
    std::thread::Builder::new().name(own.clone()).spawn(move || {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
            worker.fault(&format!("thread {own} panicked: {}", super::guard::text(payload.as_ref())));
        }
    })
}
