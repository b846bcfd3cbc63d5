//! The steps of an engine: how many it made, and what it said about one that failed.
#![expect(unsafe_code, reason = "the callback that plugins call")]

use core::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use cascadia_plugin_api::abi::prim::{ErrOut, Str};
use parking_lot::Mutex;

use super::failed::Failed;

/// One per worker, in its link.
#[derive(Default)]
pub(super) struct Steps {
    made: AtomicU64,
    /// How many of them were asked for.
    taken: AtomicU64,
    /// The last word, and how many steps had been made when it was said.
    said: Mutex<(u64, Failed)>,
}

/// The callback by which an engine says why a step fails.
///
/// It is made once: two words written for a step are read back at once as one, and that wait would cost a third of what a
/// step costs.
#[derive(Clone, Copy)]
pub(super) struct SaidOut(pub(super) ErrOut);
// SAFETY: it names steps, which live for ever and are shared by threads, and a function.
unsafe impl Send for SaidOut {}
// SAFETY: as above.
unsafe impl Sync for SaidOut {}

impl Steps {
    /// The engine made so many more. Said by its driver alone, and so without a locked instruction, which would cost as much
    /// as the rest of a small step.
    pub(super) fn add(&self, n: u64) {
        self.made.store(self.made.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// How many were made since this was last asked; each is answered to one, whoever asks at once.
    pub(super) fn take(&self) -> u64 {
        let all = self.made();
        all.saturating_sub(self.taken.fetch_max(all, Ordering::Relaxed))
    }

    /// How many were made.
    pub(super) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// The callback for these steps.
    pub(super) fn said_out(&'static self) -> SaidOut {
        unsafe extern "C" fn set(ctx: *mut c_void, _code: u32, message: Str, details: Str) {
            // SAFETY: `ctx` is an engine's steps, which live for ever; the texts are lent.
            let (steps, failed) = unsafe { (&*ctx.cast::<Steps>(), Failed::copied(message, details)) };
            *steps.said.lock() = (steps.made(), failed);
        }
        SaidOut(ErrOut { ctx: std::ptr::from_ref(self).cast_mut().cast(), set })
    }

    /// What was said in the last step; what was said in an earlier one is no word about it.
    pub(super) fn said(&self) -> Failed {
        let (said_in, failed) = std::mem::take(&mut *self.said.lock());
        if said_in == self.made() { failed } else { Failed::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cascadia_plugin_api::abi::code;

    #[test]
    fn each_step_is_counted_once_however_many_ask() {
        let (steps, made) = (Steps::default(), 10_000);
        let taken: u64 = std::thread::scope(|scope| {
            let ask = || std::iter::repeat_with(|| steps.take()).take(20_000).sum::<u64>();
            let asking = [scope.spawn(ask), scope.spawn(ask)];
            (0..made).for_each(|_| steps.add(1));
            asking.into_iter().map(|asked| asked.join().expect("it counts")).sum()
        });
        assert_eq!(taken + steps.take(), made);
    }

    #[test]
    fn what_was_said_in_one_step_is_no_word_about_the_next() {
        let steps: &'static Steps = Box::leak(Box::default());
        let out = steps.said_out().0;
        let say = || {
            // SAFETY: the steps live for ever and the text is a constant.
            unsafe { (out.set)(out.ctx, code::BACKEND, Str::from("out of blocks"), Str::EMPTY) };
        };

        steps.add(1);
        say();
        assert_eq!(steps.said().into_parts().0, "out of blocks");
        assert_eq!(steps.said().into_parts().0, "", "it is told once");

        say();
        steps.add(1);
        assert_eq!(steps.said().into_parts().0, "", "it was about the step before");
    }
}
