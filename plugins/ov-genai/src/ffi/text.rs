//! The other side's words: a buffer that the shim writes into.
use std::ffi::{c_char, c_int};

/// Longer error texts are cut; OpenVINO's own are a few hundred bytes.
pub(super) const TEXT: usize = 4096;

#[repr(C)]
pub(super) struct RawText {
    pub(super) at: *mut c_char,
    pub(super) cap: usize,
    pub(super) len: usize,
}

/// A buffer for the other side's words.
pub(super) struct Text {
    bytes: Box<[u8; TEXT]>,
    raw: RawText,
}

impl Text {
    pub(super) fn new() -> Self {
        let mut bytes = Box::new([0; TEXT]);
        let raw = RawText { at: bytes.as_mut_ptr().cast(), cap: TEXT, len: 0 };
        Self { bytes, raw }
    }

    pub(super) fn raw(&mut self) -> *mut RawText {
        &raw mut self.raw
    }

    pub(super) fn into_string(self) -> String {
        let len = self.raw.len.min(TEXT - 1);
        String::from_utf8_lossy(&self.bytes[..len]).into_owned()
    }
}

/// Makes a call and turns a negative answer into its text.
pub(super) fn text(call: impl FnOnce(*mut RawText) -> c_int) -> Result<c_int, String> {
    let mut err = Text::new();
    match call(err.raw()) {
        answer if answer < 0 => Err(err.into_string()),
        answer => Ok(answer),
    }
}
