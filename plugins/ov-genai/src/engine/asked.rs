//! What a task asks for: whether the engine has it, and how the library is told.

use cascadia_plugin_api::sdk::{Error, GrammarKind, Result, Task, now_ns};

use crate::pipeline::sampling::{Grammar, Sampling};

/// What never changes and decides whether a task is taken.
pub(crate) struct Limits {
    pub(super) context: usize,
    /// As in [`super::Facts`].
    pub(super) vocabulary: Option<usize>,
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
        let outside = |token: &&u32| self.vocabulary.is_some_and(|n| **token as usize >= n);
        if let Some(token) = task.tokens.iter().find(outside) {
            let tokens = self.vocabulary.unwrap_or_default();
            return Err(Error::config(format!(
                "the prompt has token {token}; the model has tokens below {tokens}"
            )));
        }
        ranges(task)?;
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
            (
                task.min_tokens > 0 && self.vocabulary.is_none(),
                "min_tokens for a model whose files do not say how many tokens it has",
            ),
        ];
        lacking.iter().find(|(asked, _)| *asked).map_or(Ok(()), |(_, what)| Err(Error::unsupported(what)))
    }
}

/// Refuses what is in no range: the library would say so only when the task is at work already, and then it has failed.
fn ranges(task: &Task) -> Result<()> {
    let s = &task.sampling;
    let share = |p: f32| (0.0..=1.0).contains(&p);
    let penalty = |p: f32| (-2.0..=2.0).contains(&p);
    let (t, r) = (s.temperature, s.repetition_penalty);
    let values = [
        ("temperature", t, t >= 0.0 && t.is_finite(), "a number from 0"),
        ("top_p", s.top_p, share(s.top_p), "from 0 to 1"),
        ("min_p", s.min_p, share(s.min_p), "from 0 to 1"),
        ("typical_p", s.typical_p, share(s.typical_p), "from 0 to 1"),
        ("repetition_penalty", r, (0.001..=1000.0).contains(&r), "from 0.001 to 1000"),
        ("frequency_penalty", s.frequency_penalty, penalty(s.frequency_penalty), "from -2 to 2"),
        ("presence_penalty", s.presence_penalty, penalty(s.presence_penalty), "from -2 to 2"),
    ];
    if let Some((name, value, _, bounds)) = values.iter().find(|(_, _, holds, _)| !holds) {
        return Err(Error::config(format!("{name} is {value}; it must be {bounds}")));
    }
    match grammar(task) {
        Some(grammar) if grammar.text().contains('\0') => {
            Err(Error::config("the grammar has a zero byte in it"))
        }
        _ => Ok(()),
    }
}

/// As the library is told; [`Sampling::assistant`] is the engine's own. `vocabulary` as in [`Limits`].
pub(super) fn sampling(task: &Task, vocabulary: Option<usize>) -> Sampling {
    let s = &task.sampling;
    // The others never come, and the library would write where their logits are not.
    let known = |token: &u32| vocabulary.is_none_or(|n| (*token as usize) < n);
    let stop_ids: Vec<u32> = task.stop_tokens.iter().copied().filter(known).collect();
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
        eos: stop_ids.first().copied(),
        // The host knows the model's own end and gives it; where it gives none, none is meant.
        ignore_eos: task.ignore_eos || stop_ids.is_empty(),
        stop_ids,
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

#[cfg(test)]
mod tests;
