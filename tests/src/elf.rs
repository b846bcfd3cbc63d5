//! Spoils copies of a plugin's library, each in one way.

use std::ops::Range;

/// The bytes with every `from` replaced by `to`, which is as long: nothing moves.
///
/// # Panics
/// When `from` is not there, or the lengths differ.
#[track_caller]
pub fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len(), "{from:?} and {to:?}");
    let mut out = bytes.to_vec();
    let mut found = 0;
    let mut at = 0;
    while let Some(place) = find(&out, from.as_bytes(), at) {
        out[place.clone()].copy_from_slice(to.as_bytes());
        at = place.end;
        found += 1;
    }
    assert!(found > 0, "{from:?} is not in the library");
    out
}

/// The bytes with another value in the ELF header's `machine`.
pub fn of_machine(bytes: &[u8], machine: u16) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[18..20].copy_from_slice(&machine.to_le_bytes());
    out
}

/// The bytes with one digit changed in the first table's hash of the manifest.
///
/// # Panics
/// When there is no such hash.
#[track_caller]
pub fn with_other_draft(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let tables = find(&out, b"\"tables\":{\"", 0).expect("PANIC: a manifest has tables");
    let hash = find(&out, b"\":\"", tables.end).expect("PANIC: a table has a hash");
    out[hash.end] = if out[hash.end] == b'0' { b'1' } else { b'0' };
    out
}

fn find(bytes: &[u8], what: &[u8], from: usize) -> Option<Range<usize>> {
    let at = bytes[from..].windows(what.len()).position(|w| w == what)? + from;
    Some(at..at + what.len())
}
