//! The model's own tokenizer where it comes as OpenVINO networks only: the engine then offers it to the host.
//!
//! Invariant: the bytes of a token are those that it has inside a text; the whole table is made once, at load.
//! Knows nothing of chats and templates.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;

use cascadia_gguf::VOCABULARY;
use cascadia_plugin_api::sdk::{Error, Result, TokenKind, Tokenize};

use crate::ffi::Shim;
use crate::ffi::words::Words;

/// The networks of a model's tokenizer.
pub(crate) const NETWORKS: [&str; 2] = ["openvino_tokenizer.xml", "openvino_detokenizer.xml"];
/// Beside GenAI's own library.
pub(crate) const EXTENSION: &str = "libopenvino_tokenizers.so";
/// Rows of one call while the table is made.
const ROWS: usize = 4096;
/// What stands before each token while the table is made.
const ANCHOR: &str = "a";

/// A tokenizer and the bytes of all its tokens.
pub(crate) struct Tokenizer {
    words: Words,
    pieces: Vec<Vec<u8>>,
    special: BTreeSet<u32>,
    /// Texts of special tokens, longest first.
    marks: Vec<String>,
    /// Ids that the network puts in front of every text and behind it.
    around: (usize, usize),
}

impl Tokenizer {
    /// Whether the folder has a tokenizer that only this can read.
    pub(crate) fn is_needed(folder: &Path) -> bool {
        folder.is_dir()
            && NETWORKS.iter().all(|name| folder.join(name).is_file())
            && !["tokenizer.json", VOCABULARY].iter().any(|name| folder.join(name).is_file())
    }

    /// Opens the networks of `folder` and makes the table; takes a second for a large vocabulary.
    pub(crate) fn open(shim: &Arc<Shim>, folder: &Path, extension: &Path) -> Result<Tokenizer> {
        let c_path = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes());
        let (Ok(at), Ok(extension)) = (c_path(folder), c_path(extension)) else {
            return Err(Error::config("the model's path has a zero byte in it"));
        };
        let failed = |e: String| Error::backend(format!("the tokenizer of {}: {e}", folder.display()));
        let words = Words::open(shim, &at, &extension).map_err(failed)?;
        let (none, one) = (words.encode("").map_err(failed)?, words.encode(ANCHOR).map_err(failed)?);
        let front = none.iter().zip(&one).take_while(|(a, b)| a == b).count();
        let behind = none.len() - front;
        let anchor = *one[front..one.len() - behind]
            .last()
            .ok_or_else(|| failed(format!("it makes no token of {ANCHOR:?}")))?;
        let special: BTreeSet<u32> =
            words.special().into_iter().filter_map(|id| u32::try_from(id).ok()).collect();
        let mut pieces = table(&words, anchor).map_err(failed)?;
        // The filter for special tokens is gone from the network; what it shows of them is their text.
        let marks = |id: &u32| String::from_utf8(pieces.get(*id as usize)?.clone()).ok();
        let mut marks: Vec<String> = special.iter().filter_map(marks).filter(|text| text.len() > 1).collect();
        marks.sort_by_key(|text| std::cmp::Reverse(text.len()));
        pieces.shrink_to_fit();
        Ok(Tokenizer { words, pieces, special, marks, around: (front, behind) })
    }

    /// Number of ids.
    pub(crate) fn vocabulary(&self) -> usize {
        self.pieces.len()
    }

    /// The template of chats that came with the networks, or nothing.
    pub(crate) fn chat_template(&self) -> String {
        self.words.chat_template()
    }

    fn encode(&self, text: &str, around: bool) -> Result<Vec<u32>> {
        let ids = self.words.encode(text).map_err(Error::backend)?;
        let (front, behind) = if around { (0, 0) } else { self.around };
        let end = ids.len().saturating_sub(behind).max(front);
        let inner = ids.get(front..end).unwrap_or(&[]);
        let narrow = |id: &i64| u32::try_from(*id).map_err(|_| Error::backend(format!("token id {id}")));
        inner.iter().map(narrow).collect()
    }
}

