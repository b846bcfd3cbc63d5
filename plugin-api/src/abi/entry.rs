//! The one symbol a plugin exports, and the table the host passes to it.

use super::prim::{ErrOut, Str};
use core::ffi::c_void;

/// The name of the exported constant, as dlsym wants it.
pub const SYMBOL: &[u8] = b"cascadia_entry\0";
/// First field of [`Entry`].
pub const MAGIC: u64 = u64::from_le_bytes(*b"CASCADIA");
/// A host refuses another major.
pub const ABI_MAJOR: u32 = 1;
/// Information only: growth happens by ids.
pub const ABI_MINOR: u32 = 0;

table! {
    /// The constant `cascadia_entry`.
    Entry as "cascadia_entry_t" {
        /// [`MAGIC`].
        magic: u64,
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// [`ABI_MAJOR`].
        abi_major: u32,
        /// [`ABI_MINOR`].
        abi_minor: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[control]` Called once, before anything but `get_extension`. Must be quick: no device, no model.
        /// The host table outlives the process's use of the plugin.
        init: unsafe extern "C" fn(host: *const HostV1, err: ErrOut) -> u32,
        /// `[any]` The plugin's table of that id, null when absent; ids compare whole. Valid for ever.
        get_extension: unsafe extern "C" fn(id: Str) -> *const c_void,
    }
}

table! {
    /// What the host lends to a plugin.
    HostV1 as "cascadia_host_v1" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[any]` The host's table of that id, null when absent. Valid for ever.
        get_service: unsafe extern "C" fn(id: Str) -> *const c_void,
    }
}
