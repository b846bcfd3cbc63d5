//! The short way of a piece, which is nearly every one: words of a stream that has begun, and nothing beside them. What it costs is
//! paid with every token.
//!
//! What must hold: it leaves the flight as the long way would.

use std::task::Waker;

use super::{Flight, Mode, State};
use crate::generate::Piece;
use crate::generate::outbox::LONG;
use crate::sched::moment::Moment;

impl Flight {
    /// Takes a piece that is nothing but whole characters, where they are shown as they came. False where it is for the long
    /// way: then nothing was done.
    #[inline]
    pub(super) fn pass(
        &self,
        state: &mut State,
        piece: &Piece<'_>,
        now: Moment,
        wakers: &mut Vec<Waker>,
    ) -> bool {
        let Mode::Stream { unread, flood, .. } = &self.mode else { return false };
        let passes = state.passes
            && piece.is_plain()
            && !piece.bytes.is_empty()
            && piece.bytes.len() <= LONG
            && state.out.waits() <= self.mode.little();
        if !passes || !is_text(piece.bytes) {
            return false;
        }
        let Some(live) = state.live.as_mut() else { return false };
        state.tokens += live.assembler.pass(piece);
        state.out.text(piece.bytes);
        state.waiting_since.get_or_insert(now.on_clock());
        unread.settle(&mut state.counted, state.out.waits());
        state.tide.piece(now, flood);
        if !state.tide.can_wait(state.out.waits()) {
            wakers.extend(state.waker.take());
        }
        true
    }
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.is_ascii() || std::str::from_utf8(bytes).is_ok()
}
