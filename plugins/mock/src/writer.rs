//! Writes a task's tokens into a delivery, up to its limits.
//!
//! Holds: a stop token is never delivered, and no token after `max` or `halt`. Log-probabilities depend on a token's place
//! only: place i has -0.5 - 0.01 i, each further alternative 0.1 less.

use crate::script::{End, FIRST_ID, Token};
use crate::tray::{Delivery, Ending};

/// The limits of a task and how far it is.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// Tokens delivered.
    pub(crate) generated: u64,
    /// Most tokens.
    pub(crate) max: u64,
    /// Fewest tokens before an end counts.
    pub(crate) min: u64,
    /// After so many tokens something else than a token comes next.
    pub(crate) halt: u64,
    /// Tokens that end the generation.
    pub(crate) stops: Vec<u32>,
    /// Alternatives per token; `None` = no log-probabilities.
    pub(crate) alternatives: Option<u32>,
    /// The logits held a not-a-number.
    pub(crate) nan: bool,
    /// There is one log-probability too many, and more alternatives are announced than there are.
    pub(crate) bad_logprobs: bool,
}

impl Writer {
    /// Whether the next token is one too many.
    pub(crate) fn is_full(&self) -> bool {
        self.generated >= self.max
    }

    /// Whether one more token would not be the last.
    pub(crate) fn has_room_behind(&self) -> bool {
        self.generated.saturating_add(1) < self.max
    }

    /// Whether a token is its id and its bytes, wherever it comes.
    pub(crate) fn writes_words(&self) -> bool {
        self.stops.is_empty()
            && self.halt == u64::MAX
            && self.alternatives.is_none()
            && !(self.nan || self.bad_logprobs)
    }

    /// Whether an end token counts.
    pub(crate) fn may_end(&self) -> bool {
        self.generated >= self.min
    }

    /// Writes the tokens of one item; stops at a limit.
    pub(crate) fn write(&mut self, tokens: &[Token], out: &mut Delivery) {
        for token in tokens {
            if out.ends() || self.generated >= self.halt {
                return;
            }
            if self.may_end() && self.stops.contains(&token.id) {
                out.stop_token = Some(token.id);
                out.ending = Ending::End(End::Stop);
                return;
            }
            self.write_one(token, out);
        }
    }

    fn write_one(&mut self, token: &Token, out: &mut Delivery) {
        out.tokens.push(token.id);
        match &token.bytes {
            Some(bytes) => {
                out.detokenized = true;
                out.bytes.extend_from_slice(bytes);
            }
            None => out.bytes.extend(u8::try_from(token.id)),
        }
        if let Some(k) = self.alternatives {
            self.write_logprobs(token.id, k, out);
        }
        out.nan |= self.nan && self.generated == 0;
        self.generated += 1;
        if self.is_full() {
            out.ending = Ending::End(End::Length);
        }
    }

    fn write_logprobs(&self, id: u32, k: u32, out: &mut Delivery) {
        let logprob = if self.nan { f32::NAN } else { logprob(self.generated) };
        out.logprobs.push(logprob);
        if self.bad_logprobs && out.tokens.len() == 1 {
            out.logprobs.push(logprob);
        }
        out.top_k = k + u32::from(self.bad_logprobs);
        let mut less = logprob;
        for rank in 0..k {
            out.top_ids.push(if rank == 0 { id } else { alternative(id, rank) });
            out.top_logprobs.push(less);
            less -= 0.1;
        }
    }
}

/// Log-probability of the token at this place.
pub(crate) fn logprob(place: u64) -> f32 {
    -0.5 - 0.01 * place as f32
}

/// The byte token of a letter: it has a text on the host's side, and no letter comes twice within 26 ranks.
fn alternative(id: u32, rank: u32) -> u32 {
    const A: u32 = b'a' as u32;
    const { assert!(A + 26 < FIRST_ID, "letters are byte tokens") };
    let letters = i64::from(id) - i64::from(A) + i64::from(rank);
    A + u32::try_from(letters.rem_euclid(26)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> Writer {
        Writer { max: u64::MAX, halt: u64::MAX, ..Writer::default() }
    }

    #[test]
    fn a_stop_token_inside_a_chunk_cuts_it_there() {
        let tokens = ["a", "b", "c"].map(Token::of);
        let mut out = Delivery::default();
        Writer { stops: vec![tokens[1].id], ..writer() }.write(&tokens, &mut out);
        assert_eq!((out.bytes.as_slice(), out.stop_token), (&b"a"[..], Some(tokens[1].id)));
        assert_eq!(out.ending, Ending::End(End::Stop));
        let mut out = Delivery::default();
        Writer { stops: vec![tokens[1].id], min: 2, ..writer() }.write(&tokens, &mut out);
        assert_eq!(out.bytes, b"abc");
    }

    #[test]
    fn bytes_are_ours_as_soon_as_one_token_has_its_own() {
        let bare = Token { id: 72, bytes: None };
        let mut out = Delivery::default();
        writer().write(std::slice::from_ref(&bare), &mut out);
        assert_eq!(out.chunk().bytes, b"");
        writer().write(&[Token::of("i")], &mut out);
        assert_eq!(out.chunk().bytes, b"Hi");
    }

    #[test]
    fn alternatives_begin_with_the_token_and_differ() {
        for id in [97, 104, 122, 300, 40_000] {
            let mut out = Delivery::default();
            let token = Token { id, bytes: None };
            Writer { alternatives: Some(20), generated: 3, ..writer() }.write(&[token], &mut out);
            assert_eq!(out.logprobs, [-0.53]);
            assert_eq!((out.top_ids[0], out.top_k, out.top_ids.len()), (id, 20, 20));
            let mut ids = out.top_ids.clone();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), 20, "{id}");
            assert!(out.top_logprobs.is_sorted_by(|a, b| a > b));
        }
    }
}
