//! The short way of a token, which is nearly every one: the next word of a task that was asked for nothing else.
//!
//! Holds: it leaves the run, and the tray, as the long way would.

use super::Run;
use crate::order::Site;
use crate::tray::Tray;

impl Run {
    /// Whether no word of it can need the long way because of what it was asked for.
    pub(super) fn has_only_words(&self) -> bool {
        let (order, writer) = (&self.order, &self.writer);
        self.is_shared()
            && order.chunk.is_none()
            && order.timestamp_ns.is_none()
            && order.crash(Site::Step).is_none()
            && writer.writes_words()
            && self.masked.is_none()
    }

    /// Lays the next word of the script on the tray. False where it is not due, or for the long way; then nothing was done.
    #[inline]
    pub(crate) fn word(&mut self, tick: u64, now: u64, tray: &mut Tray) -> bool {
        let goes_on = self.quick
            && self.begun
            && !self.paused
            && self.cancel_at.is_none()
            && self.ready_at.max(tick) <= now
            && self.writer.has_room_behind();
        let Some((id, bytes)) = self.plan.word().filter(|_| goes_on) else { return false };
        tray.word(self.task.id, now, id, bytes);
        self.answer.push(id);
        self.writer.generated += 1;
        self.plan.pass();
        self.pace(now);
        true
    }
}
