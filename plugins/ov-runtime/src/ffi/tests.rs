//! The layout of what crosses to C, and loaders that fail.

use super::*;
use std::mem::{offset_of, size_of};

/// Opens anything and has no symbols.
struct Empty;

// SAFETY: there are no symbols.
unsafe impl Open for Empty {
    fn open(&self, path: &Path, _global: bool) -> Result<Symbols, String> {
        if path.ends_with("bad.so") { Err("no such file".into()) } else { Ok(Box::new(|_| None)) }
    }
}

fn load(core: &str) -> String {
    let shim = locate::Shim { path: PathBuf::from("shim.so"), global: false };
    let Err(error) = Shim::load(&Empty, Path::new(core), &shim) else { panic!("loaded") };
    error.to_string()
}

#[test]
fn a_library_that_does_not_open_is_named() {
    assert_eq!(load("/some/bad.so"), "open /some/bad.so: no such file");
}

#[test]
fn a_shim_without_functions_is_refused() {
    assert_eq!(load("good.so"), "the shim has no ovr_abi; build it anew with cargo xtask");
}

#[test]
fn structs_have_the_layout_of_shim_h() {
    assert_eq!((size_of::<Facts>(), offset_of!(Facts, cut)), (40, 32));
    assert_eq!((size_of::<RawProperty>(), offset_of!(RawProperty, value)), (16, 8));
    assert_eq!(
        (size_of::<RawBatch>(), offset_of!(RawBatch, past), offset_of!(RawBatch, longest)),
        (96, 24, 88)
    );
    assert_eq!((size_of::<RawLogits>(), offset_of!(RawLogits, columns)), (24, 16));
}
