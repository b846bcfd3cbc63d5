//! `cascadia.pause/1`: push-back for one task. The stream of a slow client is held, the others go on.

use core::ffi::c_void;

table! {
    /// `cascadia.pause/1`. Both functions answer OK for ids that are unknown or over, and may be called twice.
    PauseV1 as "cascadia_pause_v1" {
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[any]` Nothing more is generated for the task, from the next step on at the latest; what was under way may
        /// still come. It keeps its slot and its state; cancel and close end it as ever. A step that has nothing but
        /// paused tasks answers idle.
        pause: unsafe extern "C" fn(engine: *mut c_void, task: u64) -> u32,
        /// `[any]` The task goes on. The host owes a step, as after a submit.
        resume: unsafe extern "C" fn(engine: *mut c_void, task: u64) -> u32,
    }
}
