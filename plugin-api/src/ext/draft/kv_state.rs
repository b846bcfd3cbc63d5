//! `cascadia.kv-state/1`: the state of one running sequence, to go on with it on another engine without computing it
//! anew (disaggregated prefill, migration, a drain).
//!
//! The bytes are the engine's own; what they are is told beside them in a descriptor, a JSON object. Its keys: `layout`
//! (name and revision of the form), `dtype` (of the stored values), `model` (a digest of the weights that made them),
//! `tokens` (number of positions), `bytes` (their whole length), `digest` (of the bytes), and what else the layout needs.
//! An engine that cannot take a state refuses it with the name of the key that does not fit.

use crate::abi::prim::{ErrOut, Str, StrOut};
use crate::abi::task::Task;
use core::ffi::c_void;

table! {
    /// Where a saved state goes.
    KvStateOut as "cascadia_kv_state_out" {
        /// The receiver's context.
        ctx: *mut c_void,
        /// Takes the descriptor, before the first chunk. 1 = give up.
        describe: unsafe extern "C" fn(ctx: *mut c_void, descriptor_json: Str) -> u32,
        /// Takes the next bytes, in order and without a hole. 1 = give up.
        chunk: unsafe extern "C" fn(ctx: *mut c_void, bytes: Str) -> u32,
    }
}

table! {
    /// Where a state to be restored comes from.
    KvStateIn as "cascadia_kv_state_in" {
        /// The giver's context.
        ctx: *mut c_void,
        /// The descriptor, for the call.
        descriptor_json: Str,
        /// Puts up to `most` bytes from `offset` on into `out`; none = the end. A code other than 0: they are lost, and
        /// the restore fails with that code.
        read: unsafe extern "C" fn(ctx: *mut c_void, offset: u64, most: u64, out: StrOut) -> u32,
    }
}

table! {
    /// `cascadia.kv-state/1`.
    KvStateV1 as "cascadia_kv_state_v1" {
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[control]` Gives the state of a running task, as it is between two steps. The task goes on; the host cancels
        /// it when the state has arrived. A task that is unknown, over or not begun is refused with
        /// [`crate::abi::code::INVALID_CONFIG`].
        save: unsafe extern "C" fn(engine: *mut c_void, task: u64, out: KvStateOut, err: ErrOut) -> u32,
        /// `[control]` Takes a task as `submit` does, with the state of its tokens: [`Task::tokens`] are the prompt and
        /// what was generated, [`Task::generated_from`] says where that begins, and limits count from there. After OK the
        /// generation goes on with the next token, and exactly one finish follows. A state that does not fit is refused
        /// with [`crate::abi::code::INVALID_CONFIG`], the key of the descriptor named in the message and in the details
        /// as `{"key":...}`; then nothing is kept.
        restore: unsafe extern "C" fn(engine: *mut c_void, task: *const Task, state: KvStateIn, err: ErrOut) -> u32,
    }
}
