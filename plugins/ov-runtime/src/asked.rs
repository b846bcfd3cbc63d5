//! What a task asks for: whether this engine has it, and how its tokens are chosen.

use cascadia_plugin_api::sdk::{Error, GrammarKind, Result, Task, now_ns};
use cascadia_sampling::{MAX_ALTERNATIVES, Settings};

use crate::masks::Filler;

/// What never changes and decides whether a task is taken.
#[derive(Clone)]
pub(crate) struct Limits {
    /// Most tokens of prompt and answer together.
    pub(crate) window: usize,
    /// Tokens that the model knows.
    pub(crate) vocabulary: usize,
    /// Who says which tokens may come, for tasks whose grammar is a mask.
    pub(crate) filler: Filler,
}

impl Limits {
    /// Refuses what cannot be done, by name.
    ///
    /// # Errors
    /// The prompt is empty, too long or has tokens that the model lacks, a value is out of its range, or the task asks for
    /// something that this engine does not have.
    pub(crate) fn check(&self, task: &Task) -> Result<()> {
        if task.tokens.is_empty() {
            return Err(Error::config("the prompt has no tokens; this engine takes token ids"));
        }
        if task.tokens.len() >= self.window {
            return Err(Error::prompt_too_long(task.tokens.len(), self.window));
        }
        // The model would read behind its table.
        if let Some(token) = task.tokens.iter().find(|&&token| token as usize >= self.vocabulary) {
            let tokens = self.vocabulary;
            return Err(Error::config(format!(
                "the prompt has token {token}; the model has tokens below {tokens}"
            )));
        }
        let lacking = [
            (!matches!(task.grammar.0, GrammarKind::None | GrammarKind::Mask), "grammars of its own"),
            (
                task.grammar.0 == GrammarKind::Mask && self.filler.get().is_none(),
                "token masks without their filler",
            ),
            (task.attachments > 0, "attachments"),
            (!task.adapter.is_empty(), "adapters"),
            (task.prompt_logprobs.is_some_and(|n| n > 0), "alternatives of prompt tokens"),
        ];
        if let Some((_, what)) = lacking.iter().find(|(asked, _)| *asked) {
            return Err(Error::unsupported(what));
        }
        settings(task, 0).check(self.vocabulary).map_err(|e| Error::config(e.to_string()))
    }

    /// Most tokens that the task's sequence may have in the end. Its limit counts from where generated text begins.
    pub(crate) fn most(&self, task: &Task) -> usize {
        let from = usize::try_from(task.generated_from).unwrap_or(usize::MAX).min(task.tokens.len());
        match task.max_tokens {
            0 => self.window,
            more => self.window.min(from.saturating_add(more as usize)),
        }
    }
}

/// The task's own words for the sampler; `seed` where it names none.
pub(crate) fn settings(task: &Task, seed: u64) -> Settings {
    let s = &task.sampling;
    Settings {
        temperature: s.temperature,
        top_k: s.top_k,
        top_p: s.top_p,
        min_p: s.min_p,
        typical_p: s.typical_p,
        repetition_penalty: s.repetition_penalty,
        frequency_penalty: s.frequency_penalty,
        presence_penalty: s.presence_penalty,
        seed: s.seed.unwrap_or(seed),
        logit_bias: s.logit_bias.clone(),
        banned: s.banned.clone(),
        banned_sequences: Vec::new(),
        allowed: s.allowed.clone(),
        ends: task.stop_tokens.clone(),
        min_tokens: task.min_tokens,
        // No more than there are ids for; the sampler refuses what is beyond its own bound.
        alternatives: task.logprobs.map(|n| usize::try_from(n).unwrap_or(MAX_ALTERNATIVES + 1)),
    }
}

/// A start of the random numbers for a task without one: another for each.
pub(crate) fn seed(task: &Task) -> u64 {
    task.id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ now_ns()
}
