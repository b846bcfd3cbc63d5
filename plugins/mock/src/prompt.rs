//! What the engine reads in a prompt: its `@mock` line and the words to repeat.
//!
//! Holds: the words are those of all lines but the `@mock` ones. Of several such lines the last counts, so that a
//! conversation's newest message decides.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::script::{Item, Script, Token};

/// What marks the line of overrides.
const MARK: &str = "@mock ";

/// The prompt as text: its ids where all are bytes, else the text beside them.
pub(crate) fn text<'a>(tokens: &[u32], text: &'a str) -> Cow<'a, str> {
    let bytes: Option<Vec<u8>> = tokens.iter().map(|id| u8::try_from(*id).ok()).collect();
    match bytes {
        Some(bytes) if !bytes.is_empty() => String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
            .into(),
        _ => text.into(),
    }
}

/// The JSON of the last `@mock` line.
pub(crate) fn order_line(text: &str) -> Option<&str> {
    text.lines().rev().find_map(|line| line.trim_start().strip_prefix(MARK)).map(str::trim)
}

/// The words as a script, and the first word as it opens the answer: later laps begin with a space before it.
pub(crate) fn echo(text: &str) -> (Option<Item>, Script) {
    let words =
        || text.lines().filter(|line| !line.trim_start().starts_with(MARK)).flat_map(str::split_whitespace);
    let opening = words().next().map(|word| Item::Tokens(vec![Token::of(word)]));
    let lap: Arc<[Item]> = words().map(|word| Item::Tokens(vec![Token::of(format!(" {word}"))])).collect();
    (opening, Script(lap))
}

/// The words of the last prompt: who measures sends the same one over and over, and all its tasks then share one script.
#[derive(Debug, Default)]
pub(crate) struct Echoes(Mutex<Option<Echo>>);

#[derive(Debug)]
struct Echo {
    text: String,
    opening: Option<Item>,
    lap: Script,
}

/// Longest prompt whose words are kept, in bytes.
const KEPT: usize = 16 << 10;

impl Echoes {
    /// As [`echo`].
    pub(crate) fn of(&self, text: &str) -> (Option<Item>, Script) {
        let mut last = self.0.lock();
        if let Some(Echo { opening, lap, .. }) = last.as_ref().filter(|echo| echo.text == text) {
            return (opening.clone(), lap.clone());
        }
        let (opening, lap) = echo(text);
        if text.len() <= KEPT {
            *last = Some(Echo { text: text.to_owned(), opening: opening.clone(), lap: lap.clone() });
        }
        (opening, lap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_that_are_alike_share_their_words_and_others_have_their_own() {
        let echoes = Echoes::default();
        let laps = ["one two", "one two", "one", "one two"].map(|text| {
            let made = echoes.of(text);
            assert_eq!(made, echo(text));
            made.1.0
        });
        assert!(Arc::ptr_eq(&laps[0], &laps[1]));
        assert!(!Arc::ptr_eq(&laps[0], &laps[3]), "one is kept");
    }

    #[test]
    fn bytes_are_read_as_text_and_other_ids_not() {
        assert_eq!(text(&[104, 105], "beside"), "hi");
        assert_eq!(text(&[104, 300], "beside"), "beside");
        assert_eq!(text(&[], "beside"), "beside");
        assert_eq!(text(&[104, 255], ""), "h\u{fffd}");
    }

    #[test]
    fn the_last_line_counts_and_none_is_repeated() {
        let prompt = "one two\n@mock {\"a\":1}\nthree\n  @mock {\"b\":2} \nfour";
        assert_eq!(order_line(prompt), Some("{\"b\":2}"));
        let (opening, script) = echo(prompt);
        assert_eq!(opening, Some(Item::Tokens(vec![Token::of("one")])));
        let words: Vec<_> =
            [" one", " two", " three", " four"].map(|w| Item::Tokens(vec![Token::of(w)])).into();
        assert_eq!(script.0.to_vec(), words);
    }

    #[test]
    fn a_word_that_only_begins_like_the_mark_is_a_word() {
        assert_eq!(order_line("@mockery {}"), None);
        assert_eq!(echo("@mockery x").1.0.len(), 2);
        assert_eq!(echo("").0, None);
    }
}
