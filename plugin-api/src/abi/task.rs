//! One generation as the host asks for it. A chat, its template, `n` and stop *strings* stay in the host.

use super::prim::{Array, Str};

/// [`Task::flags`]: end-of-text tokens do not end the generation.
pub const IGNORE_EOS: u32 = 1;
/// [`Task::flags`]: [`Task::seed`] is set.
pub const HAS_SEED: u32 = 2;
/// [`Task::flags`]: the log-probability of each chosen token is wanted, with [`Task::top_logprobs`] alternatives.
pub const LOGPROBS: u32 = 4;
/// [`Task::flags`]: log-probabilities of the prompt are wanted, with [`Task::prompt_top_logprobs`] alternatives.
pub const PROMPT_LOGPROBS: u32 = 8;

/// [`Grammar::kind`]: none.
pub const GRAMMAR_NONE: u32 = 0;
/// [`Grammar::kind`]: text is a JSON Schema.
pub const GRAMMAR_JSON_SCHEMA: u32 = 1;
/// [`Grammar::kind`]: text is a regular expression.
pub const GRAMMAR_REGEX: u32 = 2;
/// [`Grammar::kind`]: text is a context-free grammar in Lark form.
pub const GRAMMAR_LARK: u32 = 3;
/// [`Grammar::kind`]: the host keeps the grammar; the engine asks for a mask before each token
/// ([`crate::ext::draft::token_mask`]). The text is empty.
pub const GRAMMAR_MASK: u32 = 4;

table! {
    /// W3C trace context; all zero = none.
    Trace as "cascadia_trace" {
        /// Trace id, big-endian as in the header.
        trace_id: [u8; 16],
        /// Id of the parent span.
        span_id: [u8; 8],
        /// Trace flags; bit 0 = sampled.
        flags: u64,
    }
}

table! {
    /// What the output must match.
    Grammar as "cascadia_grammar" {
        /// One of the `GRAMMAR_` values.
        kind: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// The grammar itself.
        text: Str,
    }
}

table! {
    /// An addition to one token's logit before sampling.
    LogitBias as "cascadia_logit_bias" {
        /// Token id.
        token: u32,
        /// Added to the logit; -100..100.
        bias: f32,
    }
}

table! {
    /// Input that is not text, by kind (`image/png`, ...). None is defined today.
    Attachment as "cascadia_attachment" {
        /// Media type.
        kind: Str,
        /// Content.
        bytes: Str,
    }
}

table! {
    /// A generation. Neutral values mean "off" and are what the host sends for fields a client left out.
    Task as "cascadia_task" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// [`IGNORE_EOS`], [`HAS_SEED`], [`LOGPROBS`], [`PROMPT_LOGPROBS`].
        flags: u32,
        /// Id of the task; unique among all tasks that this engine ever sees.
        task: u64,
        /// Tasks that came from one request (`n` choices) share it.
        group: u64,
        /// The client-visible request id.
        request_id: Str,
        /// Session for affinity; empty = none.
        session_id: Str,
        /// Trace to continue.
        trace: Trace,
        /// The served name.
        model: Str,
        /// The prompt as token ids (`u32`). Empty only when the engine tokenizes `text` itself.
        tokens: Array,
        /// The prompt as text; may be empty.
        text: Str,
        /// Most tokens to generate; 0 = up to the window.
        max_tokens: u32,
        /// Fewest tokens before an end token counts.
        min_tokens: u32,
        /// 0 = greedy.
        temperature: f32,
        /// Nucleus; 1 = off.
        top_p: f32,
        /// Relative to the most likely token; 0 = off.
        min_p: f32,
        /// Locally typical sampling; 1 = off.
        typical_p: f32,
        /// 0 = off.
        top_k: u32,
        /// 1 = off.
        repetition_penalty: f32,
        /// 0 = off.
        frequency_penalty: f32,
        /// 0 = off.
        presence_penalty: f32,
        /// Valid with [`HAS_SEED`].
        seed: u64,
        /// [`LogitBias`] elements.
        logit_bias: Array,
        /// Token ids (`u32`) never to be chosen.
        banned: Array,
        /// Where not empty, only these token ids (`u32`) may be chosen.
        allowed: Array,
        /// Token ids (`u32`) that end the generation and are not part of it.
        stop_tokens: Array,
        /// Alternatives wanted per generated token, with [`LOGPROBS`].
        top_logprobs: u32,
        /// Alternatives wanted per prompt token, with [`PROMPT_LOGPROBS`].
        prompt_top_logprobs: u32,
        /// Index into `tokens` at which generated text begins; the prompt's length unless a generation is resumed.
        generated_from: u64,
        /// Constraint on the output.
        grammar: Grammar,
        /// Larger runs first; 0 = normal.
        priority: i32,
        /// No meaning yet; 0.
        reserved: u32,
        /// Time of the host's clock after which the answer is of no use, in nanoseconds; 0 = none.
        deadline_ns: u64,
        /// Prefix-cache entries are shared only between equal salts; empty = the common one.
        cache_salt: Str,
        /// Adapter (LoRA) to apply; empty = none.
        adapter: Str,
        /// [`Attachment`] elements.
        attachments: Array,
        /// Engine-specific [`super::prim::Kv`]s.
        options: Array,
    }
}
