//! `cascadia.host.fault/1`: a plugin says that an engine is lost although no call of it fails. Its worker hears of it at
//! the next turn of its loop, which is woken.

use core::ffi::c_void;

use cascadia_plugin_api::abi::host::FaultV1;
use cascadia_plugin_api::abi::prim::Str;

use super::guarded;
use crate::plugins::link::Link;

pub(super) static TABLE: FaultV1 = FaultV1 { struct_size: size_of::<FaultV1>() as u32, flags: 0, report };

/// Longest reason that is kept.
const MAX_TEXT: usize = 1024;

unsafe extern "C" fn report(worker: *mut c_void, message: Str) {
    guarded("fault", (), || {
        let Some(link) = Link::at(worker as usize) else { return };
        // SAFETY: the plugin lends the text for the call.
        let text = unsafe { message.text() };
        link.fail(text[..text.floor_char_boundary(MAX_TEXT)].replace(['\n', '\r'], " "));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_report_counts_and_wakes_the_worker() {
        let link = Link::new("fault-test");
        let worker = std::ptr::from_ref(link).cast_mut().cast();
        let before = link.epoch();
        // SAFETY: texts and worker live through the calls; the last is no address of a link.
        unsafe {
            report(worker, Str::new(b"first\nline"));
            report(worker, Str::new(b"second"));
            report(16 as *mut c_void, Str::new(b"stranger"));
        }
        assert!(link.epoch() > before);
        assert_eq!(link.fault().as_deref(), Some("first line"));
        assert_eq!(link.fault(), None, "it is told once");
    }
}
