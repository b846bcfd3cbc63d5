//! What the host lends. All services are `[any]`, valid for ever, and must not be called after `destroy` of the worker
//! they name. `worker` is the pointer that `new_builder` was given.
//!
//! `[any]` says here that a function may be called from every thread beside everything else. Two kinds wait by their
//! nature: [`TransportV1`] waits for the link, up to the deadline it is given, and [`DlopenV1::open`] for the loader's
//! lock and the library's initialisers. Neither may be called while a lock is held that `submit` or `cancel` needs, nor
//! from inside these two.

#![expect(unsafe_code, reason = "declares a table with a pointer to an atomic word as shareable")]

use super::prim::{Array, ErrOut, Str, StrOut};
use super::task::Trace;
use core::ffi::c_void;

/// [`LogV1`] levels.
pub mod level {
    /// Someone must act.
    pub const ERROR: u32 = 1;
    /// Recovered by itself.
    pub const WARN: u32 = 2;
    /// What an operator must know.
    pub const INFO: u32 = 3;
    /// Per request.
    pub const DEBUG: u32 = 4;
    /// Per token.
    pub const TRACE: u32 = 5;
}

table! {
    /// `cascadia.host.log/1`: lines in the host's log.
    LogV1 as "cascadia_host_log_v1" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// The most detailed level that is on: an aligned word the host may change at any time; read it atomically.
        level: *const u32,
        /// Writes a line. `plugin` is the writer's id, `target` a part of it; `fields` are [`super::prim::Kv`]s.
        log: unsafe extern "C" fn(level: u32, plugin: Str, target: Str, message: Str, fields: Array),
    }
}

// SAFETY: `level` points to a word that both sides access atomically; the table itself never changes.
unsafe impl Sync for LogV1 {}
// SAFETY: as above.
unsafe impl Send for LogV1 {}

/// [`MetricsV1::series`]: only grows.
pub const METRIC_COUNTER: u32 = 1;
/// [`MetricsV1::series`]: goes up and down.
pub const METRIC_GAUGE: u32 = 2;
/// [`MetricsV1::series`]: a distribution.
pub const METRIC_HISTOGRAM: u32 = 3;

table! {
    /// `cascadia.host.metrics/1`: series on the host's `/metrics`, named `cascadia_plugin_<plugin id>_<name>`.
    MetricsV1 as "cascadia_host_metrics_v1" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// A handle for the series, 0 on failure. `labels` are [`super::prim::Kv`]s, `buckets` are `f64` upper bounds.
        /// The same name and labels give the same handle.
        series: unsafe extern "C" fn(worker: *mut c_void, kind: u32, name: Str, help: Str, labels: Array, buckets: Array, err: ErrOut) -> u64,
        /// Adds to a counter or gauge; a negative value on a counter is ignored.
        add: unsafe extern "C" fn(handle: u64, value: f64),
        /// Sets a gauge.
        set: unsafe extern "C" fn(handle: u64, value: f64),
        /// Adds a sample to a histogram.
        observe: unsafe extern "C" fn(handle: u64, value: f64),
    }
}

table! {
    /// `cascadia.host.clock/1`: one clock for both sides.
    ClockV1 as "cascadia_host_clock_v1" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// Monotonic nanoseconds since an arbitrary point, never 0.
        now_ns: unsafe extern "C" fn() -> u64,
    }
}

table! {
    /// `cascadia.host.cancel/1`: the fast path of cancellation, for engines that look between kernels.
    CancelV1 as "cascadia_host_cancel_v1" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// An aligned word that turns non-zero when the task is cancelled; read it atomically. Valid from `submit` until
        /// the push of the task's finish returns; null for an unknown task.
        flag: unsafe extern "C" fn(worker: *mut c_void, task: u64) -> *const u32,
    }
}

table! {
    /// `cascadia.host.wake/1`: ends the wait that a step asked for.
    WakeV1 as "cascadia_host_wake_v1" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `step` will be called soon. Safe from any thread, also from inside `step`.
        wake: unsafe extern "C" fn(worker: *mut c_void),
    }
}

table! {
    /// `cascadia.host.heartbeat/1`: how an engine in a long step says that it is alive.
    HeartbeatV1 as "cascadia_host_heartbeat_v1" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// An aligned counter to add to atomically, of this worker; null for an unknown one.
        counter: unsafe extern "C" fn(worker: *mut c_void) -> *mut u64,
    }
}

/// [`DlopenV1::open`]: symbols become visible to libraries opened later.
pub const DLOPEN_GLOBAL: u32 = 1;

