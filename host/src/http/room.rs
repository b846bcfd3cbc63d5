//! The memory for request bodies, all together. Each body has its own bound, and many at the bound at once would still be
//! more than a machine has.
//!
//! What must hold: what is counted is what came, never what a client promises, so that promises cost nobody anything; and
//! each byte is given back once, whatever ends its request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{ApiError, Code};
use crate::telemetry::metrics::Metrics;

/// Bytes of all bodies.
pub struct Room {
    held: AtomicU64,
    metrics: Arc<Metrics>,
}

/// The bytes of one body; gives them back when it is dropped.
pub struct Held {
    room: Arc<Room>,
    /// Most bytes of all bodies.
    bound: u64,
    bytes: u64,
}

impl Room {
    /// Empty.
    pub fn new(metrics: Arc<Metrics>) -> Room {
        Room { held: AtomicU64::new(0), metrics }
    }

    /// A place for a body, where all together may have `bound` bytes. It holds nothing yet.
    pub fn place(self: &Arc<Room>, bound: u64) -> Held {
        Held { room: Arc::clone(self), bound, bytes: 0 }
    }
}

impl Held {
    /// Whether so many more would fit now.
    ///
    /// # Errors
    /// [`Code::Capacity`].
    pub fn fits(&self, more: u64) -> Result<(), ApiError> {
        match self.room.held.load(Ordering::Relaxed).saturating_add(more) <= self.bound {
            true => Ok(()),
            false => Err(self.full()),
        }
    }

    /// Takes room for so many more.
    ///
    /// # Errors
    /// [`Code::Capacity`] where there is none; what was taken before stays.
    pub fn grow(&mut self, more: u64) -> Result<(), ApiError> {
        let add = |held: u64| held.checked_add(more).filter(|sum| *sum <= self.bound);
        let grown = self.room.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        grown.map_err(|_| self.full())?;
        self.bytes += more;
        self.room.metrics.body_bytes(more.cast_signed());
        Ok(())
    }

    /// Gives so many back.
    pub fn shrink(&mut self, less: u64) {
        let less = less.min(self.bytes);
        self.bytes -= less;
        self.room.held.fetch_sub(less, Ordering::Relaxed);
        self.room.metrics.body_bytes(-less.cast_signed());
    }

    fn full(&self) -> ApiError {
        let message = format!(
            "the bodies of other requests take {} of {} MiB; try again, or raise server.max_bodies_mb",
            self.room.held.load(Ordering::Relaxed) >> 20,
            self.bound >> 20
        );
        ApiError::new(Code::Capacity, message)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_their_room_and_give_it_back() {
        let room = Arc::new(Room::new(Arc::new(Metrics::new())));
        let (mut a, mut b) = (room.place(100), room.place(100));
        assert_eq!(a.grow(70), Ok(()));
        assert_eq!(b.fits(31).map_err(|e| e.code), Err(Code::Capacity));
        assert_eq!(b.grow(31).map_err(|e| e.code), Err(Code::Capacity));
        assert_eq!(b.grow(u64::MAX).map_err(|e| e.code), Err(Code::Capacity));
        assert_eq!(b.grow(30), Ok(()));
        a.shrink(1000);
        assert_eq!(room.held.load(Ordering::Relaxed), 30);
        // Another's bound is its own affair: the configuration may have changed in between.
        assert!(room.place(20).fits(0).is_err());
        drop((a, b));
        assert_eq!(room.held.load(Ordering::Relaxed), 0);
    }
}
