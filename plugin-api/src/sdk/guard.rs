//! The wall: runs plugin code, turns an error or a panic into a code and a message for the other side.
#![expect(unsafe_code, reason = "calls the host's error callback")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Error, Level, Result, log, log_enabled};
use crate::abi::code;
use crate::abi::prim::{ErrOut, Str};

/// Runs `body`; its error, or its panic, goes to `err`. Answers the code.
pub(super) fn guard(err: Option<ErrOut>, body: impl FnOnce() -> Result<()>) -> u32 {
    let failed = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return code::OK,
        Ok(Err(e)) if e.code == code::OK => Error { code: code::BACKEND, ..e },
        Ok(Err(e)) => e,
        Err(payload) => Error::new(code::PANIC, format!("the plugin panicked: {}", text(payload.as_ref()))),
    };
    if let Some(err) = err {
        // SAFETY: the host lends the callback and its context for this call; the texts outlive it.
        unsafe {
            (err.set)(
                err.ctx,
                failed.code,
                Str::new(failed.message.as_bytes()),
                Str::new(failed.details.as_bytes()),
            );
        }
    }
    failed.code
}

/// Runs `body` where there is no way to answer an error; a panic gives `fallback`.
pub(super) fn guard_value<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback)
}

/// Sends the words of panics to the host's log, where a line bears the plugin's name, instead of to standard error. A
/// library has a standard library of its own, and so a hook of its own: the host's is not touched.
pub(super) fn tell_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !log_enabled(Level::Error) {
            return before(panic);
        }
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current();
        let fields = [("at", at.as_str()), ("thread", thread.name().unwrap_or("without a name"))];
        log(Level::Error, "panic", text(panic.payload()), &fields);
    }));
}

pub(super) fn text(payload: &(dyn std::any::Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
