//! Breaches of the boundary's contract that the SDK's types rule out: pushes where and when none may be, a finish that
//! means nothing, services for an engine that is gone.
#![expect(unsafe_code, reason = "does what safe code cannot: it breaks the contract")]

use cascadia_plugin_api::abi::chunk as wire;
use cascadia_plugin_api::abi::engine::Sink as RawSink;
use cascadia_plugin_api::abi::prim::{Array, Str};
use cascadia_plugin_api::sdk::{Sink, Worker};
use parking_lot::Mutex;

/// A finish that no host knows.
const STRANGE_FINISH: u32 = 77;

/// What goes wrong in a step before a task's first chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breach {
    /// A push comes from another thread.
    OtherThread,
    /// A chunk's finish means nothing.
    UnknownFinish,
}

/// The host's sink, kept for longer than the step that it was lent for.
#[derive(Clone, Copy)]
pub(crate) struct KeptSink(RawSink);

// SAFETY: the host's context is an address that lives for ever, and its callback takes calls from any thread: it refuses
// those that it should not get.
unsafe impl Send for KeptSink {}

impl KeptSink {
    /// Keeps it.
    pub(crate) fn of(sink: &Sink) -> KeptSink {
        KeptSink(sink.raw())
    }

    /// Pushes a chunk for the task, with this finish.
    pub(crate) fn push(self, task: u64, finish: u32) {
        let text = b"stray";
        let chunk = wire::Chunk {
            task,
            finish,
            flags: 0,
            tokens: Array::new(&[300_u32]),
            bytes: Str::new(text),
            logprobs: Array::EMPTY,
            top_ids: Array::EMPTY,
            top_logprobs: Array::EMPTY,
            top_k: 0,
            error: 0,
            prompt_logprobs: Array::EMPTY,
            prompt_tokens: 0,
            cached_tokens: 0,
            stop_token: 0,
            reserved: 0,
            error_message: Str::EMPTY,
            error_details: Str::EMPTY,
            timestamp_ns: 0,
        };
        // SAFETY: the chunk and what it views outlive the call; that it comes at all is the breach.
        unsafe { (self.0.push)(self.0.ctx, Array::new(&[chunk])) };
    }

    /// Commits what a task asked for.
    pub(crate) fn commit(self, breach: Breach, task: u64) {
        match breach {
            Breach::UnknownFinish => self.push(task, STRANGE_FINISH),
            Breach::OtherThread => std::thread::scope(|scope| {
                // Waited for by the scope; a panic in it would be the host's own.
                scope.spawn(move || self.push(task, wire::FINISH_NONE));
            }),
        }
    }
}

/// The worker of the engine that was built last, and remembers this one.
pub(crate) fn one_before(worker: Worker) -> Option<Worker> {
    static LAST: Mutex<Option<Worker>> = Mutex::new(None);
    LAST.lock().replace(worker)
}

/// Calls every service that names a worker.
pub(crate) fn haunt(gone: Worker) {
    gone.wake();
    gone.beat();
    gone.cancelled(1);
    gone.counter("ghosts_total", "Registered for an engine that is gone.", &[]).add(1.0);
}
