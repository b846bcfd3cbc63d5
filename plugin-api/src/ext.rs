//! Optional tables of an engine, found by id on the plugin's entry. Null means that the plugin has none. Those that may
//! still change are in [`draft`].

pub mod draft;

use crate::abi::prim::{ErrOut, StrOut};
use core::ffi::c_void;

table! {
    /// `cascadia.model-card/1`: what the loaded model is and can do, as a JSON object.
    ///
    /// Keys (all optional): `context_length`, `max_tasks`, `vocab_size`, `device` (full name), `quantization`,
    /// `tokenizer` (`bytes`: ids 0..255 are bytes; `engine`: the host asks the engine, by [`draft::tokenize`], which has
    /// `vocab_size` ids; absent: from the model's files), `chat_template` (where the files have none), `features` (array of names from [`features`]), `notes` (array of lines an operator should read once).
    ModelCardV1 as "cascadia_model_card_v1" {
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[any]` Puts the JSON object into `out`. The answer does not change while the engine lives.
        card: unsafe extern "C" fn(engine: *mut c_void, out: StrOut, err: ErrOut) -> u32,
    }
}

/// Names for the `features` of a model card. What is not listed is refused by the host by field name.
pub mod features {
    /// Sampling with temperature, top_p and top_k; without it only greedy decoding.
    pub const SAMPLING: &str = "sampling";
    /// `min_p`.
    pub const MIN_P: &str = "min_p";
    /// `typical_p`.
    pub const TYPICAL_P: &str = "typical_p";
    /// Frequency and presence penalty.
    pub const PENALTIES: &str = "penalties";
    /// Repetition penalty.
    pub const REPETITION_PENALTY: &str = "repetition_penalty";
    /// `seed` at temperatures above 0.
    pub const SEED: &str = "seed";
    /// `logit_bias`.
    pub const LOGIT_BIAS: &str = "logit_bias";
    /// Banned and allowed token ids.
    pub const TOKEN_LISTS: &str = "token_lists";
    /// The chosen token's log-probability.
    pub const LOGPROBS: &str = "logprobs";
    /// Alternatives with their log-probabilities.
    pub const TOP_LOGPROBS: &str = "top_logprobs";
    /// Log-probabilities of the prompt.
    pub const PROMPT_LOGPROBS: &str = "prompt_logprobs";
    /// `min_tokens`.
    pub const MIN_TOKENS: &str = "min_tokens";
    /// `ignore_eos`.
    pub const IGNORE_EOS: &str = "ignore_eos";
    /// Answers that keep to a JSON Schema ([`crate::abi::task::GRAMMAR_JSON_SCHEMA`]).
    pub const JSON_SCHEMA: &str = "json_schema";
    /// Answers that keep to a regular expression ([`crate::abi::task::GRAMMAR_REGEX`]).
    pub const REGEX: &str = "regex";
    /// Answers that keep to a grammar in extended Backus-Naur form, in the task's option `ebnf`.
    pub const EBNF: &str = "ebnf";
    /// Vectors of texts, by [`super::draft::embeddings`].
    pub const EMBEDDINGS: &str = "embeddings";
    /// The model generates nothing: every [`crate::abi::task::Task`] is refused as unsupported.
    pub const NO_GENERATION: &str = "no_generation";
}

table! {
    /// A worker's load at one moment.
    LoadReport as "cascadia_load_report" {
        /// In: the size the host offers; the plugin fills no field beyond it.
        struct_size: u32,
        /// Tasks being generated.
        running: u32,
        /// Tasks accepted and not begun.
        waiting: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// KV-cache blocks in use.
        kv_blocks_used: u64,
        /// KV-cache blocks there are; 0 = the engine has no blocks.
        kv_blocks_total: u64,
        /// Tokens held for reuse by a prefix cache.
        tokens_cached: u64,
    }
}

table! {
    /// `cascadia.load-report/1`.
    LoadReportV1 as "cascadia_load_report_v1" {
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[any]` Fills `out`; answers a code.
        report: unsafe extern "C" fn(engine: *mut c_void, out: *mut LoadReport) -> u32,
    }
}
