//! A plugin's shim as Rust finds it: its functions by their names.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::locate;
use crate::open::{Open, Symbols};

/// Why a shim is not usable.
#[derive(Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The loader refused a file.
    Open { path: PathBuf, reason: String },
    /// The shim lacks a function.
    Symbol { name: &'static str },
    /// The shim is of another revision.
    Revision { path: PathBuf, found: u32, needed: u32 },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { path, reason } => write!(f, "open {}: {reason}", path.display()),
            Self::Symbol { name } => write!(f, "the shim has no {name}; build it anew with cargo xtask"),
            Self::Revision { path, found, needed } => write!(
                f,
                "{} is revision {found}, the plugin needs {needed}; build both anew with cargo xtask",
                path.display()
            ),
        }
    }
}

impl std::error::Error for LoadError {}

/// Opens what a shim is linked to by name, in this order, and then the shim itself.
///
/// # Errors
/// What the loader says, with the file.
pub fn open(open: &dyn Open, linked: &[&Path], shim: &locate::Shim) -> Result<Symbols, LoadError> {
    let library = |path: &Path, global| {
        open.open(path, global).map_err(|reason| LoadError::Open { path: path.to_path_buf(), reason })
    };
    for path in linked {
        // Its own symbols are not asked for.
        drop(library(path, shim.global)?);
    }
    library(&shim.path, false)
}

/// A struct of C functions, each found by its name: `resolve(&Symbols) -> Result<Self, LoadError>`.
///
/// To be used where `unsafe` is allowed: that each function has the type that the header gives it is the user's promise,
/// and so is that the revision is compared before any other function is called.
#[macro_export]
macro_rules! functions {
    ($table:ident { $($name:ident($($arg:ty),*) $(-> $out:ty)?;)* }) => {
        struct $table { $($name: unsafe extern "C" fn($($arg),*) $(-> $out)?,)* }

        impl $table {
            fn resolve(symbols: &$crate::open::Symbols) -> Result<Self, $crate::shim::LoadError> {
                Ok(Self { $($name: {
                    const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("PANIC: an identifier has no zero byte"),
                    };
                    let missing = $crate::shim::LoadError::Symbol { name: stringify!($name) };
                    let at = symbols(NAME).ok_or(missing)?;
                    // SAFETY: `Open` promises the address of that name, and the header gives it this type.
                    unsafe {
                        std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($arg),*) $(-> $out)?>(at)
                    }
                },)* })
            }
        }
    };
}

#[cfg(test)]
#[allow(unsafe_code, reason = "opens and finds as C does")]
mod tests {
    use super::*;

    /// Opens all but one, and has no symbols.
    struct Empty;

    // SAFETY: there are no symbols.
    unsafe impl Open for Empty {
        fn open(&self, path: &Path, _global: bool) -> Result<Symbols, String> {
            if path.ends_with("bad.so") { Err("no such file".into()) } else { Ok(Box::new(|_| None)) }
        }
    }

    crate::functions! {
        Functions {
            one_abi() -> u32;
        }
    }

    fn load(linked: &str) -> String {
        let shim = locate::Shim { path: PathBuf::from("shim.so"), global: false };
        let found = open(&Empty, &[Path::new("core.so"), Path::new(linked)], &shim);
        let Err(error) = found.and_then(|symbols| Functions::resolve(&symbols)) else { panic!("loaded") };
        error.to_string()
    }

    #[test]
    fn a_library_that_does_not_open_is_named() {
        assert_eq!(load("/some/bad.so"), "open /some/bad.so: no such file");
    }

    #[test]
    fn a_shim_without_functions_is_refused() {
        assert_eq!(load("good.so"), "the shim has no one_abi; build it anew with cargo xtask");
    }

    #[test]
    fn functions_are_found_by_their_names() {
        extern "C" fn one() -> u32 {
            1
        }
        let symbols: Symbols = Box::new(|name| {
            (name == c"one_abi").then_some((one as extern "C" fn() -> u32) as *mut std::ffi::c_void)
        });
        let found = Functions::resolve(&symbols).unwrap();
        // SAFETY: it is `one`.
        assert_eq!(unsafe { (found.one_abi)() }, 1);
    }
}
