//! What a plugin says when a call fails: collected from its callback, and turned into the host's words.
#![expect(unsafe_code, reason = "the callback that plugins call")]

use core::ffi::c_void;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::prim::{ErrOut, Str};

use crate::generate::{Failure, Kind};

/// What a code of the boundary, with its message and details, means to the host.
pub(super) fn failure(number: u32, message: String, details: String) -> Failure {
    let message = match (message.is_empty(), code::name(number)) {
        (true, name) => format!("the plugin answered code {number} ({name}) and gave no reason"),
        (false, "unknown") => format!("{message} (code {number})"),
        (false, _) => message,
    };
    Failure {
        kind: kind(number),
        code: code::name(number),
        message: message.replace(['\n', '\r'], " "),
        details,
    }
}

fn kind(number: u32) -> Kind {
    match number {
        code::QUEUE_FULL => Kind::QueueFull,
        code::PROMPT_TOO_LONG => Kind::PromptTooLong,
        code::INVALID_CONFIG | code::PEER_REJECTED | code::SHARD_REJECTED | code::UNSUPPORTED => {
            Kind::Refused
        }
        code::MODEL_NOT_FOUND => Kind::NotFound,
        code::NOT_CONNECTED | code::CLOSED | code::POISONED | code::PLUGIN_CRASHED => Kind::Unavailable,
        _ => Kind::Fault,
    }
}

/// Collects what a plugin says about a failed call.
#[derive(Default)]
pub(super) struct Failed {
    message: String,
    details: String,
}

impl Failed {
    /// The callback that fills this; valid while this is not moved.
    pub(super) fn out(&mut self) -> ErrOut {
        unsafe extern "C" fn set(ctx: *mut c_void, _code: u32, message: Str, details: Str) {
            // SAFETY: `ctx` is the value below, alive for the call it was passed to; the texts are lent.
            unsafe { *ctx.cast::<Failed>() = Failed::copied(message, details) };
        }
        ErrOut { ctx: std::ptr::from_mut(self).cast(), set }
    }

    /// # Safety
    /// Both texts must be readable for the call.
    pub(super) unsafe fn copied(message: Str, details: Str) -> Failed {
        // SAFETY: the caller vouches for it.
        unsafe { Failed { message: message.text().into_owned(), details: details.text().into_owned() } }
    }

    /// A failure in the host's own words.
    pub(super) fn saying(message: &str) -> Failed {
        Failed { message: message.to_owned(), details: String::new() }
    }

    /// The same, where the plugin said nothing.
    pub(super) fn or_saying(self, message: &str) -> Failed {
        if self.message.is_empty() { Failed::saying(message) } else { self }
    }

    /// The words and the details.
    pub(super) fn into_parts(self) -> (String, String) {
        (self.message, self.details)
    }

    /// One line about code `number`.
    pub(super) fn into_message(self, number: u32) -> String {
        failure(number, self.message, String::new()).message
    }

    /// What code `number` means to the host.
    pub(super) fn into_failure(self, number: u32) -> Failure {
        failure(number, self.message, self.details)
    }
}
