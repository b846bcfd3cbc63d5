//! What a plugin says when a call fails: collected from its callback, and turned into the host's words.
#![expect(unsafe_code, reason = "the callback that plugins call")]

use core::ffi::c_void;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::prim::{ErrOut, Str};
use parking_lot::Mutex;

use super::link::Link;

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

/// What an engine says about a step that fails.
///
/// It lies in the engine's link, for ever, and the callback that fills it is made once: two words written for a step are read
/// back at once as one, and that wait would cost a third of what a step costs.
#[derive(Default)]
pub(super) struct Said(Mutex<(u64, Failed)>);

/// The callback for [`Said`].
#[derive(Clone, Copy)]
pub(super) struct SaidOut(pub(super) ErrOut);
// SAFETY: it names a link, which lives for ever and is shared by threads, and a function.
unsafe impl Send for SaidOut {}
// SAFETY: as above.
unsafe impl Sync for SaidOut {}

impl Said {
    /// The callback that fills the link's own.
    pub(super) fn out(link: &'static Link) -> SaidOut {
        unsafe extern "C" fn set(ctx: *mut c_void, _code: u32, message: Str, details: Str) {
            // SAFETY: `ctx` is a link, which lives for ever; the texts are lent.
            let (link, failed) = unsafe { (&*ctx.cast::<Link>(), Failed::copied(message, details)) };
            *link.said.0.lock() = (link.steps(), failed);
        }
        SaidOut(ErrOut { ctx: std::ptr::from_ref(link).cast_mut().cast(), set })
    }

    /// What was said in step number `step`; what was said in an earlier one is no word about this.
    pub(super) fn take(&self, step: u64) -> Failed {
        let (said_in, failed) = std::mem::take(&mut *self.0.lock());
        if said_in == step { failed } else { Failed::default() }
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
    unsafe fn copied(message: Str, details: Str) -> Failed {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_in_one_step_is_no_word_about_the_next() {
        let link = Link::new("said-test");
        let out = Said::out(link).0;
        let words = Str::from("out of blocks");
        let say = || {
            // SAFETY: the link lives for ever and the text is a constant.
            unsafe { (out.set)(out.ctx, code::BACKEND, words, Str::EMPTY) };
        };

        link.add_steps(1);
        say();
        assert_eq!(link.said.take(link.steps()).message, "out of blocks");
        assert_eq!(link.said.take(link.steps()).message, "", "it is told once");

        say();
        link.add_steps(1);
        assert_eq!(link.said.take(link.steps()).message, "", "it was about the step before");
    }
}
