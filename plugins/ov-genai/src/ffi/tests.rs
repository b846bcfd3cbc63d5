//! The layout of what crosses to C, and loaders that fail.

use super::*;
use std::mem::{offset_of, size_of};
use std::path::PathBuf;

/// Opens anything and has no symbols.
struct Empty;

// SAFETY: there are no symbols.
unsafe impl Open for Empty {
    fn open(&self, path: &Path, _global: bool) -> Result<Symbols, String> {
        if path.ends_with("bad.so") { Err("no such file".into()) } else { Ok(Box::new(|_| None)) }
    }
}

fn load(genai: &str) -> String {
    let runtime = locate::Runtime { core: "core.so".into(), genai: genai.into(), build: 1 };
    let shim = locate::Shim { path: PathBuf::from("shim.so"), global: false };
    let Err(error) = Shim::load(&Empty, &runtime, &shim) else { panic!("loaded") };
    error.to_string()
}

#[test]
fn a_library_that_does_not_open_is_named() {
    assert_eq!(load("/some/bad.so"), "open /some/bad.so: no such file");
}

#[test]
fn a_shim_without_functions_is_refused() {
    assert_eq!(load("good.so"), "the shim has no cgn_abi; build it anew with cargo xtask");
}

#[test]
fn structs_have_the_layout_of_shim_h() {
    assert_eq!((size_of::<RawText>(), offset_of!(RawText, len)), (24, 16));
    assert_eq!(
        (size_of::<RawValue>(), offset_of!(RawValue, integer), offset_of!(RawValue, count)),
        (48, 16, 40)
    );
    assert_eq!((size_of::<Scheduler>(), offset_of!(Scheduler, dynamic_split_fuse)), (40, 32));
    assert_eq!((size_of::<Progress>(), offset_of!(Progress, status)), (24, 16));
    assert_eq!((size_of::<Metrics>(), offset_of!(Metrics, cache_bytes)), (40, 32));
}
