//! A task as an engine keeps it: owned, typed, neutral values where the client said nothing.
#![expect(unsafe_code, reason = "reads the borrowed task of the boundary once")]

use super::{Error, Result, TraceContext};
use crate::abi;
use crate::abi::prim::{Kv, Str};
use crate::abi::task as wire;

/// What the output must match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GrammarKind {
    /// Nothing.
    #[default]
    None,
    /// The text is a JSON Schema.
    JsonSchema,
    /// The text is a regular expression.
    Regex,
    /// The text is a context-free grammar in Lark form.
    Lark,
    /// Kept by the host: ask for a mask before each token ([`super::TokenMask`]).
    Mask,
    /// A kind that this build does not know.
    Unknown(u32),
}

/// How the next token is chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0 = greedy.
    pub temperature: f32,
    /// 1 = off.
    pub top_p: f32,
    /// 0 = off.
    pub top_k: u32,
    /// 0 = off.
    pub min_p: f32,
    /// 1 = off.
    pub typical_p: f32,
    /// 1 = off.
    pub repetition_penalty: f32,
    /// 0 = off.
    pub frequency_penalty: f32,
    /// 0 = off.
    pub presence_penalty: f32,
    /// Start of the random numbers.
    pub seed: Option<u64>,
    /// (token, addition to its logit).
    pub logit_bias: Vec<(u32, f32)>,
    /// Tokens never chosen.
    pub banned: Vec<u32>,
    /// Where not empty, the only tokens that may be chosen.
    pub allowed: Vec<u32>,
}

impl Default for Sampling {
    /// Greedy, with nothing else asked for.
    fn default() -> Sampling {
        Sampling {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: None,
            logit_bias: Vec::new(),
            banned: Vec::new(),
            allowed: Vec::new(),
        }
    }
}

/// One generation. The default is one that nothing is known of, greedy and up to the window: for tests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Task {
    /// Unique among all tasks of the engine.
    pub id: u64,
    /// Shared by the choices of one request.
    pub group: u64,
    /// The client-visible request id.
    pub request_id: String,
    /// Session for affinity; empty = none.
    pub session_id: String,
    /// Trace to continue.
    pub trace: TraceContext,
    /// The served name.
    pub model: String,
    /// The prompt.
    pub tokens: Vec<u32>,
    /// The prompt as text; may be empty.
    pub text: String,
    /// Most tokens to generate; 0 = up to the window.
    pub max_tokens: u32,
    /// Fewest tokens before an end token counts.
    pub min_tokens: u32,
    /// End tokens do not end the generation.
    pub ignore_eos: bool,
    /// Tokens that end the generation and are not part of it.
    pub stop_tokens: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Alternatives per generated token; `None` = no log-probabilities.
    pub logprobs: Option<u32>,
    /// Alternatives per prompt token; `None` = no log-probabilities.
    pub prompt_logprobs: Option<u32>,
    /// Index into `tokens` at which generated text begins.
    pub generated_from: u64,
    /// Constraint on the output, and its text.
    pub grammar: (GrammarKind, String),
    /// Larger runs first.
    pub priority: i32,
    /// Time of [`super::now_ns`] after which the answer is of no use.
    pub deadline_ns: Option<u64>,
    /// Salt of the prefix cache.
    pub cache_salt: String,
    /// Adapter to apply; empty = none.
    pub adapter: String,
    /// Number of attachments; an engine without any must refuse a task that has some.
    pub attachments: usize,
    /// Engine-specific options.
    pub options: Vec<(String, String)>,
}

impl Task {
    /// Copies a task of the boundary; refuses one that is not there or too small.
    ///
    /// # Safety
    /// `task` must be null or readable as far as its `struct_size` says, and everything it points to.
    pub(super) unsafe fn sized(task: *const wire::Task) -> Result<Task> {
        // SAFETY: the caller's promise; no field is read before the size was looked at.
        unsafe {
            let task = task.as_ref().ok_or_else(|| Error::config("the host passed no task"))?;
            if (task.struct_size as usize) < size_of::<wire::Task>() {
                return Err(Error::config("the host's task is too small"));
            }
            Ok(Task::read(task))
        }
    }

    /// # Safety
    /// `task` and everything it points to must be readable during the call.
    unsafe fn read(task: &wire::Task) -> Task {
        // SAFETY: of all unsafe reads below: the caller vouches for the task and its views.
        let text = |s: Str| unsafe { s.text() }.into_owned();
        // SAFETY: as above.
        let ids = |a: abi::prim::Array| unsafe { a.scalars::<u32>() }.into_owned();
        let on = |flag: u32| task.flags & flag != 0;
        Task {
            id: task.task,
            group: task.group,
            request_id: text(task.request_id),
            session_id: text(task.session_id),
            trace: TraceContext::read(&task.trace),
            model: text(task.model),
            tokens: ids(task.tokens),
            text: text(task.text),
            max_tokens: task.max_tokens,
            min_tokens: task.min_tokens,
            ignore_eos: on(wire::IGNORE_EOS),
            stop_tokens: ids(task.stop_tokens),
            sampling: Sampling {
                temperature: task.temperature,
                top_p: task.top_p,
                top_k: task.top_k,
                min_p: task.min_p,
                typical_p: task.typical_p,
                repetition_penalty: task.repetition_penalty,
                frequency_penalty: task.frequency_penalty,
                presence_penalty: task.presence_penalty,
                seed: on(wire::HAS_SEED).then_some(task.seed),
                // SAFETY: as above.
                logit_bias: unsafe { task.logit_bias.iter::<wire::LogitBias>() }
                    .map(|b| (b.token, b.bias))
                    .collect(),
                banned: ids(task.banned),
                allowed: ids(task.allowed),
            },
            logprobs: on(wire::LOGPROBS).then_some(task.top_logprobs),
            prompt_logprobs: on(wire::PROMPT_LOGPROBS).then_some(task.prompt_top_logprobs),
            generated_from: task.generated_from,
            grammar: (kind(task.grammar.kind), text(task.grammar.text)),
            priority: task.priority,
            deadline_ns: (task.deadline_ns != 0).then_some(task.deadline_ns),
            cache_salt: text(task.cache_salt),
            adapter: text(task.adapter),
            attachments: task.attachments.len,
            // SAFETY: as above.
            options: unsafe { task.options.iter::<Kv>() }.map(|kv| (text(kv.key), text(kv.value))).collect(),
        }
    }
}

fn kind(kind: u32) -> GrammarKind {
    match kind {
        wire::GRAMMAR_NONE => GrammarKind::None,
        wire::GRAMMAR_JSON_SCHEMA => GrammarKind::JsonSchema,
        wire::GRAMMAR_REGEX => GrammarKind::Regex,
        wire::GRAMMAR_LARK => GrammarKind::Lark,
        wire::GRAMMAR_MASK => GrammarKind::Mask,
        other => GrammarKind::Unknown(other),
    }
}
