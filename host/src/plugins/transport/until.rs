//! How long a call may wait. Every wait of a link goes through here, so that none is without end.

use std::time::{Duration, Instant};

/// The longest that any deadline is taken for.
const LONGEST: Duration = Duration::from_secs(3600);

/// The host's own patience, where the caller names no deadline.
const STILL: Duration = Duration::from_secs(60);
const ALL: Duration = Duration::from_secs(600);

/// A caller's deadline.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// At this moment, however things go.
    At(Instant),
    /// When nothing has moved for a minute, and after ten minutes in any case.
    Default,
}

/// A deadline that bytes on the move may put off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    last: Instant,
    moved: Option<Instant>,
}

impl Patience {
    /// Begins to count.
    pub(super) fn new(until: Until) -> Patience {
        let now = Instant::now();
        match until {
            Until::At(at) => Patience { last: at.min(now + LONGEST), moved: None },
            Until::Default => Patience { last: now + ALL, moved: Some(now) },
        }
    }

    /// When the call gives up, as things are.
    pub(super) fn end(&self) -> Instant {
        self.moved.map_or(self.last, |moved| self.last.min(moved + STILL))
    }

    /// Something moved.
    pub(super) fn moved(&mut self) {
        if let Some(moved) = &mut self.moved {
            *moved = Instant::now();
        }
    }

    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_deadline_is_without_end() {
        let now = Instant::now();
        let far = Patience::new(Until::At(now + LONGEST * 1000));
        assert!(far.end() <= Instant::now() + LONGEST);
        let default = Patience::new(Until::Default);
        assert!(default.end() <= Instant::now() + STILL);
        assert!(Patience::new(Until::At(now)).is_over());
    }

    #[test]
    fn movement_puts_off_the_default_and_nothing_else() {
        let mut given = Patience::new(Until::At(Instant::now() + STILL));
        let before = given.end();
        given.moved();
        assert_eq!(given.end(), before);
        let mut default = Patience::new(Until::Default);
        default.moved = default.moved.map(|at| at - STILL);
        assert!(default.is_over());
        default.moved();
        assert!(!default.is_over());
    }
}
