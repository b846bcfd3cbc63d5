//! Signals while a host runs: remembered here, so that we outlive them and wait for the host's own end.
//!
//! Holds: the handler stores one number and does nothing else. A new program does not inherit handlers, so the host
//! has the default ones.

use std::sync::atomic::{AtomicI32, Ordering};

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

static SEEN: AtomicI32 = AtomicI32::new(0);

extern "C" fn remember(signal: i32) {
    SEEN.store(signal, Ordering::Relaxed);
}

/// From here on SIGINT, SIGTERM and SIGHUP do not end us.
#[expect(unsafe_code, reason = "std has no door to signals, and one C function is less than a crate")]
pub(super) fn catch() {
    unsafe extern "C" {
        // SAFETY: `signal` of the C library takes any signal number and a handler of this type, and keeps the pointer;
        // a function lives for ever. The previous handler that it returns is not used.
        safe fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
    }
    for number in [SIGINT, SIGTERM, SIGHUP] {
        signal(number, remember);
    }
}

/// The name of a signal that came to us alone. A terminal sends SIGINT to the host as well, so that one is not handed
/// on: a second one would cut the host's drain short.
pub(super) fn to_hand_on() -> Option<&'static str> {
    match SEEN.swap(0, Ordering::Relaxed) {
        SIGTERM => Some("TERM"),
        SIGHUP => Some("HUP"),
        _ => None,
    }
}
