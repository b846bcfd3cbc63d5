//! `cascadia.async-sink/1` for authors with threads of their own.
#![expect(unsafe_code, reason = "shares the host's sink between threads")]

use core::ffi::c_void;

use super::with_extension;
use crate::abi::{engine, prim::ErrOut};
use crate::ext::draft::async_sink as wire;
use crate::sdk::{Result, Sink};

/// An engine that works by itself once it has a sink.
pub trait OpenSink {
    /// Takes the sink, once, before the first submit. `step` pushes nothing from then on and answers idle; when `close`
    /// returns, every open task has had its finish and no push runs or begins.
    fn attach(&self, sink: AsyncSink) -> Result<()>;
}

/// A sink that any thread may push into until `close` returns.
#[derive(Clone, Copy)]
pub struct AsyncSink(engine::Sink);

// SAFETY: the host's callback takes pushes from any thread, which is what this extension promises.
unsafe impl Send for AsyncSink {}
// SAFETY: as above.
unsafe impl Sync for AsyncSink {}

impl AsyncSink {
    /// A sink for one thread. Chunks of one task come from one thread at a time.
    pub fn sink(self) -> Sink {
        Sink::new(self.0)
    }
}

pub(super) static TABLE: wire::AsyncSinkV1 =
    wire::AsyncSinkV1 { struct_size: size_of::<wire::AsyncSinkV1>() as u32, flags: 0, attach };

unsafe extern "C" fn attach(engine: *mut c_void, sink: engine::Sink, err: ErrOut) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_extension!(engine, Some(err), async_sink, "sink of its own", |open| open.attach(AsyncSink(sink)))
    }
}
