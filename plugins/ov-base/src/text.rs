//! The other side's words: a buffer that C writes into, and calls that fail with a text.

use std::ffi::{c_char, c_int};

/// Longer texts are cut; OpenVINO's own are a few hundred bytes.
const TEXT: usize = 4096;

/// `len` is what the whole text needs, `cap` what fits.
#[repr(C)]
pub struct RawText {
    pub at: *mut c_char,
    pub cap: usize,
    pub len: usize,
}

/// A buffer that the shim may write into as long as it lives.
pub struct Text {
    bytes: Box<[u8; TEXT]>,
    raw: RawText,
}

impl Default for Text {
    fn default() -> Self {
        Text::new()
    }
}

impl Text {
    /// An empty one.
    pub fn new() -> Self {
        let mut bytes = Box::new([0; TEXT]);
        let raw = RawText { at: bytes.as_mut_ptr().cast(), cap: TEXT, len: 0 };
        Self { bytes, raw }
    }

    /// What C is given.
    pub fn raw(&mut self) -> *mut RawText {
        &raw mut self.raw
    }

    /// What was written; broken characters are replaced.
    pub fn into_string(self) -> String {
        let len = self.raw.len.min(TEXT - 1);
        String::from_utf8_lossy(&self.bytes[..len]).into_owned()
    }
}

/// Makes a call and turns a negative answer into its text, without the source lines that the library puts before it.
pub fn text(call: impl FnOnce(*mut RawText) -> c_int) -> Result<c_int, String> {
    let mut err = Text::new();
    match call(err.raw()) {
        answer if answer < 0 => Err(plain(&err.into_string())),
        answer => Ok(answer),
    }
}

fn plain(text: &str) -> String {
    let noise = |line: &str| {
        line.ends_with(':') && (line.starts_with("Exception from ") || line.contains("' failed at "))
    };
    let lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !noise(line)).collect();
    if lines.is_empty() { text.trim().to_owned() } else { lines.join("; ") }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "writes as C does")]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_and_broken_characters_replaced() {
        let words = "é".repeat(TEXT);
        let cut = text(|err| {
            // SAFETY: as the shim writes: at most `cap - 1` bytes, then the whole length.
            unsafe {
                (*err).at.cast::<u8>().copy_from_nonoverlapping(words.as_ptr(), (*err).cap - 1);
                (*err).len = words.len();
            }
            -1
        });
        let cut = cut.unwrap_err();
        assert!(cut.starts_with("éé") && cut.ends_with('\u{fffd}'), "{}", &cut[cut.len() - 8..]);
    }

    #[test]
    fn source_lines_are_left_out() {
        let said = "Exception from src/a.cpp:1:\nCheck 'x' failed at src/b.cpp:2:\nno such property\n";
        assert_eq!(plain(said), "no such property");
        assert_eq!(plain("Exception from src/a.cpp:1:\nthe first\n\nthe second\n"), "the first; the second");
        assert_eq!(plain("Exception from src/a.cpp:1:\n"), "Exception from src/a.cpp:1:");
    }
}
