//! A tokenizer of two OpenVINO networks, through the shim.
//!
//! Invariant: a [`Words`] owns its C++ object, which locks itself: calls may come from any thread.
#![allow(unsafe_code, reason = "calls the shim")]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use super::Shim;
use cascadia_ov_base::text::{RawText, text};

/// The open networks.
pub(crate) struct Words {
    shim: Arc<Shim>,
    at: NonNull<c_void>,
}

// SAFETY: the shim ties the object to no thread.
unsafe impl Send for Words {}
// SAFETY: encoding and decoding lock; the rest reads what never changes.
unsafe impl Sync for Words {}

impl Words {
    /// Reads and compiles both networks of `folder`; `extension` is the library with their operations.
    pub(crate) fn open(shim: &Arc<Shim>, folder: &CStr, extension: &CStr) -> Result<Self, String> {
        let mut out = std::ptr::null_mut();
        // SAFETY: both strings and the place for the result live through the call.
        text(|err| unsafe {
            (shim.call.cgn_words_open)(folder.as_ptr(), extension.as_ptr(), &raw mut out, err)
        })?;
        let at = NonNull::new(out).ok_or("the shim opened no tokenizer")?;
        Ok(Self { shim: Arc::clone(shim), at })
    }

    /// Number of ids.
    pub(crate) fn vocabulary(&self) -> usize {
        // SAFETY: the object lives as long as `self`.
        unsafe { (self.shim.call.cgn_words_vocabulary)(self.at.as_ptr()) }
    }

    /// The template of chats, empty if the networks have none.
    pub(crate) fn chat_template(&self) -> String {
        let mut bytes = Vec::<u8>::new();
        loop {
            let mut raw = RawText { at: bytes.as_mut_ptr().cast(), cap: bytes.len(), len: 0 };
            // SAFETY: the buffer has the length that is told; the object lives as long as `self`.
            unsafe { (self.shim.call.cgn_words_template)(self.at.as_ptr(), &raw mut raw) };
            if raw.len < bytes.len() {
                bytes.truncate(raw.len);
                return String::from_utf8_lossy(&bytes).into_owned();
            }
            // One more for the zero that ends a C string.
            bytes = vec![0_u8; raw.len + 1];
        }
    }

    /// Ids of the special tokens.
    pub(crate) fn special(&self) -> Vec<i64> {
        let ask = |ids: &mut [i64]| {
            // SAFETY: the slice has the length that is told; the object lives as long as `self`.
            unsafe { (self.shim.call.cgn_words_special)(self.at.as_ptr(), ids.as_mut_ptr(), ids.len()) }
        };
        let mut ids = vec![0; ask(&mut [])];
        ask(&mut ids);
        ids
    }

    /// Ids of a text, with what the network puts in front and behind.
    pub(crate) fn encode(&self, words: &str) -> Result<Vec<i64>, String> {
        // A token has a byte at the least, as a rule; where normalising makes more, the second round has the room.
        let mut ids = vec![0; words.len() + 16];
        loop {
            let mut count = 0;
            // SAFETY: the text and the slice have the lengths that are told; the shim locks the object.
            text(|err| unsafe {
                (self.shim.call.cgn_words_encode)(
                    self.at.as_ptr(),
                    words.as_ptr().cast(),
                    words.len(),
                    ids.as_mut_ptr(),
                    ids.len(),
                    &raw mut count,
                    err,
                )
            })?;
            let fits = count <= ids.len();
            ids.resize(count, 0);
            if fits {
                return Ok(ids);
            }
        }
    }

    /// The bytes of each row of `width` ids; special tokens are their text.
    pub(crate) fn decode(&self, ids: &[i64], width: usize) -> Result<Vec<Vec<u8>>, String> {
        let rows = ids.len() / width.max(1);
        let (mut bytes, mut ends) = (vec![0_u8; ids.len() * 8 + 64], vec![0_usize; rows]);
        loop {
            // SAFETY: `ids` has `rows * width` elements, `ends` one for each row, `bytes` its length; the shim locks.
            text(|err| unsafe {
                (self.shim.call.cgn_words_decode)(
                    self.at.as_ptr(),
                    ids.as_ptr(),
                    rows,
                    width,
                    bytes.as_mut_ptr().cast(),
                    bytes.len(),
                    ends.as_mut_ptr(),
                    err,
                )
            })?;
            let all = ends.last().copied().unwrap_or(0);
            if all <= bytes.len() {
                break;
            }
            bytes.resize(all, 0);
        }
        let starts = std::iter::once(0).chain(ends.iter().copied());
        Ok(starts.zip(&ends).map(|(from, to)| bytes[from..*to].to_vec()).collect())
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the object is ours and not used again.
        unsafe { (self.shim.call.cgn_words_close)(self.at.as_ptr()) }
    }
}
