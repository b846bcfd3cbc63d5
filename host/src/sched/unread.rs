//! The bytes that wait for clients to read them, of all streams together. Each stream has its own bound, and many at the
//! bound at once would still be more than a machine has.
//!
//! What must hold: what a stream has counted is given back when it is dropped. A stream whose client keeps up counts
//! nothing, so that a token costs no write to memory that all streams share.

use std::sync::Arc;

use crate::telemetry::metrics::Metrics;

/// A stream's count is set right when it is off by so many bytes, and when nothing waits.
const STEP: usize = 4 * 1024;

/// Bytes of all streams.
pub struct Unread {
    metrics: Arc<Metrics>,
}

impl Unread {
    /// None yet; `metrics` shows them.
    pub fn new(metrics: Arc<Metrics>) -> Unread {
        Unread { metrics }
    }

    /// How many there are, to a few KiB for each stream.
    pub fn total(&self) -> usize {
        usize::try_from(self.metrics.unread.get()).unwrap_or(0)
    }

    /// A stream that has `counted` bytes here has `now`.
    pub(super) fn settle(&self, counted: &mut usize, now: usize) {
        if now.abs_diff(*counted) >= STEP || (now == 0 && *counted > 0) {
            self.metrics.unread.add(now as i64 - *counted as i64);
            *counted = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_changes_are_not_counted_and_all_is_given_back() {
        let unread = Unread::new(Arc::new(Metrics::new()));
        let (mut a, mut b) = (0, 0);
        unread.settle(&mut a, STEP - 1);
        assert_eq!((unread.total(), a), (0, 0));
        unread.settle(&mut a, 3 * STEP);
        unread.settle(&mut b, STEP);
        assert_eq!(unread.total(), 4 * STEP);
        unread.settle(&mut a, 3 * STEP - 1);
        assert_eq!(unread.total(), 4 * STEP);
        unread.settle(&mut a, STEP);
        assert_eq!(unread.total(), 2 * STEP);
        unread.settle(&mut a, 0);
        unread.settle(&mut b, 0);
        assert_eq!((unread.total(), a, b), (0, 0, 0));
    }
}
