//! From token ids back to bytes, one id at a time.
//!
//! Invariant: the concatenation of what `push` and `finish` appended is the text of the ids. Bytes may end inside a
//! character; joining characters is `generate`'s work. For byte-level and SentencePiece vocabularies a push is one lookup;
//! other decoders of `tokenizer.json` go through the tokenizers library over a short window of ids.

use std::sync::Arc;

use super::pieces::Pieces;

/// Ids that the window may hold back while its text ends in an incomplete character (a character has at most 4 bytes, so
/// more than this is no character in the making).
const MAX_PENDING: usize = 12;
/// What a decoder of the tokenizers library writes for an incomplete character.
const INCOMPLETE: char = '\u{fffd}';

/// What a pushed id was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// Text; its bytes were appended, or are held back until a character is complete.
    Text,
    /// A special token, which yields nothing.
    Hidden,
    /// An id outside the vocabulary, which yields nothing. The engine or the model files are wrong.
    Unknown,
}

/// The state of one generation.
#[derive(Debug)]
pub struct Detokenizer {
    pieces: Arc<Pieces>,
    window: Option<Window>,
    show_special: bool,
    strip: bool,
    unknown: u64,
}

impl Detokenizer {
    pub(super) fn new(pieces: Arc<Pieces>, library: Option<Arc<tokenizers::Tokenizer>>) -> Self {
        let strip = pieces.strip_start;
        let window = library.map(|tokenizer| Window { tokenizer, ids: Vec::new(), settled: 0 });
        Self { pieces, window, show_special: false, strip, unknown: 0 }
    }

    /// Also yields special tokens, as they are written.
    #[must_use]
    pub fn showing_special(mut self) -> Self {
        self.show_special = true;
        self
    }

    /// The text continues another one (a completion of the prompt): the leading space of the first word stays. Without
    /// this call the text stands alone (a chat answer) and loses the space that SentencePiece tokenizers put in front.
    #[must_use]
    pub fn continuing(mut self) -> Self {
        self.strip = false;
        self
    }

    /// Appends the bytes of the next token.
    pub fn push(&mut self, id: u32, out: &mut Vec<u8>) -> Pushed {
        let Some(piece) = self.pieces.get(id) else {
            self.unknown += 1;
            return Pushed::Unknown;
        };
        if piece.special && !self.show_special {
            return Pushed::Hidden;
        }
        if let Some(window) = &mut self.window {
            window.push(id, out);
            return Pushed::Text;
        }
        let mut bytes = piece.bytes;
        if self.strip && !bytes.is_empty() {
            self.strip = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        out.extend_from_slice(bytes);
        Pushed::Text
    }

    /// Appends what was held back. Call it once, after the last push.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(window) = &mut self.window {
            window.flush(out);
        }
    }

    /// How many ids so far were outside the vocabulary.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }
}

/// Decodes by difference: the text of the ids minus the text of those already settled. A settled id stays in the window,
/// because a decoder may treat the first token of a text differently.
struct Window {
    tokenizer: Arc<tokenizers::Tokenizer>,
    ids: Vec<u32>,
    /// How many of `ids` have had their text appended.
    settled: usize,
}

impl Window {
    fn push(&mut self, id: u32, out: &mut Vec<u8>) {
        self.ids.push(id);
        let pending = self.ids.len() - self.settled;
        let new = self.difference();
        if new.ends_with(INCOMPLETE) && pending < MAX_PENDING {
            return;
        }
        self.settle(&new, out);
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        if self.settled < self.ids.len() {
            let new = self.difference();
            self.settle(&new, out);
        }
    }

    fn difference(&self) -> String {
        let all = self.decode(&self.ids);
        let old = self.decode(&self.ids[..self.settled]);
        match all.strip_prefix(old.as_str()) {
            Some(new) => new.to_owned(),
            // The decoder rewrote settled text (a clean-up over a token's edge). What was sent cannot be taken back:
            // continue at the same number of characters.
            None => all.chars().skip(old.chars().count()).collect(),
        }
    }

    fn settle(&mut self, new: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(new.as_bytes());
        self.ids.drain(..self.settled);
        self.settled = self.ids.len();
    }

    fn decode(&self, ids: &[u32]) -> String {
        // A decoder that fails on ids of its own vocabulary yields nothing; the ids were checked by `push`.
        self.tokenizer.decode(ids, false).unwrap_or_default()
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Window")
            .field("ids", &self.ids)
            .field("settled", &self.settled)
            .finish_non_exhaustive()
    }
}
