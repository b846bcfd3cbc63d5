//! Result codes. A plain `u32`, so that the space can grow: an unknown code reads as [`BACKEND`] with its number kept.

/// Success.
pub const OK: u32 = 0;
/// The engine's own queue is full; another request may fit later.
pub const QUEUE_FULL: u32 = 1;
/// The prompt does not fit the engine's window. Details: `{"have":9000,"max":8192}`.
pub const PROMPT_TOO_LONG: u32 = 2;
/// An option or a request field has a value the engine cannot take; the message names it.
pub const INVALID_CONFIG: u32 = 3;
/// The engine or a library below it failed.
pub const BACKEND: u32 = 4;
/// A pipeline peer refused the connection or its hello.
pub const PEER_REJECTED: u32 = 5;
/// The batch that held the task was given up.
pub const BATCH_ABORTED: u32 = 6;
/// The engine does not have the function.
pub const UNSUPPORTED: u32 = 7;
/// The call or the task was cancelled.
pub const CANCELLED: u32 = 8;
/// The object is closed.
pub const CLOSED: u32 = 9;
/// A deadline passed.
pub const DEADLINE_EXCEEDED: u32 = 10;
/// Memory of the host or of the device ran out.
pub const OUT_OF_MEMORY: u32 = 11;
/// The engine panicked before; it must be destroyed and built anew.
pub const POISONED: u32 = 12;
/// A panic was caught in this call.
pub const PANIC: u32 = 13;
/// The process that held the plugin died (isolated plugins).
pub const PLUGIN_CRASHED: u32 = 14;
/// A pipeline peer cannot be reached.
pub const NOT_CONNECTED: u32 = 15;
/// The model or shard does not exist or cannot be read; the message names it.
pub const MODEL_NOT_FOUND: u32 = 16;
/// The shard does not fit this engine or this place in the pipeline.
pub const SHARD_REJECTED: u32 = 17;

/// The code's name for logs and error bodies; `unknown` for one that this build does not know.
pub fn name(code: u32) -> &'static str {
    const NAMES: [&str; 18] = [
        "ok",
        "queue_full",
        "prompt_too_long",
        "invalid_config",
        "backend",
        "peer_rejected",
        "batch_aborted",
        "unsupported",
        "cancelled",
        "closed",
        "deadline_exceeded",
        "out_of_memory",
        "poisoned",
        "panic",
        "plugin_crashed",
        "not_connected",
        "model_not_found",
        "shard_rejected",
    ];
    NAMES.get(code as usize).copied().unwrap_or("unknown")
}
