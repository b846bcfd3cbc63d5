//! Holds the host to the boundary's rules: thread tags, states, the order of a builder's calls.
//!
//! Each call into a plugin passes [`Strict::enter`], which panics with the rule where the host breaks one; only debug
//! builds look, release builds keep nothing and check nothing. In every build it knows where a worker is in its life, by
//! which `breach` judges the plugin's side.
//!
//! Knows no table, no pointer and no plugin: who calls what is passed in.

#[cfg_attr(
    not(debug_assertions),
    allow(dead_code, reason = "only debug builds look at the host's own calls")
)]
mod machine;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

pub(super) use machine::Call;
#[cfg(debug_assertions)]
use machine::Machine;

/// Where a worker is in its life; what it is asked for depends on it.
const BUILDING: u8 = 0;
const LIVING: u8 = 1;
const GONE: u8 = 2;

/// The rules of one worker: its builder and its engine.
#[derive(Default)]
pub(super) struct Strict {
    #[cfg(debug_assertions)]
    machine: parking_lot::Mutex<Machine>,
    /// A step of its engine is running.
    stepping: AtomicBool,
    life: AtomicU8,
    /// The kinds of breaches that were told, a bit each.
    told: AtomicU32,
}

/// A call that is running; over when dropped.
#[must_use = "the call is over when this is dropped"]
pub(super) struct Running<'a> {
    #[cfg(debug_assertions)]
    strict: &'a Strict,
    #[cfg(debug_assertions)]
    call: Call,
    #[cfg(not(debug_assertions))]
    _none: std::marker::PhantomData<&'a ()>,
}

impl Strict {
    /// The host is about to call into the plugin.
    ///
    /// # Panics
    /// Debug builds only: when a rule forbids the call now; the message names it.
    #[cfg(debug_assertions)]
    #[track_caller]
    pub(super) fn enter(&self, call: Call) -> Running<'_> {
        let begun = self.machine.lock().begin(call, PUSHING.get());
        if let Err(rule) = begun {
            broken(call, rule);
        }
        Running { strict: self, call }
    }

    /// The host is about to call into the plugin.
    #[cfg(not(debug_assertions))]
    #[inline(always)]
    pub(super) fn enter(&self, _call: Call) -> Running<'_> {
        Running { _none: std::marker::PhantomData }
    }

    /// A step begins or is over: what is pushed between belongs to it.
    pub(super) fn stepping(&self, on: bool) {
        self.stepping.store(on, Ordering::Relaxed);
    }

    /// The builder gave an engine.
    pub(super) fn born(&self) {
        self.life.store(LIVING, Ordering::Relaxed);
    }

    /// The builder was destroyed: without an engine the worker is gone with it.
    pub(super) fn builder_gone(&self) {
        if self.life.load(Ordering::Relaxed) == BUILDING {
            self.gone();
        }
    }

    /// The engine was destroyed.
    pub(super) fn gone(&self) {
        self.life.store(GONE, Ordering::Relaxed);
    }

    /// Whether its engine, or a builder that gave none, was destroyed.
    pub(super) fn is_gone(&self) -> bool {
        self.life.load(Ordering::Relaxed) == GONE
    }

    /// Whether a step of its engine is running, on whatever thread.
    pub(super) fn is_stepping(&self) -> bool {
        self.stepping.load(Ordering::Relaxed)
    }

    /// Whether the breach with that number was not told yet; from now on it was.
    pub(super) fn is_first(&self, breach: u32) -> bool {
        let bit = 1 << breach;
        self.told.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

#[cfg(debug_assertions)]
impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.strict.machine.lock().end(self.call);
        // A breach inside the push of this step was caught at the plugin's edge; it is no less a breach.
        if matches!(self.call, Call::Step | Call::StepOwed)
            && let Some((call, rule)) = BROKEN.take()
            && !std::thread::panicking()
        {
            broken(call, rule);
        }
    }
}

#[cfg(debug_assertions)]
thread_local! {
    /// A push is running on this thread.
    static PUSHING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    /// What was called inside a push.
    static BROKEN: std::cell::Cell<Option<(Call, &'static str)>> = const { std::cell::Cell::new(None) };
}

#[cfg(debug_assertions)]
#[track_caller]
fn broken(call: Call, rule: &'static str) -> ! {
    if PUSHING.get() {
        BROKEN.set(Some((call, rule)));
    }
    panic!("the host broke a rule of the plugin boundary with {call:?}: {rule}");
}

/// A push that is running on this thread; over when dropped.
#[must_use = "the push is over when this is dropped"]
pub(super) struct Pushing;

/// The plugin pushes: until the answer is dropped the host must not call it from this thread.
pub(super) fn pushing() -> Pushing {
    #[cfg(debug_assertions)]
    PUSHING.set(true);
    Pushing
}

impl Drop for Pushing {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        PUSHING.set(false);
    }
}

#[cfg(test)]
mod tests;
