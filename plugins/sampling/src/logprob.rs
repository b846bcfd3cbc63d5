//! Log-probabilities of a row as the model gave it: of a token, and of the likeliest ones.

use crate::row::{self, Peak};
use crate::scratch::{Error, Scratch};
use crate::top;

/// A token and its log-probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alternative {
    /// Its id.
    pub token: u32,
    /// Natural logarithm of its probability, at most 0; minus infinity for an impossible one.
    pub logprob: f32,
}

/// A token of a text that is there already, beside those that the model expected.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// Natural logarithm of the token's probability.
    pub logprob: f32,
    /// The likeliest tokens, most likely first, equal ones by their id.
    pub alternatives: Vec<Alternative>,
}

/// Scores the token that follows the row: for log-probabilities of a prompt. `alternatives` is capped at
/// [`crate::MAX_ALTERNATIVES`].
pub fn score(
    logits: &[f32],
    token: u32,
    alternatives: usize,
    scratch: &mut Scratch,
) -> Result<Scored, Error> {
    if token as usize >= logits.len() {
        return Err(Error::Unknown { token, vocab: logits.len() });
    }
    let peak = row::peak(scratch.passes, logits)?;
    Ok(scored(logits, peak, token, alternatives, scratch))
}

/// The same where the row's largest value is known, and the token is one of the row.
pub(crate) fn scored(logits: &[f32], peak: Peak, token: u32, n: usize, scratch: &mut Scratch) -> Scored {
    let rest = if peak.is_infinite() {
        (logits.iter().filter(|&&x| x == f32::INFINITY).count() as f64).ln()
    } else {
        row::total(scratch.passes, logits, peak.max, 1.0).ln()
    };
    let of = |x: f32| match peak.is_infinite() {
        false => (f64::from(x) - f64::from(peak.max) - rest) as f32,
        true if x == f32::INFINITY => (0.0 - rest) as f32,
        true => f32::NEG_INFINITY,
    };
    let alternatives = top::top(scratch.passes, logits, n.min(crate::MAX_ALTERNATIVES))
        .into_iter()
        .map(|(x, token)| Alternative { token, logprob: of(x) })
        .collect();
    Scored { logprob: of(logits[token as usize]), alternatives }
}