/// The bytes of each token: what it adds to the anchor.
fn table(words: &Words, anchor: i64) -> std::result::Result<Vec<Vec<u8>>, String> {
    let alone = words.decode(&[anchor], 1)?.pop().unwrap_or_default();
    let ids: Vec<i64> = (0..words.vocabulary() as i64).collect();
    let mut out = Vec::with_capacity(ids.len());
    for part in ids.chunks(ROWS) {
        let rows: Vec<i64> = part.iter().flat_map(|id| [anchor, *id]).collect();
        for (id, pair) in part.iter().zip(words.decode(&rows, 2)?) {
            let piece = pair.strip_prefix(alone.as_slice());
            out.push(piece.ok_or_else(|| format!("token {id} changes the text before it"))?.to_vec());
        }
    }
    Ok(out)
}

impl Tokenize for Tokenizer {
    fn tokenize(&self, text: &[u8], parse_special: bool, add_special: bool) -> Result<Vec<u32>> {
        let text = std::str::from_utf8(text)
            .map_err(|e| Error::config(format!("the text is no UTF-8 from byte {} on", e.valid_up_to())))?;
        if parse_special {
            return self.encode(text, add_special);
        }
        let mut out = Vec::new();
        for (at, part) in split(text, &self.marks).into_iter().enumerate() {
            out.extend(self.encode(part, add_special && at == 0)?);
        }
        Ok(out)
    }

    fn detokenize(&self, tokens: &[u32], special: bool) -> Result<Vec<u8>> {
        if let Some(id) = tokens.iter().find(|id| **id as usize >= self.pieces.len()) {
            return Err(Error::config(format!("no token has id {id}")));
        }
        let shown = tokens.iter().filter(|id| special || !self.special.contains(id));
        let ids: Vec<i64> = shown.copied().map(i64::from).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut rows = self.words.decode(&ids, ids.len()).map_err(Error::backend)?;
        Ok(rows.pop().unwrap_or_default())
    }

    fn token(&self, token: u32) -> Result<(Vec<u8>, TokenKind)> {
        let Some(piece) = self.pieces.get(token as usize) else { return Ok((Vec::new(), TokenKind::None)) };
        let kind = if self.special.contains(&token) { TokenKind::Special } else { TokenKind::Text };
        Ok((piece.clone(), kind))
    }
}

/// Cuts a text inside every mark that it has, so that no part has one: behind the mark's first run of letters or of
/// other characters, where tokens end anyway.
fn split<'a>(text: &'a str, marks: &[String]) -> Vec<&'a str> {
    let (mut parts, mut rest) = (Vec::new(), text);
    let first = |rest: &str| {
        let found = marks.iter().filter_map(|mark| Some((rest.find(mark.as_str())?, mark)));
        found.min_by_key(|(at, _)| *at).map(|(at, mark)| at + seam(mark))
    };
    while let Some(at) = first(rest) {
        let (part, behind) = rest.split_at(at);
        parts.push(part);
        rest = behind;
    }
    parts.push(rest);
    parts
}

/// Where a mark is cut: before its last character at the latest.
fn seam(mark: &str) -> usize {
    let letter = |c: char| c.is_alphanumeric();
    let start = mark.chars().next().is_some_and(letter);
    let last = mark.char_indices().next_back().map_or(0, |(at, _)| at);
    mark.find(|c| letter(c) != start).unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn no_part_of_a_split_text_has_a_mark() {
        let marks = ["<|im_start|>", "<s>", "[END]", "##"].map(str::to_owned);
        assert_eq!(split("plain", &marks), ["plain"]);
        assert_eq!(split("a<|im_start|>b<s>", &marks), ["a<|", "im_start|>b<", "s>"]);
        assert_eq!(split("###", &marks), ["#", "#", "#"]);
        for text in ["<s><s>[END]", "####", "<<s>s>", "", "é<|im_start|>é"] {
            let parts = split(text, &marks);
            assert_eq!(parts.concat(), text);
            assert!(
                parts.iter().all(|part| !marks.iter().any(|mark| part.contains(mark.as_str()))),
                "{parts:?}"
            );
        }
    }
}
