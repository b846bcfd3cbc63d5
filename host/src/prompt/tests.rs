//! Tests of [`Text`] as a whole: small models made here, and the real SmolLM2 file where it is at hand.

#![allow(clippy::unwrap_used)]

mod bytelevel;
mod folder;
mod real;
mod sentencepiece;

use cascadia_gguf::Gguf;

use super::detok::{Detokenizer, Pushed};
use super::source::Source;
use super::{LoadError, Text};

/// Texts that break careless tokenizers.
const HARD: &[&str] = &[
    "",
    " ",
    "   leading and   inner   spaces  ",
    "tab\tand\r\n\n\nlines\n",
    "héllo wörld — “quotes”",
    "你好，世界。こんにちは 안녕하세요",
    "🎉👨‍👩‍👧‍👦🇫🇷 emoji",
    "e\u{301} A\u{30a} \u{200b}\u{a0}x",
    "fn main() { println!(\"{}\", 1234567890); } // 3.14159",
    "don't we'll I'M",
    "<0x41> <|not_a_token|> ▁",
    "\u{0}\u{1}\u{7f}",
];

/// Writes GGUF metadata.
#[derive(Default)]
struct Header {
    keys: u64,
    bytes: Vec<u8>,
}

impl Header {
    fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.keys += 1;
        self.bytes.extend_from_slice(&text(key));
        self.bytes.extend_from_slice(&kind.to_le_bytes());
        self.bytes.extend_from_slice(value);
        self
    }
    fn str(self, key: &str, value: &str) -> Self {
        self.entry(key, 8, &text(value))
    }
    fn u32(self, key: &str, value: u32) -> Self {
        self.entry(key, 4, &value.to_le_bytes())
    }
    fn bool(self, key: &str, value: bool) -> Self {
        self.entry(key, 7, &[u8::from(value)])
    }
    fn array<'a, T: 'a>(self, key: &str, kind: u32, list: &'a [T], one: impl Fn(&'a T) -> Vec<u8>) -> Self {
        let mut value = kind.to_le_bytes().to_vec();
        value.extend_from_slice(&(list.len() as u64).to_le_bytes());
        value.extend(list.iter().flat_map(one));
        self.entry(key, 9, &value)
    }
    fn strings(self, key: &str, list: &[String]) -> Self {
        self.array(key, 8, list, |s| text(s))
    }
    fn i32s(self, key: &str, list: &[i32]) -> Self {
        self.array(key, 5, list, |n| n.to_le_bytes().to_vec())
    }
    fn f32s(self, key: &str, list: &[f32]) -> Self {
        self.array(key, 6, list, |x| x.to_le_bytes().to_vec())
    }
    fn load(&self) -> Result<Text, LoadError> {
        let mut file = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        file.extend_from_slice(&self.keys.to_le_bytes());
        file.extend_from_slice(&self.bytes);
        Text::from_source(&Source::Gguf(Box::new(Gguf::read(file.as_slice()).unwrap())))
    }
}

fn text(s: &str) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat()
}

/// The bytes of all ids, and what each push said.
fn decode(mut state: Detokenizer, ids: &[u32]) -> (Vec<u8>, Vec<Pushed>) {
    let mut out = Vec::new();
    let pushed = ids.iter().map(|id| state.push(*id, &mut out)).collect();
    state.finish(&mut out);
    (out, pushed)
}

fn decoded(state: Detokenizer, ids: &[u32]) -> String {
    String::from_utf8(decode(state, ids).0).unwrap()
}

#[test]
fn text_is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Text>();
    shared::<Detokenizer>();
}
