//! `cascadia.adapters/1`: low-rank adapters (LoRA), loaded and unloaded while the engine runs. A task names the one it
//! wants in [`crate::abi::task::Task::adapter`].

use crate::abi::prim::{Array, ErrOut, Progress, Str};
use core::ffi::c_void;

table! {
    /// An adapter to load.
    AdapterSpec as "cascadia_adapter_spec" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// Name that tasks use.
        name: Str,
        /// File or folder.
        path: Str,
        /// Factor on what it adds; 0 reads as 1.
        scale: f32,
        /// No meaning yet; 0.
        reserved: u32,
    }
}

table! {
    /// A loaded adapter. An element of an array.
    AdapterInfo as "cascadia_adapter_info" {
        /// Name that tasks use.
        name: Str,
        /// Where it was loaded from.
        path: Str,
        /// Factor on what it adds.
        scale: f32,
        /// Its rank; 0 = not known.
        rank: u32,
        /// Tasks that use it at this moment.
        tasks: u32,
        /// No flag is defined; 0.
        flags: u32,
    }
}

table! {
    /// Where the list goes.
    AdaptersOut as "cascadia_adapters_out" {
        /// The receiver's context.
        ctx: *mut c_void,
        /// Takes an array of [`AdapterInfo`]; a second call replaces the first.
        set: unsafe extern "C" fn(ctx: *mut c_void, adapters: Array),
    }
}

table! {
    /// `cascadia.adapters/1`. `load` and `unload` may run beside step, submit and cancel: serving goes on.
    AdaptersV1 as "cascadia_adapters_v1" {
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[control]` Loads an adapter; when it returns, tasks may name it. A name that is loaded is refused with
        /// [`crate::abi::code::INVALID_CONFIG`], a file that is not there with [`crate::abi::code::MODEL_NOT_FOUND`], one
        /// that does not fit the model with [`crate::abi::code::SHARD_REJECTED`].
        load: unsafe extern "C" fn(engine: *mut c_void, adapter: *const AdapterSpec, progress: Progress, err: ErrOut) -> u32,
        /// `[control]` Unloads an adapter. Tasks that have it keep it to their end; new ones are refused from now on. An
        /// unknown name is refused with [`crate::abi::code::MODEL_NOT_FOUND`].
        unload: unsafe extern "C" fn(engine: *mut c_void, name: Str, err: ErrOut) -> u32,
        /// `[any]` Gives all loaded adapters. A task that names another is refused by `submit` with
        /// [`crate::abi::code::MODEL_NOT_FOUND`].
        list: unsafe extern "C" fn(engine: *mut c_void, out: AdaptersOut, err: ErrOut) -> u32,
    }
}
