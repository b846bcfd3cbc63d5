//! The bytes of every token of a vocabulary, in one table, so that detokenizing is a lookup.
//!
//! Invariant: an id below `len` has a slot; a slot that no token fills is a hole and answers like an id out of range.

use super::LoadError;

/// More ids than any vocabulary has; a damaged file must not make the table huge.
const MAX_IDS: usize = 1 << 22;

const PRESENT: u8 = 1;
const SPECIAL: u8 = 2;

/// One token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) bytes: &'a [u8],
    /// A control token: not text.
    pub(super) special: bool,
}

/// The table. Built once per model, shared by all detokenizers.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    flags: Vec<u8>,
    /// The first text of a generation loses one leading space (the one that the tokenizer put in front when encoding).
    pub(super) strip_start: bool,
}

impl Pieces {
    /// Fills slots `0..tokens.len()`; `None` makes a hole.
    pub(super) fn build(
        tokens: impl Iterator<Item = Option<(Vec<u8>, bool)>>,
        strip_start: bool,
    ) -> Result<Self, LoadError> {
        let mut out = Self { strip_start, ..Self::default() };
        for token in tokens {
            if out.ends.len() == MAX_IDS {
                return Err(LoadError::Vocabulary(format!("it has more than {MAX_IDS} ids")));
            }
            let (bytes, flags) = match token {
                Some((bytes, special)) => (bytes, PRESENT | if special { SPECIAL } else { 0 }),
                None => (Vec::new(), 0),
            };
            out.bytes.extend_from_slice(&bytes);
            let end = u32::try_from(out.bytes.len())
                .map_err(|_| LoadError::Vocabulary("its tokens have more than 4 GiB of text".to_owned()))?;
            out.ends.push(end);
            out.flags.push(flags);
        }
        Ok(out)
    }

    /// Bytes of the longest token; at least 1.
    pub(super) fn longest(&self) -> usize {
        let starts = std::iter::once(&0).chain(&self.ends);
        self.ends.iter().zip(starts).map(|(end, start)| (end - start) as usize).max().unwrap_or(1).max(1)
    }

    /// Number of slots.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, id: u32) -> Option<Piece<'_>> {
        let at = id as usize;
        let flags = *self.flags.get(at)?;
        if flags & PRESENT == 0 {
            return None;
        }
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        Some(Piece { bytes: &self.bytes[start..self.ends[at] as usize], special: flags & SPECIAL != 0 })
    }
}

/// Checks an id space before it is allocated.
pub(super) fn check_ids(ids: usize) -> Result<usize, LoadError> {
    if ids > MAX_IDS {
        return Err(LoadError::Vocabulary(format!(
            "its largest id is {}, at most {MAX_IDS} are supported",
            ids - 1
        )));
    }
    Ok(ids)
}

/// The bytes of a byte-level BPE token: each of its characters stands for one byte. A token with any other character is
/// not of that alphabet and stands for itself.
pub(super) fn byte_level(token: &str) -> Vec<u8> {
    token.chars().map(byte_of).collect::<Option<Vec<u8>>>().unwrap_or_else(|| token.as_bytes().to_vec())
}

/// Inverts GPT-2's map: printable Latin-1 characters stand for themselves, the other 68 bytes were moved, in order, to
/// U+0100 and above.
fn byte_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u8::try_from(code).ok(),
        0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// The bytes of a SentencePiece token: U+2581 is a space.
pub(super) fn spaced(token: &str) -> Vec<u8> {
    token.replace('\u{2581}', " ").into_bytes()
}

/// The byte of a fallback token, `<0x0A>`.
pub(super) fn fallback_byte(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() != 2 { None } else { u8::from_str_radix(hex, 16).ok() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_byte_map_is_the_inverse_of_gpt2s() {
        // The forward direction, written as its definition reads.
        let mut moved = 0;
        for byte in 0..=255u8 {
            let kept = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
            let c = if kept { char::from(byte) } else { char::from_u32(256 + moved).unwrap() };
            moved += u32::from(!kept);
            assert_eq!(byte_of(c), Some(byte), "{c:?}");
        }
        assert_eq!(moved, 68);
        assert_eq!(byte_level("Ġthe"), b" the");
        assert_eq!(byte_level("Ċ"), b"\n");
        assert_eq!(byte_level("<｜x｜>"), "<｜x｜>".as_bytes());
    }

    #[test]
    fn holes_and_ids_out_of_range_are_absent() {
        let rows = vec![Some((b"a".to_vec(), false)), None, Some((Vec::new(), true))];
        let pieces = Pieces::build(rows.into_iter(), false).unwrap();
        assert_eq!(pieces.get(0).unwrap().bytes, b"a");
        assert!(pieces.get(1).is_none());
        assert!(pieces.get(2).unwrap().special);
        assert!(pieces.get(3).is_none());
        assert!(pieces.get(u32::MAX).is_none());
    }

    #[test]
    fn only_two_digit_hex_is_a_byte() {
        assert_eq!(fallback_byte("<0x0A>"), Some(10));
        assert_eq!(fallback_byte("<0xff>"), Some(255));
        for other in ["<0x0>", "<0x0AA>", "<0xZZ>", "<0x+1>x", "0x0A"] {
            assert_eq!(fallback_byte(other), None, "{other}");
        }
    }
}
