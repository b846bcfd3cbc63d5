//! Engines that outrun the wire. What they give within a moment leaves together: sending each token of a stream by itself, some
//! thousand times a second, costs many times what the engine spends on it, and nobody reads that fast.
//!
//! What must hold: nothing waits for longer than [`GATHER`] and a timer's millisecond because of it, and an end waits for nothing. An
//! engine whose pushes are further apart than [`NEAR`], as those of a model are, never has a token wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::moment::{Moment, Number};

/// Tokens of a stream that are nearer to each other than this, twice in a row, are a flood.
const NEAR: Duration = Duration::from_micros(500);
/// What comes in a flood waits for company for so long, and the millisecond of a timer, so at least eight tokens leave together.
pub const GATHER: Duration = Duration::from_millis(4);
/// So many bytes do not wait, or half of what a stream may have unread: more would only grow.
const ENOUGH: usize = 32 * 1024;

/// Whether an engine gave the last stream that had two tokens a flood: then the next stream will be one too.
#[derive(Debug, Default)]
pub struct Flood(AtomicBool);

impl Flood {
    /// Whether a stream that begins now waits for company for its first token.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, on: bool) {
        // Nearly always it is so already, and all streams share the word.
        if self.is_on() != on {
            self.0.store(on, Ordering::Relaxed);
        }
    }
}

/// What one stream has of it.
#[derive(Debug)]
pub(super) struct Tide {
    /// So many bytes do not wait.
    enough: usize,
    /// When the engine gave its last piece.
    last: Option<Number>,
    high: bool,
    /// The last two were near to each other. One gap does not say much: an engine is held up, or gives two tokens at once.
    near: bool,
    /// Its reader looks again by itself.
    watched: bool,
}

impl Tide {
    /// Of a stream that may have so many bytes unread: half of them do not wait.
    pub(super) fn new(limit: usize) -> Tide {
        Tide { enough: ENOUGH.min(limit / 2), last: None, high: false, near: false, watched: false }
    }

    /// The engine gave a piece.
    pub(super) fn piece(&mut self, now: Moment, engine: &Flood) {
        let now = now.number();
        // What comes in one push leaves together anyway, and says nothing of the next.
        let Some(last) = self.last.replace(now).filter(|last| *last != now) else { return };
        let gap = now.since(last);
        if gap > GATHER {
            (self.high, self.near) = (false, false);
            return engine.set(false);
        }
        let near = gap < NEAR;
        if std::mem::replace(&mut self.near, near) == near {
            self.high = near;
            engine.set(near);
        }
    }

    /// Its reader asks; a patient one looks again within [`GATHER`]. Whether that waits for company.
    pub(super) fn asked(&mut self, patient: bool, waiting: usize) -> bool {
        self.watched = patient && waiting < self.enough;
        self.watched
    }

    /// What waited was handed over: whether its reader is to be patient with what comes next.
    pub(super) fn handed_over(&mut self) -> bool {
        self.watched = self.high;
        self.high
    }

    /// Whether the reader need not be woken for so many bytes.
    pub(super) fn can_wait(&self, waiting: usize) -> bool {
        self.watched && waiting < self.enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// A stream after pieces that came so far apart, and what is known of its engine.
    fn after(gaps: &[Duration]) -> (Tide, Flood) {
        let (mut tide, engine, mut now) = (Tide::new(usize::MAX), Flood::default(), Instant::now());
        tide.piece(now.into(), &engine);
        for gap in gaps {
            now += *gap;
            tide.piece(now.into(), &engine);
        }
        (tide, engine)
    }

    #[test]
    fn only_what_comes_within_a_moment_is_a_flood() {
        let (short, long) = (NEAR / 2, NEAR);
        let (none, rest) = (Duration::ZERO, 2 * GATHER);
        let cases: [(&[Duration], bool); 10] = [
            (&[], false),
            (&[short], false),
            (&[short, short], true),
            (&[short, long, short, long], false),
            (&[short, short, long], true),
            (&[short, short, long, short], true),
            (&[short, short, long, long], false),
            (&[short, short, rest], false),
            (&[none, none, none], false),
            (&[none, none, rest, none, none, rest], false),
        ];
        for (gaps, high) in cases {
            let (mut tide, engine) = after(gaps);
            assert_eq!((tide.handed_over(), engine.is_on()), (high, high), "{gaps:?}");
        }
    }

    #[test]
    fn a_reader_is_spared_while_it_looks_again_by_itself_and_there_is_little() {
        let (mut tide, _) = after(&[NEAR / 2; 2]);
        assert!(!tide.can_wait(1), "it has not said that it looks again");
        assert!(tide.handed_over() && tide.can_wait(1));
        assert!(!tide.can_wait(ENOUGH));
        assert!(!tide.asked(true, ENOUGH) && !tide.can_wait(1), "it takes what there is");
        assert!(tide.asked(true, 1) && tide.can_wait(1));
        assert!(!tide.asked(false, 1) && !tide.can_wait(1));
    }
}
