//! The manifest: a JSON object in the ELF section [`SECTION`], readable without running a line of the plugin.
//!
//! `{"manifest":1,"id","version","abi":[major,minor],"tables":{name:hash},"about":{...}}`, where `about` is the author's
//! part: `engines` (array of `{name, description}`), `description`, `license`, `requires` and `uses` (host service ids),
//! `options` (object: name → `{type, default, enum, minimum, maximum, description, secret, restart}`, a subset of JSON
//! Schema), `env` (variables the host must set before its first thread).

use crate::abi::entry::{ABI_MAJOR, ABI_MINOR};
use crate::lock::HASHES_JSON;

/// Name of the ELF section.
pub const SECTION: &str = ".cascadia.manifest";
/// Value of the key `manifest`.
pub const FORMAT: u32 = 1;

/// The parts of a manifest in order; [`len`] and [`join`] put them together at compile time.
#[doc(hidden)]
pub const fn parts<'a>(id: &'a str, version: &'a str, about: &'a str) -> [&'a [u8]; 9] {
    const { assert!(FORMAT == 1 && ABI_MAJOR == 1 && ABI_MINOR == 0, "the literals below say so") };
    [
        b"{\"manifest\":1,\"id\":\"",
        id.as_bytes(),
        b"\",\"version\":\"",
        version.as_bytes(),
        b"\",\"abi\":[1,0],\"tables\":{",
        &HASHES_JSON,
        b"},\"about\":",
        about.as_bytes(),
        b"}",
    ]
}

/// Length of the joined parts in bytes.
#[doc(hidden)]
pub const fn len(parts: &[&[u8]]) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < parts.len() {
        n += parts[i].len();
        i += 1;
    }
    n
}

/// The joined parts.
#[doc(hidden)]
pub const fn join<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut out = [0_u8; N];
    let (mut at, mut i) = (0, 0);
    while i < parts.len() {
        let mut k = 0;
        while k < parts[i].len() {
            out[at] = parts[i][k];
            at += 1;
            k += 1;
        }
        i += 1;
    }
    out
}
