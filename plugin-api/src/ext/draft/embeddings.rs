//! `cascadia.embeddings/1`: texts in, vectors out.
//!
//! An embedding is a task like a generation: submitted from any thread, worked on inside `step`, ended by cancel, and
//! finished by exactly one chunk in the step's sink. Only its vectors go another way, through the callback that was
//! attached. So everything that holds for tasks (slots, cancellation, the watch over stalled engines) holds for these.

use crate::abi::prim::{Array, ErrOut, Str};
use crate::abi::task::Trace;
use core::ffi::c_void;

/// [`EmbedTask::pooling`]: the model's own.
pub const POOLING_DEFAULT: u32 = 0;
/// [`EmbedTask::pooling`]: mean over all tokens.
pub const POOLING_MEAN: u32 = 1;
/// [`EmbedTask::pooling`]: the first token.
pub const POOLING_FIRST: u32 = 2;
/// [`EmbedTask::pooling`]: the last token.
pub const POOLING_LAST: u32 = 3;

/// [`EmbedTask::flags`]: vectors have length 1.
pub const EMBED_NORMALIZE: u32 = 1;

/// [`EmbedInfo::flags`]: vectors may be cut to fewer dimensions ([`EmbedTask::dimensions`]).
pub const EMBED_CAN_SHORTEN: u32 = 1;

table! {
    /// One input. An element of an array.
    EmbedInput as "cascadia_embed_input" {
        /// Token ids (`u32`). Empty only when the engine tokenizes `text` itself.
        tokens: Array,
        /// The text; may be empty.
        text: Str,
    }
}

table! {
    /// A batch of inputs, borrowed for the call.
    EmbedTask as "cascadia_embed_task" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// [`EMBED_NORMALIZE`].
        flags: u32,
        /// Id of the task, from the same numbers as generations.
        task: u64,
        /// The client-visible request id.
        request_id: Str,
        /// Trace to continue.
        trace: Trace,
        /// [`EmbedInput`] elements; at least one.
        inputs: Array,
        /// One of the `POOLING_` values.
        pooling: u32,
        /// Dimensions wanted; 0 = all.
        dimensions: u32,
        /// Larger runs first; 0 = normal.
        priority: i32,
        /// No meaning yet; 0.
        reserved: u32,
        /// Time of the host's clock after which the answer is of no use, in nanoseconds; 0 = none.
        deadline_ns: u64,
        /// Adapter to apply; empty = none.
        adapter: Str,
        /// Engine-specific [`crate::abi::prim::Kv`]s.
        options: Array,
    }
}

table! {
    /// One vector. An element of an array, borrowed for the call.
    Embedding as "cascadia_embedding" {
        /// The task it belongs to.
        task: u64,
        /// Place of its input in the task.
        index: u32,
        /// Tokens of the input, as the engine counted them.
        tokens: u32,
        /// The vector (`f32`).
        vector: Array,
    }
}

table! {
    /// Where vectors go.
    EmbedOut as "cascadia_embed_out" {
        /// The host's context.
        ctx: *mut c_void,
        /// Takes an array of [`Embedding`]. Called only inside `step`, on its thread, before the task's finish is pushed;
        /// answers as a sink does ([`crate::abi::engine::SINK_STOP`]: return at once).
        take: unsafe extern "C" fn(ctx: *mut c_void, embeddings: Array) -> u32,
    }
}

table! {
    /// What the engine embeds.
    EmbedInfo as "cascadia_embed_info" {
        /// In: the size the host offers; the plugin fills no field beyond it.
        struct_size: u32,
        /// [`EMBED_CAN_SHORTEN`].
        flags: u32,
        /// Dimensions of a whole vector.
        dimensions: u32,
        /// Most inputs of a task; 0 = no limit of its own.
        max_inputs: u32,
        /// Most tokens of an input; 0 = not known.
        max_tokens: u32,
        /// What [`POOLING_DEFAULT`] means, another of the `POOLING_` values.
        pooling: u32,
    }
}

table! {
    /// `cascadia.embeddings/1`.
    EmbeddingsV1 as "cascadia_embeddings_v1" {
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[any]` Fills `out`; answers a code. The answer does not change while the engine lives.
        info: unsafe extern "C" fn(engine: *mut c_void, out: *mut EmbedInfo) -> u32,
        /// `[control]` Says where vectors go, once, before the first submit. It lives as long as the engine.
        attach: unsafe extern "C" fn(engine: *mut c_void, out: EmbedOut, err: ErrOut) -> u32,
        /// `[any]` Takes a batch. After OK exactly one chunk with a finish follows in the sink of a step: stop when there
        /// was one vector for every input, with [`crate::abi::chunk::Chunk::prompt_tokens`] the sum of all inputs. After
        /// another code none. Refuses a dimension or a pooling it does not have with
        /// [`crate::abi::code::INVALID_CONFIG`].
        submit: unsafe extern "C" fn(engine: *mut c_void, task: *const EmbedTask, err: ErrOut) -> u32,
    }
}
