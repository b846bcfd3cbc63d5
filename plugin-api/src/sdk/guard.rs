//! The wall: runs plugin code, turns an error or a panic into a code and a message for the other side.
#![expect(unsafe_code, reason = "calls the host's error callback")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Error, Result};
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

pub(super) fn text(payload: &(dyn std::any::Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
