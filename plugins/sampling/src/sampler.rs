//! One sequence's way from rows to tokens: what it has said so far, and what that changes in the next row.
//!
//! [`Sampler::sample`] changes nothing: what was chosen counts when [`Sampler::accept`] says so. [`Sampler::verify`] does both for
//! a row of drafts.

use crate::history::History;
use crate::logprob::Alternative;
use crate::scratch::{Error, Scratch};
use crate::settings::{Refused, Settings};
use crate::{adjust, choose, logprob, row};

/// What one sequence needs between its rows.
#[derive(Debug, Clone)]
pub struct Sampler {
    settings: Settings,
    vocab: usize,
    /// The bits of `settings.allowed`; empty = everything.
    allowed: Vec<u32>,
    history: History,
}

/// One row of logits, as the engine lends it.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// A logit for each token of the vocabulary.
    pub logits: &'a [f32],
    /// Bit `t % 32` of word `t / 32` says whether token `t` may come; what has no word may not. `None` = all may.
    pub mask: Option<&'a [u32]>,
}

/// A chosen token.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Its id.
    pub token: u32,
    /// Its log-probability in the row as the model gave it; `None` if the settings ask for none.
    pub logprob: Option<f32>,
    /// The likeliest tokens of that row, most likely first, as many as the settings ask for; whether or not they may be chosen.
    pub alternatives: Vec<Alternative>,
    /// Whether it is one of [`Settings::ends`].
    pub ends: bool,
}

impl Sampler {
    /// For a sequence that holds `tokens`, of which those from `generated_from` on are its answer: a new one (the prompt's length), one
    /// that came from elsewhere, or one that is built anew.
    pub fn new(
        settings: Settings,
        vocab: usize,
        tokens: &[u32],
        generated_from: usize,
    ) -> Result<Self, Refused> {
        settings.check(vocab)?;
        let history = History::new(&settings, tokens, generated_from);
        let mut allowed = Vec::new();
        if !settings.allowed.is_empty() {
            allowed.resize(vocab.div_ceil(32), 0);
            for &token in &settings.allowed {
                allowed[token as usize / 32] |= 1u32 << (token % 32);
            }
        }
        Ok(Sampler { settings, vocab, allowed, history })
    }

    /// What it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Tokens of answer so far: the index of the next one, and of its random number.
    pub fn position(&self) -> usize {
        self.history.answer().len()
    }

    /// Whether the token ends the answer.
    pub fn ends(&self, token: u32) -> bool {
        self.settings.ends.contains(&token)
    }

    /// The token that comes next, given the row after all accepted ones. Asked twice it answers the same.
    pub fn sample(&self, row: Row<'_>, scratch: &mut Scratch) -> Result<Choice, Error> {
        if row.logits.len() != self.vocab {
            return Err(Error::Length { found: row.logits.len(), vocab: self.vocab });
        }
        let peak = row::peak(scratch.passes, row.logits)?;
        let adjusted = adjust::adjusted(row, &self.settings, &self.allowed, &self.history, scratch);
        let at = self.position();
        let token = match &adjusted {
            Some(copy) => row::peak(scratch.passes, copy)
                .and_then(|peak| choose::choose(copy, peak, &self.settings, at, scratch)),
            None => choose::choose(row.logits, peak, &self.settings, at, scratch),
        };
        if let Some(copy) = adjusted {
            scratch.copy = copy;
        }
        let token = token?;
        let mut choice = Choice { token, logprob: None, alternatives: Vec::new(), ends: self.ends(token) };
        if let Some(n) = self.settings.alternatives {
            let scored = logprob::scored(row.logits, peak, token, n, scratch);
            choice.logprob = Some(scored.logprob);
            choice.alternatives = scored.alternatives;
        }
        Ok(choice)
    }

    /// The token became part of the answer.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token);
    }

    /// The last `n` accepted tokens are withdrawn; at most as many as the answer has.
    pub fn rollback(&mut self, n: usize) {
        for _ in 0..n {
            self.history.pop();
        }
    }

    /// Samples and accepts along `drafts`: `rows` are the row after what was accepted before, and one after each draft. It goes on
    /// while its own token is the draft, and gives exactly what plain decoding would: `into` takes the tokens (the
    /// accepted drafts and one more), all of them accepted when it returns. It ends early behind a token that ends the answer.
    ///
    /// On an error `into` has the tokens before the row that failed, and they are accepted.
    pub fn verify<'a>(
        &mut self,
        rows: impl IntoIterator<Item = Row<'a>>,
        drafts: &[u32],
        scratch: &mut Scratch,
        into: &mut Vec<Choice>,
    ) -> Result<(), Error> {
        for (at, row) in rows.into_iter().take(drafts.len() + 1).enumerate() {
            let choice = self.sample(row, scratch)?;
            self.accept(choice.token);
            let goes_on = !choice.ends && drafts.get(at) == Some(&choice.token);
            into.push(choice);
            if !goes_on {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
