//! For tests: the C library's own loader in place of the host's.

#![allow(unsafe_code, reason = "three functions of the C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::open::{Open, Symbols};

/// Opens with `dlopen`.
pub struct System;

unsafe extern "C" {
    fn dlopen(path: *const c_char, mode: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

const NOW: c_int = 2;
const GLOBAL: c_int = 0x100;

// SAFETY: nothing is closed, and dlsym answers as the trait asks.
unsafe impl Open for System {
    fn open(&self, path: &Path, global: bool) -> Result<Symbols, String> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: a C string; the libraries' constructors are trusted.
        let library = unsafe { dlopen(path.as_ptr(), if global { NOW | GLOBAL } else { NOW }) };
        if library.is_null() {
            // SAFETY: set by the failed dlopen of this thread.
            return Err(unsafe { CStr::from_ptr(dlerror()) }.to_string_lossy().into_owned());
        }
        Ok(Box::new(move |name| {
            // SAFETY: an open library and a C string.
            let at = unsafe { dlsym(library, name.as_ptr()) };
            (!at.is_null()).then_some(at)
        }))
    }
}
