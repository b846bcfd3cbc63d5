//! Opening libraries: in a plugin through the host, in tests through the C library.
#![allow(unsafe_code, reason = "the promise of a loader is one that the compiler cannot check")]

use std::ffi::{CStr, c_void};
use std::path::Path;

/// Opens libraries; in the host it is the host, which locks its loader and refuses a second build of a name.
///
/// # Safety
/// A library stays open for the rest of the process, and its symbols are the addresses of those names in it.
pub unsafe trait Open {
    /// Binds all symbols at once; `global` offers them to libraries that are opened later.
    fn open(&self, path: &Path, global: bool) -> Result<Symbols, String>;
}

/// Looks a name up in an opened library.
pub type Symbols = Box<dyn Fn(&CStr) -> Option<*mut c_void>>;

/// Opens through the host, under its loader lock.
pub struct Host;

// SAFETY: the host never closes a library, and its dlopen service answers the address of the name.
unsafe impl Open for Host {
    fn open(&self, path: &Path, global: bool) -> Result<Symbols, String> {
        let library = cascadia_plugin_api::sdk::dlopen(path, global).map_err(|e| e.message)?;
        Ok(Box::new(move |name| library.symbol(name)))
    }
}
