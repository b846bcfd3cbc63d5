//! What a sequence has said: its answer, and how often each token that a penalty asks about came.

use crate::settings::Settings;
use std::collections::HashMap;

/// How often a token came.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// Whether the prompt has it.
    pub(crate) prompt: bool,
    /// Times in the answer.
    pub(crate) answer: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct History {
    answer: Vec<u32>,
    /// Whether any penalty asks.
    counts: bool,
    seen: HashMap<u32, Seen>,
}

impl History {
    pub(crate) fn new(settings: &Settings, tokens: &[u32], generated_from: usize) -> Self {
        let (prompt, answer) = tokens.split_at(generated_from.min(tokens.len()));
        let repetition = settings.repetition_penalty != 1.0;
        let counts = repetition || settings.frequency_penalty != 0.0 || settings.presence_penalty != 0.0;
        let mut history = History { answer: Vec::new(), counts, seen: HashMap::new() };
        if repetition {
            for &token in prompt {
                history.seen.entry(token).or_default().prompt = true;
            }
        }
        for &token in answer {
            history.push(token);
        }
        history
    }

    pub(crate) fn push(&mut self, token: u32) {
        self.answer.push(token);
        if self.counts {
            self.seen.entry(token).or_default().answer += 1;
        }
    }

    pub(crate) fn pop(&mut self) {
        let Some(token) = self.answer.pop() else { return };
        let Some(seen) = self.seen.get_mut(&token) else { return };
        seen.answer -= 1;
        if seen.answer == 0 && !seen.prompt {
            self.seen.remove(&token);
        }
    }

    pub(crate) fn answer(&self) -> &[u32] {
        &self.answer
    }

    /// The tokens that penalties are about; none where there are no penalties.
    pub(crate) fn seen(&self) -> impl Iterator<Item = (u32, Seen)> + '_ {
        self.seen.iter().map(|(&token, &seen)| (token, seen))
    }

    pub(crate) fn is_unseen(&self) -> bool {
        self.seen.is_empty()
    }
}
