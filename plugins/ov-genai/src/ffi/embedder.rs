//! A network that embeds, through the shim.
//!
//! Invariant: an [`Embedder`] owns its C++ object and every call on it is exclusive.
#![allow(unsafe_code, reason = "calls the shim")]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use super::value::Entry;
use super::{Shim, opened};
use cascadia_ov_base::text::text;

/// How the states of all tokens become one vector; `cgn_pooling`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Pooling {
    Mean = 1,
    First = 2,
    Last = 3,
}

/// The open network.
pub(crate) struct Embedder {
    shim: Arc<Shim>,
    at: NonNull<c_void>,
}

// SAFETY: the shim ties the object to no thread; `&mut self` and ownership make its calls exclusive.
unsafe impl Send for Embedder {}

impl Embedder {
    pub(crate) fn open(
        shim: &Arc<Shim>,
        folder: &CStr,
        device: &CStr,
        properties: &[Entry],
        allow_untested: bool,
    ) -> Result<Self, String> {
        // SAFETY: it is one that opens.
        let at = unsafe { opened(shim.call.cgn_embedder_open, folder, device, properties, allow_untested) }?;
        Ok(Self { shim: Arc::clone(shim), at })
    }

    /// Length of a vector.
    pub(crate) fn dimensions(&self) -> usize {
        // SAFETY: the object lives as long as `self`.
        unsafe { (self.shim.call.cgn_embedder_dimensions)(self.at.as_ptr()) }
    }

    /// The vector of one sequence.
    pub(crate) fn run(&mut self, ids: &[i64], pooling: Pooling) -> Result<Vec<f32>, String> {
        let mut vector = vec![0.0; self.dimensions()];
        // SAFETY: ids and vector live through the call, and the vector has as many places as there are dimensions.
        text(|err| unsafe {
            (self.shim.call.cgn_embedder_run)(
                self.at.as_ptr(),
                ids.as_ptr(),
                ids.len(),
                pooling as u32,
                vector.as_mut_ptr(),
                err,
            )
        })?;
        Ok(vector)
    }
}

impl Drop for Embedder {
    fn drop(&mut self) {
        // SAFETY: the object is ours and not used again.
        unsafe { (self.shim.call.cgn_embedder_close)(self.at.as_ptr()) }
    }
}
