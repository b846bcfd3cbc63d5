//! What a task asks for: whether the engine has it, and how the library is told.

use cascadia_plugin_api::sdk::{Error, GrammarKind, Result, Task, now_ns};

use crate::pipeline::sampling::{Grammar, Sampling};

/// What never changes and decides whether a task is taken.
pub(crate) struct Limits {
    pub(super) context: usize,
    pub(super) grammars: bool,
    /// The chosen token's log-probability.
    pub(super) logprobs: bool,
}

impl Limits {
    /// Refuses what this engine has not.
    pub(super) fn check(&self, task: &Task) -> Result<()> {
        if task.tokens.is_empty() {
            return Err(Error::config("the prompt has no tokens; this engine takes token ids"));
        }
        if self.context > 0 && task.tokens.len() >= self.context {
            return Err(Error::prompt_too_long(task.tokens.len(), self.context));
        }
        let s = &task.sampling;
        let lacking = [
            (
                grammar(task).is_none() && task.grammar.0 != GrammarKind::None,
                "grammars other than JSON Schema and regex",
            ),
            (
                grammar(task).is_some() && !self.grammars,
                "structured output without paged attention and a tokenizer of the model's own",
            ),
            (task.attachments > 0, "attachments"),
            (!task.adapter.is_empty(), "adapters"),
            (task.logprobs.is_some() && !self.logprobs, "log-probabilities"),
            (task.logprobs.is_some_and(|n| n > 0), "log-probabilities of alternatives"),
            (task.prompt_logprobs.is_some(), "log-probabilities of the prompt"),
            (!s.logit_bias.is_empty(), "logit bias"),
            (!s.banned.is_empty() || !s.allowed.is_empty(), "token lists"),
            (s.typical_p < 1.0, "typical_p"),
        ];
        lacking.iter().find(|(asked, _)| *asked).map_or(Ok(()), |(_, what)| Err(Error::unsupported(what)))
    }
}

/// As the library is told; [`Sampling::assistant`] is the engine's own.
pub(super) fn sampling(task: &Task) -> Sampling {
    let s = &task.sampling;
    Sampling {
        // The library wants a number; its own window ends the generation before this one does.
        max_tokens: if task.max_tokens == 0 { u32::MAX as usize } else { task.max_tokens as usize },
        min_tokens: task.min_tokens as usize,
        temperature: s.temperature,
        top_p: s.top_p,
        top_k: s.top_k as usize,
        min_p: s.min_p,
        repetition_penalty: s.repetition_penalty,
        frequency_penalty: s.frequency_penalty,
        presence_penalty: s.presence_penalty,
        // Without a seed each generation has its own.
        seed: s.seed.unwrap_or_else(|| task.id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ now_ns()),
        eos: task.stop_tokens.first().copied(),
        stop_ids: task.stop_tokens.clone(),
        // The host knows the model's own end and gives it; where it gives none, none is meant.
        ignore_eos: task.ignore_eos || task.stop_tokens.is_empty(),
        logprobs: task.logprobs.is_some(),
        assistant: None,
        grammar: grammar(task),
    }
}

/// What the library can keep to: none where it cannot, or where nothing is asked for.
fn grammar(task: &Task) -> Option<Grammar> {
    let text = || task.grammar.1.clone();
    match task.grammar.0 {
        GrammarKind::JsonSchema => Some(Grammar::JsonSchema(text())),
        GrammarKind::Regex => Some(Grammar::Regex(text())),
        GrammarKind::None => {
            task.options.iter().find(|(key, _)| key == "ebnf").map(|(_, text)| Grammar::Ebnf(text.clone()))
        }
        _ => None,
    }
}
