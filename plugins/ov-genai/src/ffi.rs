//! Speaks to `shim/shim.h`, line by line, and makes it safe. With the files below `ffi/` the only one of this plugin with
//! `unsafe`: here the libraries and the table of functions, there what is called through it.
//!
//! Invariants: a [`Shim`] has the revision of `shim.h` that this file repeats; libraries are never closed, so its
//! functions stay valid.
//! Knows nothing of profiles, sampling or paths: `pipeline.rs` says what is set, `locate.rs` what is loaded.
#![allow(unsafe_code, reason = "the one door to C++")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;

use cascadia_ov_base::locate;
pub(crate) use cascadia_ov_base::open::{Host, Open, Symbols};
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

macro_rules! functions {
    ($($name:ident($($arg:ty),*) $(-> $out:ty)?;)*) => {
        #[cfg_attr(not(test), expect(dead_code, reason = "the layout's own report and `busy` are for the tests"))]
        struct Functions { $($name: unsafe extern "C" fn($($arg),*) $(-> $out)?,)* }

        impl Functions {
            fn resolve(symbols: &Symbols) -> Result<Self, LoadError> {
                Ok(Self { $($name: {
                    const NAME: &CStr = match CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("PANIC: an identifier has no zero byte"),
                    };
                    let at = symbols(NAME).ok_or(LoadError::Symbol { name: stringify!($name) })?;
                    // SAFETY: `Open` promises the address of that name, and shim.h gives it this type; the
                    // revision is compared before any other function is called.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $out)?>(at) }
                },)* })
            }
        }
    };
}

functions! {
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
        let library = |path: &Path, global| {
            open.open(path, global).map_err(|reason| LoadError::Open { path: path.to_path_buf(), reason })
        };
        // Opened for what is linked to them by name; their own symbols are not asked for.
        drop(library(&runtime.core, shim.global)?);
        drop(library(&runtime.genai, shim.global)?);
        let call = Functions::resolve(&library(&shim.path, false)?)?;
        // SAFETY: takes nothing, and has had this type in every revision.
        let found = unsafe { (call.cgn_abi)() };
        if found != ABI {
            return Err(LoadError::Revision { path: shim.path.clone(), found });
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

/// Why the libraries cannot be used.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The loader refused a file.
    Open { path: std::path::PathBuf, reason: String },
    /// The shim lacks a function.
    Symbol { name: &'static str },
    /// The shim is of another revision.
    Revision { path: std::path::PathBuf, found: u32 },
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open { path, reason } => write!(f, "open {}: {reason}", path.display()),
            Self::Symbol { name } => write!(f, "the shim has no {name}; build it anew with cargo xtask"),
            Self::Revision { path, found } => write!(
                f,
                "{} is revision {found}, the plugin needs {ABI}; build both anew with cargo xtask",
                path.display()
            ),
        }
    }
}

impl std::error::Error for LoadError {}
