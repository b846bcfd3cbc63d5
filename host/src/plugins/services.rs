//! The host's side of the boundary: the tables it lends to plugins.
//!
//! Every function here is called by foreign code from any thread: it checks what it is given, never blocks for long (but
//! in the transport, which waits to a deadline), and never lets a panic out.
#![expect(unsafe_code, reason = "functions that foreign code calls")]

pub mod dlopen;
mod fault;
mod log;
mod metrics;
mod trace;
mod transport;
mod worker;

use core::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use cascadia_plugin_api::abi::entry::HostV1;
use cascadia_plugin_api::abi::host::ClockV1;
use cascadia_plugin_api::abi::ids;
use cascadia_plugin_api::abi::prim::{ErrOut, Str};

use super::breach;
use super::register::Register;

pub use log::{level, named, number, set_level};

static METRICS: OnceLock<Arc<dyn Register>> = OnceLock::new();

/// Gives the services what they work on. Called once, before the first plugin is opened.
pub fn start(metrics: Arc<dyn Register>, level: tracing::Level) {
    set_level(level);
    breach::start(&metrics);
    METRICS.get_or_init(|| metrics);
}

/// Where series are kept; none before [`start`].
pub(super) fn register() -> Option<&'static dyn Register> {
    METRICS.get().map(|register| &**register)
}

/// The table that `init` gets.
pub(super) fn table() -> *const HostV1 {
    static HOST: HostV1 = HostV1 { struct_size: size_of::<HostV1>() as u32, flags: 0, get_service };
    &raw const HOST
}

unsafe extern "C" fn get_service(id: Str) -> *const c_void {
    // SAFETY: the plugin lends the text for the call.
    let id = unsafe { id.bytes() };
    let is = |known: &str| id == known.as_bytes();
    if is(ids::HOST_LOG) {
        (&raw const *log::table()).cast()
    } else if is(ids::HOST_METRICS) {
        (&raw const metrics::TABLE).cast()
    } else if is(ids::HOST_CLOCK) {
        (&raw const CLOCK).cast()
    } else if is(ids::HOST_CANCEL) {
        (&raw const worker::CANCEL).cast()
    } else if is(ids::HOST_WAKE) {
        (&raw const worker::WAKE).cast()
    } else if is(ids::HOST_HEARTBEAT) {
        (&raw const worker::HEARTBEAT).cast()
    } else if is(ids::HOST_DLOPEN) {
        (&raw const dlopen::TABLE).cast()
    } else if is(ids::HOST_TRACE) {
        (&raw const trace::TABLE).cast()
    } else if is(ids::HOST_FAULT) {
        (&raw const fault::TABLE).cast()
    } else if is(ids::HOST_TRANSPORT) {
        (&raw const transport::TABLE).cast()
    } else {
        core::ptr::null()
    }
}

static CLOCK: ClockV1 = ClockV1 { struct_size: size_of::<ClockV1>() as u32, flags: 0, now_ns: clock_now };

unsafe extern "C" fn clock_now() -> u64 {
    now_ns()
}

/// The clock of the boundary: the system's monotonic nanoseconds, one clock for the host and the children of isolated
/// plugins.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct lives through the call, which cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let (s, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    s.saturating_mul(1_000_000_000).saturating_add(ns).max(1)
}

/// The moment that a time of the boundary's clock means.
pub fn instant(ns: u64) -> Instant {
    let (now, ahead) = (Instant::now(), ns.saturating_sub(now_ns()));
    now.checked_add(std::time::Duration::from_nanos(ahead)).unwrap_or(now)
}

/// Runs `body`; a panic gives `fallback` and a line in the log.
fn guarded<T>(service: &'static str, fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        tracing::error!(service, "a host service panicked");
        fallback
    })
}

/// Answers an error through the plugin's callback.
fn fail(err: ErrOut, code: u32, message: &str) {
    // SAFETY: the plugin lends the callback for the call; the texts outlive it.
    unsafe { (err.set)(err.ctx, code, Str::new(message.as_bytes()), Str::EMPTY) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_says_it_offers_it_has() {
        for id in crate::plugins::manifest::SERVICES {
            // SAFETY: the text outlives the call.
            assert!(!unsafe { get_service(Str::new(id.as_bytes())) }.is_null(), "{id}");
        }
        // SAFETY: as above.
        assert!(unsafe { get_service(Str::new(b"cascadia.host.trace/2")) }.is_null());
    }
}
