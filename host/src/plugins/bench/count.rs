//! The receivers of the bench: one counts, one also times itself.

use std::time::{Duration, Instant};

use crate::generate::{Failure, Finish, Piece};
use crate::plugins::Receiver;

/// A receiver whose counts can be read.
pub(super) trait Count {
    fn receiver(&mut self) -> &mut dyn Receiver;
    fn counted(&mut self) -> &mut Counting;
}

/// Counts.
#[derive(Default)]
pub(super) struct Counting {
    pub(super) tokens: u64,
    pub(super) chunks: u64,
    pub(super) pushes: u64,
    /// Something ended or went wrong since someone looked.
    pub(super) noted: bool,
    /// Tasks that have ended since someone looked.
    pub(super) ended: Vec<u64>,
    /// What went wrong, in one line.
    pub(super) fault: Option<String>,
}

impl Counting {
    #[cold]
    fn over(&mut self, task: u64, finish: Finish) {
        self.noted = true;
        self.ended.push(task);
        if let Finish::Error(failure) = finish {
            self.fault = Some(format!("the engine failed on a task: {}", failure.message));
        }
    }
}

impl Receiver for Counting {
    fn piece(&mut self, task: u64, piece: Piece<'_>) {
        self.tokens += piece.tokens.len() as u64;
        self.chunks += 1;
        if let Some(finish) = &piece.more.finish {
            self.over(task, finish.clone());
        }
    }

    fn taken(&mut self, _task: u64, taken: Result<(), Failure>) {
        if let Err(failure) = taken {
            self.noted = true;
            self.fault = Some(format!("the engine refused a task: {}", failure.message));
        }
    }

    fn go_on(&mut self) -> bool {
        self.pushes += 1;
        true
    }

    fn broken(&mut self) {
        self.noted = true;
        self.fault = Some("the engine pushed a chunk that cannot be read".to_owned());
    }
}

impl Count for Counting {
    fn receiver(&mut self) -> &mut dyn Receiver {
        self
    }

    fn counted(&mut self) -> &mut Counting {
        self
    }
}

/// Counts, and takes the time from the first piece of a push to its end.
pub(super) struct Listening {
    counting: Counting,
    since: Option<Instant>,
    spent: Duration,
    /// What reading the clock adds to one such time.
    own: Duration,
}

impl Listening {
    pub(super) fn new() -> Listening {
        let readings = 1000;
        let own: Duration = (0..readings).map(|_| Instant::now().elapsed()).sum();
        Listening { counting: Counting::default(), since: None, spent: Duration::ZERO, own: own / readings }
    }

    pub(super) fn ns_per_token(&self) -> f64 {
        if self.counting.tokens == 0 {
            return 0.0;
        }
        let own = self.own.as_nanos() as f64 * self.counting.pushes as f64;
        ((self.spent.as_nanos() as f64 - own) / self.counting.tokens as f64).max(0.0)
    }
}

impl Receiver for Listening {
    fn piece(&mut self, task: u64, piece: Piece<'_>) {
        self.since.get_or_insert_with(Instant::now);
        self.counting.piece(task, piece);
    }

    fn taken(&mut self, task: u64, taken: Result<(), Failure>) {
        self.counting.taken(task, taken);
    }

    fn go_on(&mut self) -> bool {
        let go_on = self.counting.go_on();
        if let Some(since) = self.since.take() {
            self.spent += since.elapsed();
        }
        go_on
    }

    fn broken(&mut self) {
        self.counting.broken();
    }
}

impl Count for Listening {
    fn receiver(&mut self) -> &mut dyn Receiver {
        self
    }

    fn counted(&mut self) -> &mut Counting {
        &mut self.counting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::More;

    #[test]
    fn what_is_pushed_is_counted_and_what_ends_is_kept() {
        let mut counting = Counting::default();
        counting.piece(1, Piece { tokens: &[5, 6], bytes: &[], more: More::NONE });
        let ended = |finish| More { finish: Some(finish), ..More::NONE.clone() };
        counting.piece(2, Piece { tokens: &[], bytes: &[], more: &ended(Finish::Length) });
        assert!(counting.go_on());
        assert_eq!((counting.tokens, counting.chunks, counting.pushes), (2, 2, 1));
        assert_eq!((counting.ended.as_slice(), &counting.fault), (&[2][..], &None));
        let failure = Failure::fault("backend", "no luck");
        counting.piece(1, Piece { tokens: &[], bytes: &[], more: &ended(Finish::Error(failure)) });
        assert!(counting.fault.is_some_and(|fault| fault.ends_with("no luck")));
    }
}
