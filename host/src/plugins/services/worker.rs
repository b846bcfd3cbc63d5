//! `cascadia.host.{wake,heartbeat,cancel}/1`: what concerns one worker, found by the address it was given.

use core::ffi::c_void;

use cascadia_plugin_api::abi::host::{CancelV1, HeartbeatV1, WakeV1};

use super::guarded;
use crate::plugins::breach;
use crate::plugins::link::Link;

pub(super) static WAKE: WakeV1 = WakeV1 { struct_size: size_of::<WakeV1>() as u32, flags: 0, wake };
pub(super) static HEARTBEAT: HeartbeatV1 =
    HeartbeatV1 { struct_size: size_of::<HeartbeatV1>() as u32, flags: 0, counter };
pub(super) static CANCEL: CancelV1 = CancelV1 { struct_size: size_of::<CancelV1>() as u32, flags: 0, flag };

unsafe extern "C" fn wake(worker: *mut c_void) {
    guarded("wake", (), || breach::worker("wake", worker as usize).map_or((), Link::wake));
}

unsafe extern "C" fn counter(worker: *mut c_void) -> *mut u64 {
    guarded("heartbeat", core::ptr::null_mut(), || {
        breach::worker("heartbeat", worker as usize)
            .map_or(core::ptr::null_mut(), |link| link.heartbeat.as_ptr())
    })
}

unsafe extern "C" fn flag(worker: *mut c_void, task: u64) -> *const u32 {
    guarded("cancel", core::ptr::null(), || {
        let flag = breach::worker("cancel", worker as usize).and_then(|link| link.flag(task));
        flag.map_or(core::ptr::null(), |flag| flag.as_ptr().cast_const())
    })
}
