//! `cascadia.async-sink/1`: for engines with threads of their own, which would have to queue what they have until the
//! next step.

use crate::abi::engine::Sink;
use crate::abi::prim::ErrOut;
use core::ffi::c_void;

table! {
    /// `cascadia.async-sink/1`.
    AsyncSinkV1 as "cascadia_async_sink_v1" {
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[control]` Takes the sink, once, before the first submit. From then on the engine works by itself and pushes
        /// from any thread: never two pushes with chunks of one task at once, a task's chunks in order, no lock held that
        /// submit or cancel needs. `step` is still called, pushes nothing and answers idle. The sink is valid until
        /// `close` returns: open tasks get their finish before that, and no push runs or begins afterwards. Where it
        /// answers stop, the engine pushes nothing more. What other extensions call inside `step` is then called from the
        /// engine's own threads too.
        attach: unsafe extern "C" fn(engine: *mut c_void, sink: Sink, err: ErrOut) -> u32,
    }
}
