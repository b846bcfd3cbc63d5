//! Why a call failed, as the plugin said it, and whether it said it the way the contract has it.
#![expect(unsafe_code, reason = "the callback that plugins call")]

use core::ffi::c_void;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::prim::{ErrOut, Str};

/// What a failing call says, and how often.
#[derive(Debug, Default, Clone)]
pub(super) struct Said {
    pub(super) code: u32,
    pub(super) message: String,
    pub(super) times: usize,
}

impl Said {
    /// The callback that fills this; valid while this is not moved.
    pub(super) fn out(&mut self) -> ErrOut {
        unsafe extern "C" fn set(ctx: *mut c_void, code: u32, message: Str, _details: Str) {
            // SAFETY: `ctx` is the value below, alive for the call it was passed to; the text is lent.
            unsafe {
                let said = &mut *ctx.cast::<Said>();
                (said.code, said.message) = (code, message.text().into_owned());
                said.times += 1;
            }
        }
        ErrOut { ctx: std::ptr::from_mut(self).cast(), set }
    }

    /// An error in words unless `code` is OK.
    pub(super) fn expect_ok(&self, call: &str, code: u32) -> Result<(), String> {
        if code == code::OK { Ok(()) } else { Err(format!("{call} failed: {}", self.words(code))) }
    }

    /// The code and what was said with it.
    pub(super) fn words(&self, code: u32) -> String {
        let name = code::name(code);
        if self.message.is_empty() {
            format!("{name} ({code})")
        } else {
            format!("{} ({name})", self.message)
        }
    }

    /// Whether a refusal was made as the contract has it: the reason given once, with the code that was answered.
    pub(super) fn is_clean(&self, call: &str, code: u32) -> Result<(), String> {
        match () {
            () if self.times != 1 => Err(format!(
                "{call} answered {} and gave its reason {} times instead of once",
                code::name(code),
                self.times
            )),
            () if self.code != code => Err(format!(
                "{call} answered {} and gave the reason of {}",
                code::name(code),
                code::name(self.code)
            )),
            () if self.message.trim().is_empty() => {
                Err(format!("{call} answered {} without a message", code::name(code)))
            }
            () => Ok(()),
        }
    }
}
