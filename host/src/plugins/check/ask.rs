//! What a test asks of an engine: an owned task, and its view as the boundary wants it.

use cascadia_plugin_api::abi::prim::{Array, Str};
use cascadia_plugin_api::abi::task::{GRAMMAR_NONE, Grammar, Task, Trace};

use crate::plugins::Card;

/// A text that has enough words for an engine that repeats them, and nothing an engine could refuse.
const WORDS: &str =
    "the quick brown fox jumps over the lazy dog and then goes on to the river where it rests ";

/// One generation.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) tokens: Vec<u32>,
    pub(super) max_tokens: u32,
    pub(super) flags: u32,
    pub(super) top_logprobs: u32,
    /// One of the `GRAMMAR_` values, without a text.
    pub(super) grammar: u32,
    pub(super) adapter: String,
    /// Ids that end the answer and are not part of it.
    pub(super) stop_tokens: Vec<u32>,
    /// Where the answer begins that is known already; the end of the tokens when left out.
    pub(super) generated_from: Option<usize>,
}

impl Ask {
    /// A prompt of about that many tokens, as the card's tokenizer would have them.
    pub(super) fn of(card: &Card, tokens: usize) -> Ask {
        let text: String = WORDS.chars().cycle().take(tokens).collect();
        let tokens = if card.tokenizer == "bytes" {
            text.bytes().map(u32::from).collect()
        } else {
            // Any ids do; those of the first hundreds are rarely special tokens, and every vocabulary has them.
            let most = card.vocab_size.clamp(200, 2000) as u32;
            (0..tokens as u32).map(|i| 100 + i.wrapping_mul(37) % (most - 100)).collect()
        };
        Ask {
            tokens,
            max_tokens: 16,
            flags: 0,
            top_logprobs: 0,
            grammar: GRAMMAR_NONE,
            adapter: String::new(),
            stop_tokens: Vec::new(),
            generated_from: None,
        }
    }

    /// The usual short task.
    pub(super) fn short(card: &Card) -> Ask {
        Ask::of(card, 48)
    }

    /// A task that would go on for long: many words to repeat, and no end token where the engine can pass over it.
    pub(super) fn long(card: &Card) -> Ask {
        let room = usize::try_from(card.context_length).ok().filter(|n| *n > 0).unwrap_or(4096);
        let ignore = if card.has("ignore_eos") { cascadia_plugin_api::abi::task::IGNORE_EOS } else { 0 };
        Ask { max_tokens: 0, flags: ignore, ..Ask::of(card, 1200.min(room / 2).max(1)) }
    }

    /// The task as the boundary wants it; it views `self`.
    pub(super) fn wire(&self, id: u64) -> Task {
        Task {
            struct_size: size_of::<Task>() as u32,
            flags: self.flags,
            task: id,
            group: id,
            request_id: Str::new(b"check"),
            session_id: Str::EMPTY,
            trace: Trace { trace_id: [0; 16], span_id: [0; 8], flags: 0 },
            model: Str::new(b"check"),
            tokens: Array::new(&self.tokens),
            text: Str::EMPTY,
            max_tokens: self.max_tokens,
            min_tokens: 0,
            temperature: 0.0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            top_k: 0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: 0,
            logit_bias: Array::EMPTY,
            banned: Array::EMPTY,
            allowed: Array::EMPTY,
            stop_tokens: Array::new(&self.stop_tokens),
            top_logprobs: self.top_logprobs,
            prompt_top_logprobs: 0,
            generated_from: self.generated_from.unwrap_or(self.tokens.len()) as u64,
            grammar: Grammar { kind: self.grammar, flags: 0, text: Str::EMPTY },
            priority: 0,
            reserved: 0,
            deadline_ns: 0,
            cache_salt: Str::EMPTY,
            adapter: Str::new(self.adapter.as_bytes()),
            attachments: Array::EMPTY,
            options: Array::EMPTY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_ids_that_the_vocabulary_has() {
        let bytes = Card { tokenizer: "bytes".into(), ..Card::default() };
        assert!(Ask::of(&bytes, 500).tokens.iter().all(|id| *id < 128));
        for vocab_size in [0, 201, 50_000] {
            let card = Card { vocab_size, ..Card::default() };
            let most = if vocab_size > 0 { vocab_size } else { 201 };
            let ask = Ask::of(&card, 500);
            assert_eq!(ask.tokens.len(), 500);
            assert!(ask.tokens.iter().all(|id| u64::from(*id) < most));
        }
    }

    #[test]
    fn a_long_task_fits_the_window() {
        let card = Card { context_length: 100, ..Card::default() };
        assert_eq!(Ask::long(&card).tokens.len(), 50);
    }
}