table! {
    /// `cascadia.host.dlopen/1`: opens a plugin's own dependency under the host's loader lock.
    DlopenV1 as "cascadia_host_dlopen_v1" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// A handle, null on failure. Symbols are bound at once. A second build of a library that is already loaded
        /// under the same SONAME is refused, naming both files. Never closed.
        open: unsafe extern "C" fn(path: Str, flags: u32, err: ErrOut) -> *mut c_void,
        /// Address of a symbol, null when absent.
        symbol: unsafe extern "C" fn(library: *mut c_void, name: Str) -> *mut c_void,
    }
}

table! {
    /// `cascadia.host.trace/1`: spans and events of a plugin in the host's traces, at debug level under the target
    /// `plugin`.
    TraceV1 as "cascadia_host_trace_v1" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// Opens a span; a handle, 0 where none is kept (the level is off, the worker is unknown, or it has too many open
        /// ones). It stands in the trace `parent` (all zero = none) and, where `under` is the handle of an open span of
        /// the same worker, inside that. `fields` are [`super::prim::Kv`]s; no prompt or answer text.
        span_start: unsafe extern "C" fn(worker: *mut c_void, parent: Trace, under: u64, name: Str, fields: Array) -> u64,
        /// Ends a span. A handle that is unknown, 0 or ended is ignored.
        span_end: unsafe extern "C" fn(worker: *mut c_void, span: u64),
        /// Something happened, inside a span or (0) outside of any. In a span that is unknown or ended: ignored.
        event: unsafe extern "C" fn(worker: *mut c_void, span: u64, name: Str, fields: Array),
    }
}

table! {
    /// `cascadia.host.fault/1`: how a plugin says that an engine is lost although no call of it fails.
    FaultV1 as "cascadia_host_fault_v1" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// A thread that the worker's engine cannot do without has died, for the reason in one line. The host treats it
        /// as a failed step: the worker's tasks fail, and it is built anew. Of several reports the first counts.
        report: unsafe extern "C" fn(worker: *mut c_void, message: Str),
    }
}

table! {
    /// Part of a frame to send.
    IoVec as "cascadia_iovec" {
        /// First byte; may be null when `len` is 0.
        ptr: *const u8,
        /// Length in bytes.
        len: usize,
    }
}

table! {
    /// Where a received frame goes.
    FrameOut as "cascadia_frame_out" {
        /// The receiver's context.
        ctx: *mut c_void,
        /// Takes the frame, borrowed for the call. For raw frames `dtype` is 0 and `dims` (`u64`) are empty. Any function
        /// of the transport may be called from inside it.
        set: unsafe extern "C" fn(ctx: *mut c_void, kind: u32, dtype: u32, dims: Array, payload: Str),
    }
}

/// [`TransportV1`] frame kind: activations with a tensor header.
pub const FRAME_TENSOR: u32 = 1;
/// [`TransportV1`] frame kind: control bytes.
pub const FRAME_RAW: u32 = 2;

/// Element types of tensor frames. Elements are little-endian and lie in row-major order without gaps. An unknown number is
/// refused, never read as another type.
pub mod dtype {
    /// IEEE 754 binary32, 4 bytes.
    pub const F32: u32 = 1;
    /// IEEE 754 binary16, 2 bytes.
    pub const F16: u32 = 2;
    /// bfloat16, 2 bytes.
    pub const BF16: u32 = 3;
    /// Signed, 1 byte.
    pub const I8: u32 = 4;
    /// Unsigned, 1 byte.
    pub const U8: u32 = 5;
    /// Signed, 4 bytes.
    pub const I32: u32 = 6;
    /// Signed, 8 bytes.
    pub const I64: u32 = 7;
    /// Unsigned, 4 bytes.
    pub const U32: u32 = 8;

    /// Bytes of one element; none for a number that is no type.
    pub const fn size(dtype: u32) -> Option<u64> {
        match dtype {
            I8 | U8 => Some(1),
            F16 | BF16 => Some(2),
            F32 | I32 | U32 => Some(4),
            I64 => Some(8),
            _ => None,
        }
    }
}

