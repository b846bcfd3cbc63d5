//! What both ends say before the first frame: the link's version, what is to be spoken on it, and the largest frame they
//! take. Pure bytes to meaning and back.
//!
//! ```text
//! 0  8  magic "CSCDLINK"
//! 8  2  version                      (magic and version stay where they are in every version)
//! 10 2  word: hello, welcome, refused
//! 12 2  bytes of the text
//! 14 2  0
//! 16 8  largest tensor frame that is taken, in bytes
//! 24 n  text: the purpose; of a refusal, its reason
//! ```
//! All numbers are little-endian. Who opened the link says hello, the other answers welcome or refused.

const MAGIC: [u8; 8] = *b"CSCDLINK";
/// The version of hello and frames.
pub(super) const VERSION: u16 = 1;
/// Bytes before the text.
pub(super) const FIXED: usize = 24;
/// Longest text.
pub(super) const MAX_TEXT: usize = 512;

/// What is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Hello,
    Welcome,
    Refused,
}

/// One side's greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) word: Word,
    pub(super) largest: u64,
    pub(super) text: String,
}

/// Why a greeting is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("it does not speak this host's link protocol")]
    Stranger,
    #[error("it speaks version {0} of the link protocol, this host speaks {VERSION}")]
    Version(u16),
}

impl Hello {
    /// Its bytes; a text that is too long is cut.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let text = &self.text.as_bytes()[..self.text.floor_char_boundary(MAX_TEXT)];
        let word: u16 = match self.word {
            Word::Hello => 0,
            Word::Welcome => 1,
            Word::Refused => 2,
        };
        let mut out = Vec::with_capacity(FIXED + text.len());
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(word.to_le_bytes());
        // At most 512.
        out.extend((text.len() as u16).to_le_bytes());
        out.extend([0, 0]);
        out.extend(self.largest.to_le_bytes());
        out.extend(text);
        out
    }

    /// Reads what has come so far: a greeting, or how many bytes are needed before there can be one.
    pub(super) fn read(bytes: &[u8]) -> Result<Result<Hello, usize>, Fault> {
        if bytes.iter().zip(MAGIC).any(|(found, wanted)| *found != wanted) {
            return Err(Fault::Stranger);
        }
        let word =
            |at: usize| bytes.get(at..at + 2).and_then(|two| two.try_into().ok()).map(u16::from_le_bytes);
        match word(8) {
            Some(VERSION) => {}
            Some(other) => return Err(Fault::Version(other)),
            None => return Ok(Err(FIXED)),
        }
        let (Some(said), Some(len), Some(zero)) = (word(10), word(12), word(14)) else {
            return Ok(Err(FIXED));
        };
        let Some(largest) = bytes.get(16..FIXED).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
        else {
            return Ok(Err(FIXED));
        };
        let word = match said {
            0 => Word::Hello,
            1 => Word::Welcome,
            2 => Word::Refused,
            _ => return Err(Fault::Stranger),
        };
        if usize::from(len) > MAX_TEXT || zero != 0 {
            return Err(Fault::Stranger);
        }
        let whole = FIXED + usize::from(len);
        let Some(text) = bytes.get(FIXED..whole) else { return Ok(Err(whole)) };
        let text = String::from_utf8(text.to_vec()).map_err(|_| Fault::Stranger)?;
        Ok(Ok(Hello { word, largest, text }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello { word: Word::Hello, largest: 1 << 30, text: "mock/relay/1 ü".to_owned() }
    }

    #[test]
    fn it_is_read_back_from_any_number_of_pieces() {
        for word in [Word::Hello, Word::Welcome, Word::Refused] {
            let said = Hello { word, ..hello() };
            let bytes = said.bytes();
            for cut in 0..bytes.len() {
                let needed =
                    Hello::read(&bytes[..cut]).expect("so far it is one").expect_err("more is needed");
                assert!(needed > cut && needed <= bytes.len(), "{cut}: {needed}");
            }
            assert_eq!(Hello::read(&bytes), Ok(Ok(said)));
        }
    }

    #[test]
    fn strangers_and_other_versions_are_told_apart() {
        assert_eq!(Hello::read(b"GET / HTTP/1.1\r\n"), Err(Fault::Stranger));
        assert_eq!(Hello::read(b"X"), Err(Fault::Stranger));
        let mut other = hello().bytes();
        other[8] = 9;
        // The version is known before the rest of the greeting, which another version may have changed.
        assert_eq!(Hello::read(&other[..10]), Err(Fault::Version(9)));
        let change = |at: usize, to: u8| {
            let mut bytes = hello().bytes();
            bytes[at] = to;
            Hello::read(&bytes)
        };
        assert_eq!(change(10, 7), Err(Fault::Stranger));
        assert_eq!(change(13, 0xff), Err(Fault::Stranger));
        assert_eq!(change(14, 1), Err(Fault::Stranger));
        assert_eq!(change(FIXED, 0xff), Err(Fault::Stranger));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let said = Hello { text: "ü".repeat(MAX_TEXT), ..hello() };
        let read = Hello::read(&said.bytes()).expect("one").expect("whole");
        assert_eq!(read.text.len(), MAX_TEXT);
    }
}
