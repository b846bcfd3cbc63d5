//! Speaks to `shim/shim.h`, line by line, and makes it safe. With the files below `ffi/` the only one of this plugin with
//! `unsafe`: here the libraries and the table of functions, there what is called through it.
//!
//! Invariants: a [`Shim`] has the revision of `shim.h` that this file repeats; libraries are never closed, so its
//! functions stay valid.
//! Knows nothing of profiles, sampling or paths: `pipeline.rs` says what is set, `locate.rs` what is loaded.
#![allow(unsafe_code, reason = "the one door to C++")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use cascadia_ov_base::locate;
use cascadia_ov_base::open::Open;
use cascadia_ov_base::shim::LoadError;
use cascadia_ov_base::text::{RawText, Text, text};

use paged::{Metrics, Progress, Scheduler};
use value::RawValue;

pub(crate) mod devices;
pub(crate) mod embedder;
pub(crate) mod paged;
pub(crate) mod stateful;
#[cfg(test)]
mod tests;
pub(crate) mod value;
pub(crate) mod words;

const ABI: u32 = 3;

cascadia_ov_base::functions! {
    Functions {
        cgn_abi() -> u32;
        cgn_version(*mut RawText) -> c_int;
        cgn_check(c_int, *mut RawText) -> c_int;
        cgn_sched_selftest(*mut RawText, *mut RawText) -> c_int;
        cgn_open(*const c_char, *const c_char, *const Scheduler, *const RawValue, usize, *const c_char, *const c_char,
            c_int, *mut *mut c_void, *mut RawText) -> c_int;
        cgn_has_vocabulary(*mut c_void, *mut RawText) -> c_int;
        cgn_close(*mut c_void);
        cgn_add(*mut c_void, u64, *const i64, usize, *const RawValue, usize, *mut *mut c_void, *mut RawText) -> c_int;
        cgn_step(*mut c_void, *mut RawText) -> c_int;
        cgn_busy(*mut c_void, *mut RawText) -> c_int;
        cgn_read_metrics(*mut c_void, *mut Metrics, *mut RawText) -> c_int;
        cgn_poll(*mut c_void, *mut i64, *mut f32, usize, *mut Progress, *mut RawText) -> c_int;
        cgn_cancel(*mut c_void, *mut RawText) -> c_int;
        cgn_drop(*mut c_void);
        cgn_stateful_open(*const c_char, *const c_char, *const RawValue, usize, c_int, *mut *mut c_void, *mut RawText)
            -> c_int;
        cgn_stateful_run(*mut c_void, *const i64, usize, *const RawValue, usize, stateful::Forward, *mut c_void,
            *mut RawText) -> c_int;
        cgn_stateful_close(*mut c_void);
        cgn_embedder_open(*const c_char, *const c_char, *const RawValue, usize, c_int, *mut *mut c_void, *mut RawText)
            -> c_int;
        cgn_embedder_dimensions(*const c_void) -> usize;
        cgn_embedder_run(*mut c_void, *const i64, usize, u32, *mut f32, *mut RawText) -> c_int;
        cgn_embedder_close(*mut c_void);
        cgn_words_open(*const c_char, *const c_char, *mut *mut c_void, *mut RawText) -> c_int;
        cgn_words_close(*mut c_void);
        cgn_words_vocabulary(*const c_void) -> usize;
        cgn_words_template(*const c_void, *mut RawText);
        cgn_words_special(*const c_void, *mut i64, usize) -> usize;
        cgn_words_encode(*mut c_void, *const c_char, usize, *mut i64, usize, *mut usize, *mut RawText) -> c_int;
        cgn_words_decode(*mut c_void, *const i64, usize, usize, *mut c_char, usize, *mut usize, *mut RawText) -> c_int;
    }
}

/// The loaded libraries.
pub(crate) struct Shim {
    call: Functions,
}

impl Shim {
    /// Opens the core, GenAI and the shim, in this order: each is linked to the ones before by name alone.
    ///
    /// # Errors
    /// What the loader says, with the file; or that the shim is of another revision.
    pub(crate) fn load(
        open: &dyn Open,
        runtime: &locate::Runtime,
        shim: &locate::Shim,
    ) -> Result<Arc<Self>, LoadError> {
        let symbols = cascadia_ov_base::shim::open(open, &[&runtime.core, &runtime.genai], shim)?;
        let call = Functions::resolve(&symbols)?;
        // SAFETY: takes nothing, and has had this type in every revision.
        let found = unsafe { (call.cgn_abi)() };
        if found != ABI {
            return Err(LoadError::Revision { path: shim.path.clone(), found, needed: ABI });
        }
        Ok(Arc::new(Self { call }))
    }

    /// The core's version as year * 100 + minor, and its build text.
    pub(crate) fn version(&self) -> (i32, String) {
        let mut build = Text::new();
        // SAFETY: the buffer outlives the call.
        let version = unsafe { (self.call.cgn_version)(build.raw()) };
        (version, build.into_string())
    }

    /// Whether this version is known and lays out its structs as the shim expects.
    pub(crate) fn check(&self, allow_untested: bool) -> Result<(), String> {
        // SAFETY: the buffer outlives the call.
        text(|err| unsafe { (self.call.cgn_check)(c_int::from(allow_untested), err) }).map(drop)
    }

    /// How the library reads a scheduler configuration that the shim filled.
    #[cfg(test)]
    pub(crate) fn scheduler_dump(&self) -> Result<String, String> {
        let mut dump = Text::new();
        let at = dump.raw();
        // SAFETY: both buffers outlive the call.
        text(|err| unsafe { (self.call.cgn_sched_selftest)(at, err) })?;
        Ok(dump.into_string())
    }
}

/// Opens a model in one piece of whatever kind.
type Opens = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const RawValue,
    usize,
    c_int,
    *mut *mut c_void,
    *mut RawText,
) -> c_int;

/// What one of the shim's functions opened.
///
/// # Safety
/// `open` must be one of those that open.
unsafe fn opened(
    open: Opens,
    path: &CStr,
    device: &CStr,
    properties: &[value::Entry],
    allow_untested: bool,
) -> Result<NonNull<c_void>, String> {
    let properties = value::raw_values(properties);
    let mut out = std::ptr::null_mut();
    // SAFETY: strings, values and the place for the result live through the call; the shim copies them.
    text(|err| unsafe {
        open(
            path.as_ptr(),
            device.as_ptr(),
            properties.as_ptr(),
            properties.len(),
            c_int::from(allow_untested),
            &raw mut out,
            err,
        )
    })?;
    NonNull::new(out).ok_or_else(|| "the shim opened nothing".to_owned())
}