table! {
    /// `cascadia.host.transport/1`: links between pipeline stages, with the host's deadlines, bounds and metrics.
    ///
    /// Links and listeners are named by handles, which are never 0 and never used again: a call with the handle of
    /// something closed answers CLOSED. They belong to the worker that made them, and the host closes them when the worker's
    /// engine is destroyed or was never built.
    ///
    /// # Addresses
    /// `host:port` is TCP, with an IPv6 address in brackets; `:port` means this machine only (127.0.0.1); port 0 of a
    /// listener is any free one. `unix:/path` is a Unix socket of mode 0600, removed when its listener is closed. Nothing
    /// is encrypted or signed: other machines must be trusted, or reached through something that does it.
    ///
    /// # Deadlines
    /// Every `deadline_ns` is a moment of [`ClockV1`], at most an hour ahead (later ones count as an hour); one that has
    /// passed lets the call do what can be done at once. 0 is the host's default: 60 s from now, and where bytes move 60 s
    /// after the last one moved, 10 minutes in all. A call that runs out answers DEADLINE_EXCEEDED. All functions but
    /// `poll_fd`, `close` and `listen` wait: they are for the plugin's own threads and for `step`, never for `submit` or `cancel`.
    ///
    /// # Frames
    /// A frame comes whole or not at all, and frames of one link come in the order in which their `send` calls began to
    /// write. One call of `send` and one of `recv` works on a link at a time, beside each other; further callers wait within
    /// their deadlines. A tensor frame has at most 8 dimensions and 512 MiB, and its bytes are exactly those of its type and
    /// dimensions; a raw frame has at most 1 MiB. What is larger is refused before memory is taken for it: by `send`, and
    /// from a peer by ending the link.
    ///
    /// # When a link ends
    /// A link that the peer closed, that broke, or on which the peer broke these rules, answers NOT_CONNECTED from then on, with
    /// the reason. Frames that came whole before a peer's orderly close can still be received. A dead machine or a cut network is
    /// found within about a minute on an idle link, by TCP's keep-alive; with bytes on their way to it by the deadline of
    /// who waits, or by the system after a quarter of an hour. A process that hangs is for deadlines alone. Nothing is
    /// dialled again by itself.
    TransportV1 as "cascadia_host_transport_v1" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// A listener at `address`, 0 on failure; the bound address, as `open` takes it, goes to `bound`. `purpose` says
        /// what is spoken here, at most 512 bytes, such as `my-engine/activations/2 model=DIGEST`: only a peer that opens
        /// with the same text is let in. A worker has at most 8 listeners. INVALID_CONFIG for an address that is none,
        /// BACKEND where it cannot be bound, QUEUE_FULL at the limit, CLOSED for a worker that is closed.
        listen: unsafe extern "C" fn(worker: *mut c_void, address: Str, purpose: Str, bound: StrOut, err: ErrOut) -> u64,
        /// A link to the next peer that came with the right hello, 0 on failure. Strangers, peers of another version or
        /// purpose, and those that say nothing for 5 s are sent away, and the wait goes on. A worker has at most 64 links.
        accept: unsafe extern "C" fn(listener: u64, deadline_ns: u64, err: ErrOut) -> u64,
        /// A link to the peer that listens at `address`, 0 on failure. A peer that is not there yet is tried again until the
        /// deadline, then NOT_CONNECTED; DEADLINE_EXCEEDED when it is there and does not accept. PEER_REJECTED at once, with
        /// the reason, when it speaks another version, has another purpose, or is something else.
        open: unsafe extern "C" fn(worker: *mut c_void, address: Str, purpose: Str, deadline_ns: u64, err: ErrOut) -> u64,
        /// Sends one frame made of [`IoVec`]s; returns when the system has taken all of it, which says nothing of the peer.
        /// `dims` are `u64`; `dtype` and `dims` are those of [`dtype`] for tensors, 0 and empty for raw frames. A peer that
        /// does not read makes it wait once the sockets' buffers are full. INVALID_CONFIG for a frame that is against
        /// the rules, which leaves the link as it was. A deadline that passes before the first byte was written leaves the
        /// link as it was; one that passes inside the frame ends the link.
        send: unsafe extern "C" fn(link: u64, kind: u32, dtype: u32, dims: Array, parts: Array, deadline_ns: u64, err: ErrOut) -> u32,
        /// Receives one frame. What has come of a frame when the deadline passes is kept, and the next call goes on with it,
        /// so that a short deadline loses nothing; but a frame that has begun and stands still for 30 s ends the link.
        recv: unsafe extern "C" fn(link: u64, deadline_ns: u64, out: FrameOut, err: ErrOut) -> u32,
        /// A descriptor to poll for reading: readable when (a part of) a frame, or the link's end, waits. -1 for a link that is
        /// closed. Only to poll, and not after `close`.
        poll_fd: unsafe extern "C" fn(link: u64) -> i32,
        /// Closes a link or listener, from any thread; calls that wait on it answer CLOSED. Nothing for a closed handle.
        close: unsafe extern "C" fn(handle: u64),
    }
}
