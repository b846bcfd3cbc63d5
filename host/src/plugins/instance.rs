//! The address of an engine in this process, to be kept under a lock: calls hold it for reading, `destroy` takes it out.
#![expect(unsafe_code, reason = "an address that goes from thread to thread")]

use core::ffi::c_void;

/// An engine that is not destroyed.
pub(super) struct Instance(pub(super) *mut c_void);
// SAFETY: the boundary lets every call come from any thread; who may call when is kept by the lock and by the tags.
unsafe impl Send for Instance {}
// SAFETY: as above.
unsafe impl Sync for Instance {}
