//! A network that embeds, through the shim.
//!
//! Invariant: an [`Embedder`] owns its C++ object and every call on it is exclusive.
#![allow(unsafe_code, reason = "calls the shim")]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use super::Shim;
use super::value::{Entry, raw_values};
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
        let properties = raw_values(properties);
        let mut out = std::ptr::null_mut();
        // SAFETY: strings, values and the place for the result live through the call; the shim copies them.
        text(|err| unsafe {
            (shim.call.cgn_embedder_open)(
                folder.as_ptr(),
                device.as_ptr(),
                properties.as_ptr(),
                properties.len(),
                c_int::from(allow_untested),
                &raw mut out,
                err,
            )
        })?;
        let at = NonNull::new(out).ok_or("the shim opened nothing")?;
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
