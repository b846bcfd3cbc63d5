//! `cascadia.plugin/1`: which engines the library holds and how to begin building one.

use super::prim::{ErrOut, Str};
use core::ffi::c_void;

table! {
    /// One engine of a plugin, as `engine_info` fills it in. The texts live as long as the library.
    EngineInfo as "cascadia_engine_info" {
        /// In: the size the host offers; the plugin fills no field beyond it.
        struct_size: u32,
        /// In: 0, and left alone by a plugin that knows no flag. None is defined.
        flags: u32,
        /// Name by which `new_builder` finds it; unique in the plugin, `[a-z0-9-]+`.
        name: Str,
        /// One line for people.
        description: Str,
    }
}

table! {
    /// The plugin's first table.
    PluginV1 as "cascadia_plugin_v1" {
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[any]` Number of engines.
        engine_count: unsafe extern "C" fn() -> u32,
        /// `[any]` Fills `out` for engine `index`; answers a code.
        engine_info: unsafe extern "C" fn(index: u32, out: *mut EngineInfo) -> u32,
        /// `[control]` How well the engine suits this machine; 0 = not at all. Larger is better.
        score: unsafe extern "C" fn(engine: Str) -> u32,
        /// `[control]` A new builder, null on failure. `worker` names the instance to the host's services.
        new_builder: unsafe extern "C" fn(engine: Str, worker: *mut c_void, err: ErrOut) -> *mut c_void,
    }
}
