//! From an engine's pieces to text that may be shown: token ids → bytes → whole characters → up to a stop string.

use super::score::{Scored, Scores};
use super::stop::Matcher;
use super::utf8::Joiner;
use super::{Finish, Logprobs, Piece, Usage};

/// Turns token ids into bytes; one per generation.
pub trait Detokenize: Send {
    /// Appends the token's bytes, which may end inside a character. False for an id that has none.
    fn push(&mut self, token: u32, out: &mut Vec<u8>) -> bool;

    /// Appends bytes that were held back; called once, at the end.
    fn finish(&mut self, _out: &mut Vec<u8>) {}
}

/// What a piece led to.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// More may come.
    Open,
    /// A stop string is complete: the engine must stop, and nothing that it still sends counts.
    StopString,
    /// The engine has ended it.
    Ended(Finish),
}

/// The text side of one generation.
pub struct Assembler {
    detokenizer: Box<dyn Detokenize>,
    joiner: Joiner,
    stops: Matcher,
    bytes: Vec<u8>,
    text: String,
    shown: String,
    /// Tokens generated since the last text that was shown.
    pending: u32,
    usage: Usage,
    unknown_tokens: bool,
    scores: Scores,
    /// Nothing that is generated is wanted, only what is said of the prompt.
    muted: bool,
}

/// What may be shown.
#[derive(Debug, Default)]
pub struct Shown<'a> {
    /// Whole characters; empty only where scores come without any.
    pub text: &'a str,
    /// Generated tokens that it stands for.
    pub tokens: u32,
    /// Log-probabilities of the tokens that begin in it.
    pub scores: &'a [Scored],
}

impl Assembler {
    /// A generation with this prompt length, whose text ends at one of `stops`.
    pub fn new(detokenizer: Box<dyn Detokenize>, stops: Vec<String>, prompt_tokens: u32) -> Assembler {
        Assembler {
            detokenizer,
            joiner: Joiner::default(),
            stops: Matcher::new(stops),
            bytes: Vec::new(),
            text: String::new(),
            shown: String::new(),
            pending: 0,
            usage: Usage { prompt: prompt_tokens, ..Usage::default() },
            unknown_tokens: false,
            scores: Scores::default(),
            muted: false,
        }
    }

    /// Neither shows nor counts what is generated: the answer ends where the prompt does.
    pub fn mute(mut self) -> Assembler {
        self.muted = true;
        self
    }

    /// Whether text is shown as it comes: whole characters, where nothing is looked for and nothing waits.
    pub fn passes(&self) -> bool {
        !self.muted && self.stops.is_idle() && self.joiner.is_empty() && self.scores.is_idle()
    }

    /// Takes a plain piece of which the text is shown, in place of [`Assembler::push`] where it [passes](Assembler::passes). Answers
    /// the tokens that the text stands for.
    pub fn pass(&mut self, piece: &Piece<'_>) -> u32 {
        let new = u32::try_from(piece.tokens.len()).unwrap_or(u32::MAX);
        self.usage.completion = self.usage.completion.saturating_add(new);
        self.scores.pass(piece.bytes.len());
        std::mem::take(&mut self.pending).saturating_add(new)
    }

