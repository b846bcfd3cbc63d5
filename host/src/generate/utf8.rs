//! Bytes to whole characters: a piece may end inside a character, and may hold bytes that are no text at all.

/// Joins bytes into characters across pieces.
#[derive(Debug, Default)]
pub struct Joiner {
    /// The begun character: at most 3 bytes that may still become one.
    tail: Vec<u8>,
}

impl Joiner {
    /// Whether no character is begun.
    pub fn is_empty(&self) -> bool {
        self.tail.is_empty()
    }

    /// Appends to `out` what is complete after `bytes`. Each run of bytes that can be no character becomes one U+FFFD.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        if self.tail.is_empty() {
            self.decode(bytes, out);
        } else {
            let mut joined = std::mem::take(&mut self.tail);
            joined.extend_from_slice(bytes);
            self.decode(&joined, out);
        }
    }

    /// Appends U+FFFD for a character that was begun and never completed.
    pub fn finish(&mut self, out: &mut String) {
        if !self.tail.is_empty() {
            self.tail.clear();
            out.push('\u{FFFD}');
        }
    }

    fn decode(&mut self, bytes: &[u8], out: &mut String) {
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            out.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            // Only at the very end can an incomplete character still be completed.
            if chunks.peek().is_none() && is_begun(invalid) {
                self.tail.extend_from_slice(invalid);
            } else {
                out.push('\u{FFFD}');
            }
        }
    }
}

/// Whether more bytes could make this a character.
fn is_begun(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(pieces: &[&[u8]]) -> (Vec<String>, String) {
        let mut joiner = Joiner::default();
        let steps = pieces
            .iter()
            .map(|p| {
                let mut out = String::new();
                joiner.push(p, &mut out);
                out
            })
            .collect();
        let mut rest = String::new();
        joiner.finish(&mut rest);
        (steps, rest)
    }

    #[test]
    fn a_character_split_over_pieces_comes_out_whole() {
        let (steps, rest) = joined(&[b"\xF0\x9F", b"\x92\xA9", b" ", b"\x85", b"ok"]);
        assert_eq!(steps, ["", "\u{1F4A9}", " ", "\u{FFFD}", "ok"]);
        assert_eq!(rest, "");
    }

    #[test]
    fn a_character_never_completed_becomes_one_mark_at_the_end() {
        assert_eq!(joined(&[b"a\xE2\x82"]), (vec!["a".to_owned()], "\u{FFFD}".to_owned()));
    }

    #[test]
    fn any_split_gives_the_same_text_as_the_whole() {
        let bytes = "h\u{e9}llo \u{1F600}\u{4f60}"
            .as_bytes()
            .iter()
            .copied()
            .chain([0xff, b'x', 0xe2, 0x82])
            .collect::<Vec<u8>>();
        let whole = joined(&[&bytes]);
        let whole = whole.0.concat() + &whole.1;
        for a in 0..bytes.len() {
            for b in a..bytes.len() {
                let (steps, rest) = joined(&[&bytes[..a], &bytes[a..b], &bytes[b..]]);
                assert_eq!(steps.concat() + &rest, whole, "split at {a} and {b}");
            }
        }
    }
}
