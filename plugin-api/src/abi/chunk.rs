//! A piece of one generation, as the engine pushes it. Borrowed for the push.

use super::prim::{Array, Str};

/// [`Chunk::finish`]: more will follow.
pub const FINISH_NONE: u32 = 0;
/// [`Chunk::finish`]: an end token or a stop token came.
pub const FINISH_STOP: u32 = 1;
/// [`Chunk::finish`]: `max_tokens` or the window is used up.
pub const FINISH_LENGTH: u32 = 2;
/// [`Chunk::finish`]: ended by cancel or close.
pub const FINISH_CANCELLED: u32 = 3;
/// [`Chunk::finish`]: the engine failed on this task; `error` says how.
pub const FINISH_ERROR: u32 = 4;

/// [`Chunk::flags`]: logits held a not-a-number.
pub const NAN_SEEN: u32 = 1;
/// [`Chunk::flags`]: [`Chunk::prompt_tokens`] is reported.
pub const HAS_PROMPT_TOKENS: u32 = 2;
/// [`Chunk::flags`]: [`Chunk::cached_tokens`] is reported.
pub const HAS_CACHED_TOKENS: u32 = 4;
/// [`Chunk::flags`]: [`Chunk::stop_token`] is set.
pub const HAS_STOP_TOKEN: u32 = 8;

table! {
    /// A piece of a generation. An element of an array: its size is the array's stride, and every field reads as absent
    /// when it is zero.
    Chunk as "cascadia_chunk" {
        /// The task it belongs to.
        task: u64,
        /// One of the `FINISH_` values.
        finish: u32,
        /// [`NAN_SEEN`], [`HAS_PROMPT_TOKENS`], [`HAS_CACHED_TOKENS`], [`HAS_STOP_TOKEN`].
        flags: u32,
        /// New token ids (`u32`), in order. Stop tokens are not among them.
        tokens: Array,
        /// Their bytes, when the engine detokenizes; may end inside a character.
        bytes: Str,
        /// Log-probability (`f32`) of each of `tokens`, or empty.
        logprobs: Array,
        /// Token ids (`u32`) of alternatives, `top_k` per token, most likely first.
        top_ids: Array,
        /// Their log-probabilities (`f32`).
        top_logprobs: Array,
        /// Alternatives per token.
        top_k: u32,
        /// For [`FINISH_ERROR`]: a code of [`super::code`].
        error: u32,
        /// Log-probability (`f32`) of each prompt token; the first is NaN. In one chunk, once.
        prompt_logprobs: Array,
        /// Prompt tokens as the engine counts them: the whole number, not what is new.
        prompt_tokens: u32,
        /// Of these, taken from a prefix cache.
        cached_tokens: u32,
        /// The stop token that ended the generation.
        stop_token: u32,
        /// No meaning yet; 0.
        reserved: u32,
        /// One line for people.
        error_message: Str,
        /// Details as a JSON object, or empty.
        error_details: Str,
        /// When the engine had the tokens, by the host's clock in nanoseconds; 0 = not reported.
        timestamp_ns: u64,
    }
}
