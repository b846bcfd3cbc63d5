//! `cascadia.pause/1` for authors.
#![expect(unsafe_code, reason = "the plugin's side of the table")]

use core::ffi::c_void;

use super::with_extension;
use crate::ext::draft::pause as wire;

/// An engine that can hold one task. Both calls come from any thread and must not block; unknown ids are fine.
pub trait Pause {
    /// Nothing more is generated for the task, from the next step on at the latest.
    fn pause(&self, task: u64);

    /// The task goes on.
    fn resume(&self, task: u64);
}

pub(super) static TABLE: wire::PauseV1 =
    wire::PauseV1 { struct_size: size_of::<wire::PauseV1>() as u32, flags: 0, pause, resume };

unsafe extern "C" fn pause(engine: *mut c_void, task: u64) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_extension!(engine, None, pause, "pause", |tasks| {
            tasks.pause(task);
            Ok(())
        })
    }
}

unsafe extern "C" fn resume(engine: *mut c_void, task: u64) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_extension!(engine, None, pause, "pause", |tasks| {
            tasks.resume(task);
            Ok(())
        })
    }
}
