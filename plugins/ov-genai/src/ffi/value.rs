//! Named values on their way to the library.

use std::ffi::{CString, c_char};
use std::ptr::null;

#[repr(C)]
pub(super) struct RawValue {
    pub(super) key: *const c_char,
    pub(super) kind: u32,
    pub(super) real: f32,
    pub(super) integer: i64,
    pub(super) text: *const c_char,
    pub(super) ids: *const i64,
    pub(super) count: usize,
}

/// A value whose type is part of its meaning: the library refuses an `i64` where it reads a `size_t`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    Int(i64),
    Size(usize),
    Float(f32),
    Text(CString),
    Ids(Vec<i64>),
    /// What an answer must keep to; the key says of which kind it is.
    Grammar(CString),
}

/// A named value.
pub(crate) type Entry = (CString, Value);

/// The values as C sees them; borrows `entries`, so it must not outlive them.
pub(super) fn raw_values(entries: &[Entry]) -> Vec<RawValue> {
    let raw = |(key, value): &Entry| {
        let mut raw = RawValue {
            key: key.as_ptr(),
            kind: 0,
            real: 0.0,
            integer: 0,
            text: null(),
            ids: null(),
            count: 0,
        };
        match value {
            Value::Bool(on) => raw.integer = i64::from(*on),
            Value::Int(number) => (raw.kind, raw.integer) = (1, *number),
            // The shim turns the bits back: the largest size_t passes as -1.
            Value::Size(size) => (raw.kind, raw.integer) = (2, (*size as u64).cast_signed()),
            Value::Float(real) => (raw.kind, raw.real) = (3, *real),
            Value::Text(text) => (raw.kind, raw.text) = (4, text.as_ptr()),
            Value::Ids(ids) => (raw.kind, raw.ids, raw.count) = (5, ids.as_ptr(), ids.len()),
            Value::Grammar(text) => (raw.kind, raw.text) = (6, text.as_ptr()),
        }
        raw
    };
    entries.iter().map(raw).collect()
}
