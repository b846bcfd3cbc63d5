//! Prompts of a known number of tokens: words that the model's vocabulary has as one token each, drawn at random.
//!
//! Holds: the text and the ids of a prompt are the same tokens, if the tokenizer takes whole words first; whoever sends the text
//! asks the server for its count once and compares. No two prompts begin alike, so no cache of earlier ones helps.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use cascadia_gguf::Gguf;
use cascadia_tests::Dice;

/// The letter of byte-level vocabularies for a space.
const SPACE: char = '\u{120}';
/// Letters of a word: the shorter ones are rather parts of words.
const LETTERS: std::ops::RangeInclusive<usize> = 4..=9;
/// Fewer would make prompts that resemble each other.
const LEAST: usize = 1000;

/// The words of a model.
pub(crate) struct Words {
    words: Vec<(u32, String)>,
}

/// The same tokens twice.
#[derive(Debug, Clone)]
pub(crate) struct Prompt {
    pub(crate) ids: Vec<u32>,
    pub(crate) text: String,
}

impl Words {
    /// From the vocabulary of a GGUF file.
    pub(crate) fn read(model: &Path) -> Result<Words> {
        let file = File::open(model).with_context(|| format!("open {}", model.display()))?;
        let gguf = Gguf::read(file).with_context(|| format!("read {}", model.display()))?;
        let tokens = gguf.strings("tokenizer.ggml.tokens")?.context("the model has no vocabulary")?;
        Words::of(tokens)
    }

    fn of(tokens: &[String]) -> Result<Words> {
        let word = |(id, token): (u32, &String)| {
            let rest = token.strip_prefix(SPACE)?;
            let plain = LETTERS.contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_lowercase());
            plain.then(|| (id, rest.to_owned()))
        };
        let words: Vec<_> = (0..).zip(tokens).filter_map(word).collect();
        ensure!(words.len() >= LEAST, "the vocabulary has only {} plain words", words.len());
        Ok(Words { words })
    }

    /// A prompt of so many tokens.
    pub(crate) fn prompt(&self, dice: &mut Dice, tokens: usize) -> Prompt {
        let drawn = (0..tokens).map(|_| &self.words[dice.roll(self.words.len() as u64) as usize]);
        let (ids, texts): (Vec<u32>, Vec<String>) = drawn.map(|(id, word)| (*id, format!(" {word}"))).unzip();
        Prompt { ids, text: texts.concat() }
    }
}

impl Prompt {
    /// This one with another behind it.
    pub(crate) fn then(&self, more: &Prompt) -> Prompt {
        let ids = self.ids.iter().chain(&more.ids).copied().collect();
        Prompt { ids, text: format!("{}{}", self.text, more.text) }
    }

    /// This one so many times.
    pub(crate) fn repeated(&self, times: usize) -> Prompt {
        Prompt { ids: self.ids.repeat(times), text: self.text.repeat(times) }
    }
}

/// A vocabulary without a model, and its words.
#[cfg(test)]
pub(crate) fn made_up() -> (Vec<String>, Words) {
    let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
    let mut tokens: Vec<String> = vec!["a".into(), "\u{120}The".into(), "\u{120}it".into()];
    let name = |n: usize| format!("\u{120}{}{}{}word", letter(n), letter(n / 26), letter(n / 676));
    tokens.extend((0..LEAST).map(name));
    let words = Words::of(&tokens).expect("enough words");
    (tokens, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_a_word_for_each_token_and_comes_again_with_its_seed() {
        let (tokens, words) = made_up();
        let prompt = words.prompt(&mut Dice::new(1, 2), 20);
        assert_eq!((prompt.ids.len(), prompt.text.split_whitespace().count()), (20, 20));
        let told: String = prompt.ids.iter().map(|id| tokens[*id as usize].replace(SPACE, " ")).collect();
        assert_eq!(told, prompt.text);
        assert_eq!(words.prompt(&mut Dice::new(1, 2), 20).text, prompt.text);
        assert_ne!(words.prompt(&mut Dice::new(1, 3), 20).text, prompt.text);
        assert!(Words::of(&tokens[..900]).is_err());
    }
}