    /// Takes a piece. What may be shown goes to `show`, at most once.
    pub fn push(&mut self, piece: Piece<'_>, show: impl FnOnce(Shown<'_>)) -> Progress {
        if let Some(n) = piece.more.prompt_tokens {
            self.usage.prompt = n;
        }
        if piece.more.cached_tokens.is_some() {
            self.usage.cached = piece.more.cached_tokens;
        }
        if self.muted {
            return match piece.more.finish.clone() {
                None => Progress::Open,
                Some(Finish::Stop | Finish::Length) => Progress::Ended(Finish::Length),
                Some(other) => Progress::Ended(other),
            };
        }
        if let Some(text) = self.plain(&piece) {
            show(Shown { text, tokens: self.pass(&piece), scores: &[] });
            return Progress::Open;
        }
        let new = u32::try_from(piece.tokens.len()).unwrap_or(u32::MAX);
        self.usage.completion = self.usage.completion.saturating_add(new);
        self.pending = self.pending.saturating_add(new);
        self.shown.clear();
        let stopped = if piece.bytes.is_empty() {
            self.tokens(piece.tokens, &piece.more.logprobs)
        } else {
            // The text of a piece belongs to its first token: the engine does not say where the others begin.
            for (at, token) in piece.tokens.iter().enumerate() {
                let bytes = if at == 0 { piece.bytes } else { &[] };
                self.scores.token(*token, bytes, at, &piece.more.logprobs);
            }
            self.take(piece.bytes)
        };
        let progress = match piece.more.finish.clone() {
            _ if stopped => Progress::StopString,
            Some(finish) => {
                self.flush();
                Progress::Ended(finish)
            }
            None => Progress::Open,
        };
        let over = matches!(progress, Progress::Ended(_));
        self.show(over, show);
        if progress == Progress::StopString {
            self.scores.cut();
        }
        progress
    }

    /// The text of a piece that can be shown as it came, as nearly every one: whole characters, nothing to look for, nothing
    /// that waits, and no word of the engine beside it.
    fn plain<'a>(&self, piece: &Piece<'a>) -> Option<&'a str> {
        let passes = !piece.bytes.is_empty()
            && piece.more.finish.is_none()
            && piece.more.logprobs.chosen.is_empty()
            && self.passes();
        if passes { std::str::from_utf8(piece.bytes).ok() } else { None }
    }

    fn show(&mut self, over: bool, show: impl FnOnce(Shown<'_>)) {
        let bytes = self.shown.len();
        let scores = if over { self.scores.rest(bytes) } else { self.scores.show(bytes) };
        if bytes > 0 || !scores.is_empty() {
            let tokens = if bytes > 0 { std::mem::take(&mut self.pending) } else { 0 };
            show(Shown { text: &self.shown, tokens, scores });
        }
    }

    /// Gives up what was held back, when somebody else ends the generation.
    pub fn abandon(&mut self, show: impl FnOnce(Shown<'_>)) {
        self.shown.clear();
        self.flush();
        self.show(true, show);
    }

    /// The counts so far.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Whether an id came that the tokenizer does not have; asked once.
    pub fn take_unknown_tokens(&mut self) -> bool {
        std::mem::take(&mut self.unknown_tokens)
    }

    /// Token by token, so that the usage of a multi-token piece ends at the token that completed a stop string.
    fn tokens(&mut self, tokens: &[u32], logprobs: &Logprobs<'_>) -> bool {
        for (i, token) in tokens.iter().enumerate() {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.clear();
            self.unknown_tokens |= !self.detokenizer.push(*token, &mut bytes);
            self.scores.token(*token, &bytes, i, logprobs);
            let stopped = self.take(&bytes);
            self.bytes = bytes;
            if stopped {
                let unread = u32::try_from(tokens.len() - 1 - i).unwrap_or(0);
                self.usage.completion = self.usage.completion.saturating_sub(unread);
                self.pending = self.pending.saturating_sub(unread);
                return true;
            }
        }
        false
    }

    fn take(&mut self, bytes: &[u8]) -> bool {
        // Nearly always: whole characters, and nothing to look for.
        if self.stops.is_idle()
            && self.joiner.is_empty()
            && let Ok(text) = std::str::from_utf8(bytes)
        {
            self.shown.push_str(text);
            return false;
        }
        self.text.clear();
        self.joiner.push(bytes, &mut self.text);
        !self.text.is_empty() && self.stops.push(&self.text, &mut self.shown)
    }

    /// Tokens that were generated and gave no text; asked at the end.
    pub fn take_pending(&mut self) -> u32 {
        std::mem::take(&mut self.pending)
    }

    fn flush(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        self.detokenizer.finish(&mut bytes);
        self.text.clear();
        self.joiner.push(&bytes, &mut self.text);
        self.bytes = bytes;
        self.joiner.finish(&mut self.text);
        if !self.stops.push(&self.text, &mut self.shown) {
            self.stops.finish(&mut self.shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::More;

    struct Bytes;
    impl Detokenize for Bytes {
        fn push(&mut self, token: u32, out: &mut Vec<u8>) -> bool {
            u8::try_from(token).map(|b| out.push(b)).is_ok()
        }
    }

    fn ids(text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    fn push(a: &mut Assembler, tokens: &[u32], finish: Option<Finish>) -> (String, u32, Progress) {
        let (mut text, mut n) = (String::new(), 0);
        let more = More { finish, ..More::NONE.clone() };
        let progress = a.push(Piece { tokens, bytes: &[], more: &more }, |shown| {
            text.push_str(shown.text);
            n = shown.tokens;
        });
        (text, n, progress)
    }

    #[test]
    fn tokens_without_text_ride_with_the_next_text() {
        let mut a = Assembler::new(Box::new(Bytes), vec![], 3);
        assert_eq!(push(&mut a, &[0xC3], None), (String::new(), 0, Progress::Open));
        assert_eq!(push(&mut a, &[0xA9], None), ("\u{e9}".into(), 2, Progress::Open));
        assert_eq!(a.usage(), Usage { prompt: 3, cached: None, completion: 2 });
    }

    #[test]
    fn usage_counts_what_was_generated_up_to_the_stop_string() {
        let mut a = Assembler::new(Box::new(Bytes), vec!["END".into()], 1);
        assert_eq!(push(&mut a, &ids("okENDmore"), None), ("ok".into(), 5, Progress::StopString));
        assert_eq!(a.usage().completion, 5);
    }

    #[test]
    fn held_text_comes_out_when_the_engine_ends_or_somebody_else_does() {
        let mut a = Assembler::new(Box::new(Bytes), vec!["END".into()], 1);
        assert_eq!(push(&mut a, &ids("xEN"), None).0, "x");
        let (text, n, progress) = push(&mut a, &[], Some(Finish::Length));
        assert_eq!((text.as_str(), n, progress), ("EN", 2 - 2, Progress::Ended(Finish::Length)));
        let mut b = Assembler::new(Box::new(Bytes), vec!["END".into()], 1);
        push(&mut b, &ids("E"), None);
        let mut rest = String::new();
        b.abandon(|shown| rest.push_str(shown.text));
        assert_eq!(rest, "E");
    }

    #[test]
    fn unknown_ids_are_noticed_and_give_nothing() {
        let mut a = Assembler::new(Box::new(Bytes), vec![], 1);
        assert_eq!(push(&mut a, &[999], None).0, "");
        assert!(a.take_unknown_tokens());
        assert!(!a.take_unknown_tokens());
    }
}
