//! `cascadia.kv-state/1` for authors.
#![expect(unsafe_code, reason = "calls the host's callbacks")]

use core::ffi::c_void;

use super::with_extension;
use crate::abi::code;
use crate::abi::prim::{ErrOut, Str, StrOut};
use crate::abi::task;
use crate::ext::draft::kv_state as wire;
use crate::sdk::{Error, Result, Task};

/// An engine whose sequences can move. Both calls come between two steps.
pub trait KvState {
    /// Gives the state of a running task; the task goes on.
    fn save(&self, task: u64, out: &mut KvWriter) -> Result<()>;

    /// Takes a task with the state of its tokens, and goes on with the next one.
    fn restore(&self, task: Task, state: &KvReader<'_>) -> Result<()>;
}

/// Where a state goes: the descriptor first, then its bytes in order.
pub struct KvWriter(wire::KvStateOut);

impl KvWriter {
    /// Gives the descriptor, a JSON object.
    pub fn describe(&mut self, descriptor: &str) -> Result<()> {
        // SAFETY: the host lends the callback for the call that this value was passed to.
        given(unsafe { (self.0.describe)(self.0.ctx, Str::new(descriptor.as_bytes())) })
    }

    /// Gives the next bytes.
    pub fn chunk(&mut self, bytes: &[u8]) -> Result<()> {
        // SAFETY: as above.
        given(unsafe { (self.0.chunk)(self.0.ctx, Str::new(bytes)) })
    }
}

fn given(answer: u32) -> Result<()> {
    match answer {
        0 => Ok(()),
        _ => Err(Error::new(code::CANCELLED, "the state is not wanted any more")),
    }
}

/// Where a state comes from.
pub struct KvReader<'a> {
    /// The descriptor, a JSON object.
    pub descriptor: &'a str,
    inner: wire::KvStateIn,
}

impl KvReader<'_> {
    /// Up to `most` bytes from `offset` on; none = the end.
    pub fn read(&self, offset: u64, most: u64) -> Result<Vec<u8>> {
        unsafe extern "C" fn set(ctx: *mut c_void, text: Str) {
            // SAFETY: `ctx` is the vector below, alive for the call; the bytes are lent for it.
            unsafe { *ctx.cast::<Vec<u8>>() = text.bytes().to_vec() }
        }
        let mut bytes: Vec<u8> = Vec::new();
        let out = StrOut { ctx: std::ptr::from_mut(&mut bytes).cast(), set };
        // SAFETY: the host lends the callback for the call that this value was passed to.
        match unsafe { (self.inner.read)(self.inner.ctx, offset, most, out) } {
            code::OK => Ok(bytes),
            other => Err(Error::new(other, format!("the state's bytes from {offset} on are lost"))),
        }
    }
}

impl Error {
    /// A state's descriptor has a value that does not fit: `have` is what it says, `want` what this engine takes.
    pub fn kv_state(key: &str, have: &str, want: &str) -> Error {
        Error {
            code: code::INVALID_CONFIG,
            message: format!("the kv state's {key} is {have}, this engine takes {want}"),
            details: format!("{{\"key\":{}}}", crate::sdk::engine::quote(key)),
        }
    }
}

pub(super) static TABLE: wire::KvStateV1 =
    wire::KvStateV1 { struct_size: size_of::<wire::KvStateV1>() as u32, flags: 0, save, restore };

unsafe extern "C" fn save(engine: *mut c_void, task: u64, out: wire::KvStateOut, err: ErrOut) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_extension!(engine, Some(err), kv_state, "movable state", |state| {
            state.save(task, &mut KvWriter(out))
        })
    }
}

unsafe extern "C" fn restore(
    engine: *mut c_void,
    task: *const task::Task,
    state: wire::KvStateIn,
    err: ErrOut,
) -> u32 {
    // SAFETY: the host's promise: task and state are lent for the call.
    unsafe {
        with_extension!(engine, Some(err), kv_state, "movable state", |states| {
            let task = Task::sized(task)?;
            let descriptor = state.descriptor_json.text();
            states.restore(task, &KvReader { descriptor: &descriptor, inner: state })
        })
    }
}
