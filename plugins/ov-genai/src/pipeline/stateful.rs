//! A model in one piece: one generation at a time, on a thread of its own, since the library gives tokens only from
//! inside the call that lasts as long as the generation.
//!
//! Invariants: tokens belong to the generation that was begun last; those of one that was cancelled are dropped, and it
//! ends with the token that it computes. The last token of a generation comes together with its end.
//! Any device, and no prefix cache, no blocks, no log-probabilities: nothing is kept from one generation to the next.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Progress;
use super::fault::Error;
use super::sampling::Sampling;
use super::setup::{Opening, Options};
use crate::ffi::{self, Shim, value::Entry};

/// A model, open.
pub(crate) struct Stateful {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

/// Where the engine's thread and the library's meet.
#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    /// Anything of the state that someone waits for.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of the generation whose tokens are wanted.
    wanted: u64,
    /// What is to be begun.
    job: Option<Job>,
    tokens: Vec<i64>,
    /// How the wanted generation ended.
    end: Option<Result<Progress, String>>,
    /// Nothing will be begun any more: the thread ended, or is to end.
    closed: bool,
}

struct Job {
    number: u64,
    prompt: Vec<i64>,
    settings: Vec<Entry>,
    last: Last,
}

/// Which token is the last one.
#[derive(Debug)]
struct Last {
    stops: Vec<i64>,
    most: usize,
    seen: usize,
    /// It came.
    over: bool,
    /// How a generation ended that had no last token.
    otherwise: Progress,
}

impl Last {
    fn of(sampling: &Sampling) -> Last {
        let stops = sampling.stops();
        // The model's own end of text, which we do not know; else a device with a window ended it before `max_tokens`.
        let unknown = stops.is_empty() && !sampling.ignore_eos;
        let otherwise = if unknown { Progress::Stop } else { Progress::Length };
        Last { stops, most: sampling.max_tokens, seen: 0, over: false, otherwise }
    }

    /// Counts a token; how it ends the generation, where it does.
    fn count(&mut self, id: i64) -> Option<Progress> {
        self.seen += 1;
        let how = match () {
            () if self.stops.contains(&id) => Some(Progress::Stop),
            () if self.seen >= self.most => Some(Progress::Length),
            () => None,
        };
        self.over = how.is_some();
        how
    }
}

impl Stateful {
    /// Loads the model; takes seconds. `spawn` starts the thread.
    ///
    /// # Errors
    /// What the library says of the path, the device or a property; that its version is unknown; or that there is no
    /// thread.
    pub(crate) fn open(
        shim: &Arc<Shim>,
        options: &Options,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>>,
    ) -> Result<Self, Error> {
        let Opening { path, device, properties } = options.opening()?;
        let model = ffi::stateful::Stateful::open(shim, &path, &device, &properties, options.allow_untested)
            .map_err(|reason| options.fault(reason))?;
        let desk = Arc::<Desk>::default();
        let own = Arc::clone(&desk);
        let thread = spawn(Box::new(move || own.work(model)))
            .map_err(|e| options.fault(format!("no thread for its generations: {e}")))?;
        Ok(Self { desk, thread: Some(thread) })
    }

    /// Begins a generation; one that still runs is cancelled.
    ///
    /// # Errors
    /// When the prompt is empty or a setting has a zero byte.
    pub(crate) fn begin(&mut self, prompt: &[u32], sampling: &Sampling) -> Result<(), Error> {
        if prompt.is_empty() {
            return Err(Error::Add { reason: "the prompt is empty".to_owned() });
        }
        let (settings, last) = (sampling.entries()?, Last::of(sampling));
        let prompt = prompt.iter().copied().map(i64::from).collect();
        let mut state = self.desk.state.lock();
        state.forget();
        state.job = Some(Job { number: state.wanted, prompt, settings, last });
        self.desk.changed.notify_all();
        Ok(())
    }

    /// Appends the tokens that came since the last call, after waiting for one at most that long; the stop id that ended
    /// a generation is the last of them.
    ///
    /// # Errors
    /// When the library threw, which ends the generation, or its thread is gone.
    pub(crate) fn poll(&mut self, into: &mut Vec<u32>, wait: Duration) -> Result<Progress, Error> {
        let until = Instant::now() + wait;
        let mut state = self.desk.state.lock();
        while state.tokens.is_empty() && state.end.is_none() && !state.closed {
            if self.desk.changed.wait_until(&mut state, until).timed_out() {
                return Ok(Progress::Running);
            }
        }
        for id in state.tokens.drain(..) {
            into.push(u32::try_from(id).map_err(|_| Error::Token { id })?);
        }
        match state.end.take() {
            Some(Ok(progress)) => Ok(progress),
            Some(Err(reason)) => Err(Error::Step { reason }),
            None if state.closed => {
                Err(Error::Step { reason: "the thread of its generations ended".to_owned() })
            }
            None => Ok(Progress::Running),
        }
    }

    /// Ends the generation with the token that it computes; no token comes after.
    pub(crate) fn cancel(&mut self) {
        self.desk.state.lock().forget();
    }
}

impl Drop for Stateful {
    /// Waits for the token that is being computed.
    fn drop(&mut self) {
        let mut state = self.desk.state.lock();
        state.forget();
        state.closed = true;
        self.desk.changed.notify_all();
        drop(state);
        if let Some(thread) = self.thread.take() {
            // What it panicked of was reported where it was started.
            drop(thread.join());
        }
    }
}

impl State {
    fn forget(&mut self) {
        self.wanted += 1;
        self.job = None;
        self.tokens.clear();
        self.end = None;
    }
}

impl Desk {
    /// The thread's whole life.
    fn work(&self, mut model: ffi::stateful::Stateful) {
        // However it ends, nobody waits for it.
        let _closes = Closes(self);
        while let Some(job) = self.next() {
            let Job { number, prompt, settings, mut last } = job;
            let ran = model.run(&prompt, &settings, &mut |ids| self.take(number, ids, &mut last));
            self.end(number, ran, &last);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.job.take() {
                return Some(job);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Takes tokens of a generation; whether it goes on.
    fn take(&self, number: u64, ids: &[i64], last: &mut Last) -> bool {
        let mut state = self.state.lock();
        if state.wanted != number {
            return false;
        }
        for &id in ids {
            // What the library computes behind the last token is not part of the answer.
            if last.over {
                break;
            }
            let how = last.count(id);
            state.tokens.push(id);
            state.end = how.map(Ok);
        }
        self.changed.notify_all();
        !last.over
    }

    fn end(&self, number: u64, ran: Result<(), String>, last: &Last) {
        let mut state = self.state.lock();
        if state.wanted != number || last.over {
            return;
        }
        state.end = Some(ran.map(|()| last.otherwise));
        self.changed.notify_all();
    }
}

/// Says that nothing will be begun any more, whatever ended the thread.
struct Closes<'a>(&'a Desk);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_all();
    }
}
