//! `cascadia.engine/1`: the hot path. The host submits tasks and drives; the engine pushes chunks from inside `step`.

use super::prim::{Array, ErrOut, Progress};
use super::task::Task;
use core::ffi::c_void;

/// [`StepOut::state`]: there is more to do now.
pub const STEP_MORE: u32 = 0;
/// [`StepOut::state`]: nothing to do until the next submit or wake.
pub const STEP_IDLE: u32 = 1;
/// [`StepOut::state`]: nothing to do before [`StepOut::until_ns`], a submit or a wake.
pub const STEP_WAIT: u32 = 2;

/// [`Sink::push`] answered: go on.
pub const SINK_GO_ON: u32 = 0;
/// [`Sink::push`] answered: the host is closing; return from `step` at once.
pub const SINK_STOP: u32 = 1;

table! {
    /// Where the engine delivers.
    Sink as "cascadia_sink" {
        /// The host's context.
        ctx: *mut c_void,
        /// Takes an array of [`super::chunk::Chunk`], borrowed for the call; one call per batch is the cheap way.
        /// Called only inside `step`, on its thread. The engine holds no lock that submit or cancel needs.
        push: unsafe extern "C" fn(ctx: *mut c_void, chunks: Array) -> u32,
    }
}

table! {
    /// What a step left.
    StepOut as "cascadia_step_out" {
        /// One of the `STEP_` values.
        state: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// For [`STEP_WAIT`]: time of the host's clock, in nanoseconds.
        until_ns: u64,
    }
}

table! {
    /// A running engine.
    EngineV1 as "cascadia_engine_v1" {
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[control]` Runs what the first request would otherwise pay for.
        warmup: unsafe extern "C" fn(engine: *mut c_void, progress: Progress, err: ErrOut) -> u32,
        /// `[any]` Takes a task, borrowed for the call. After OK exactly one chunk with a finish will follow; after
        /// another code none. Chunks may be pushed before this call has returned.
        submit: unsafe extern "C" fn(engine: *mut c_void, task: *const Task, err: ErrOut) -> u32,
        /// `[drive]` Does a piece of work. `budget_us` is a hint to engines that can split theirs. A code other than 0
        /// means that the engine as a whole failed.
        step: unsafe extern "C" fn(engine: *mut c_void, budget_us: u32, sink: Sink, out: *mut StepOut, err: ErrOut) -> u32,
        /// `[any]` Asks for the end of a task; its finish is still pushed. Unknown and ended ids are fine. The host owes
        /// at least one more `step`, whatever the last one answered.
        cancel: unsafe extern "C" fn(engine: *mut c_void, task: u64) -> u32,
        /// `[control]` Ends all work within the deadline. No submit comes any more, and one that did is refused (CLOSED).
        /// `step` may run beside it, and pushes what is still owed. Where no step runs, tasks that are open need no finish: the host has ended them.
        close: unsafe extern "C" fn(engine: *mut c_void, deadline_ms: u32, err: ErrOut) -> u32,
        /// `[control]` Frees the engine; the last call on it, nothing else is running.
        destroy: unsafe extern "C" fn(engine: *mut c_void),
    }
}
