//! A model in one piece, through the shim: one call for a whole generation, its tokens through a callback.
//!
//! Invariant: a [`Stateful`] owns its C++ object and every call on it is exclusive.
#![allow(unsafe_code, reason = "calls the shim and is called by it")]

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use super::value::{Entry, raw_values};
use super::{Shim, opened};
use cascadia_ov_base::text::text;

/// Takes the tokens that came; answers whether the generation goes on.
pub(crate) type Take<'a> = dyn FnMut(&[i64]) -> bool + Send + 'a;

/// The open model.
pub(crate) struct Stateful {
    shim: Arc<Shim>,
    at: NonNull<c_void>,
}

// SAFETY: the library ties a pipeline to no thread; `&mut self` and ownership make its calls exclusive.
unsafe impl Send for Stateful {}

impl Stateful {
    pub(crate) fn open(
        shim: &Arc<Shim>,
        path: &CStr,
        device: &CStr,
        properties: &[Entry],
        allow_untested: bool,
    ) -> Result<Self, String> {
        // SAFETY: it is one that opens.
        let at = unsafe { opened(shim.call.cgn_stateful_open, path, device, properties, allow_untested) }?;
        Ok(Self { shim: Arc::clone(shim), at })
    }

    /// A whole generation. `take` is called on a thread of the library.
    pub(crate) fn run(
        &mut self,
        prompt: &[i64],
        settings: &[Entry],
        mut take: &mut Take<'_>,
    ) -> Result<(), String> {
        let settings = raw_values(settings);
        // SAFETY: prompt and settings live through the call; so does `take`, which the shim calls once at a time and
        // never after it has returned.
        text(|err| unsafe {
            (self.shim.call.cgn_stateful_run)(
                self.at.as_ptr(),
                prompt.as_ptr(),
                prompt.len(),
                settings.as_ptr(),
                settings.len(),
                forward,
                (&raw mut take).cast(),
                err,
            )
        })
        .map(drop)
    }
}

impl Drop for Stateful {
    fn drop(&mut self) {
        // SAFETY: the object is ours and not used again.
        unsafe { (self.shim.call.cgn_stateful_close)(self.at.as_ptr()) }
    }
}

/// The shape of [`forward`].
pub(super) type Forward = unsafe extern "C" fn(*mut c_void, *const i64, usize) -> c_int;

unsafe extern "C" fn forward(ctx: *mut c_void, ids: *const i64, count: usize) -> c_int {
    // SAFETY: `run` lends a `&mut Take` as the context, and nobody else uses it meanwhile.
    let take = unsafe { &mut *ctx.cast::<&mut Take<'_>>() };
    // SAFETY: the shim lends `count` ids for this call; where there are none it may have no address for them.
    let ids = if count == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(ids, count) } };
    // A panic must not reach the library; the generation ends and the one who waits for it sees that.
    let goes_on = catch_unwind(AssertUnwindSafe(|| take(ids))).unwrap_or(false);
    c_int::from(!goes_on)
}
