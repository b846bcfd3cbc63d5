//! When a push came. One look at the clock for all its pieces, and a number beside it: that is compared with each token, and the
//! clock's own time is twice as long and many times as dear.

use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where the numbers begin: the first that was asked for.
static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// A point in time.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    on_clock: Instant,
    number: Number,
}

/// Of a [`Moment`]: nanoseconds since some other one. Is no longer alone than in an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number(NonZeroU64);

impl Moment {
    /// This one.
    pub fn now() -> Moment {
        Instant::now().into()
    }

    /// As the clock has it.
    pub(super) fn on_clock(self) -> Instant {
        self.on_clock
    }

    /// Its number.
    pub(super) fn number(self) -> Number {
        self.number
    }
}

impl Number {
    /// How long after the other it is; nothing if before.
    pub(super) fn since(self, other: Number) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(other.0.get()))
    }
}

impl From<Instant> for Moment {
    fn from(on_clock: Instant) -> Moment {
        let since = on_clock.saturating_duration_since(*ORIGIN.get_or_init(|| on_clock));
        // The numbers last for five centuries.
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        Moment { on_clock, number: Number(NonZeroU64::MIN.saturating_add(nanos)) }
    }
}
