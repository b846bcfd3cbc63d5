//! `cascadia.async-sink/1`: the same engine on a thread of its own, which begins when the sink is attached and has ended
//! when `close` returns.

use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use cascadia_plugin_api::sdk::{AsyncSink, Chunk, Error, Next, OpenSink, Result, now_ns, spawn};
use parking_lot::{Condvar, Mutex};

use crate::engine::Mock;

/// The engine's own thread, if it has one.
#[derive(Default)]
pub(crate) struct OwnThread {
    sink: OnceLock<AsyncSink>,
    thread: Mutex<Option<JoinHandle<()>>>,
    bell: Mutex<u64>,
    rung: Condvar,
}

impl OwnThread {
    /// Whether the engine works by itself.
    pub(crate) fn is_on(&self) -> bool {
        self.sink.get().is_some()
    }

    /// There may be something to do.
    pub(crate) fn ring(&self) {
        *self.bell.lock() += 1;
        self.rung.notify_all();
    }

    /// Waits for the thread's end; called after the engine was told to close.
    pub(crate) fn join(&self, broken: &str) {
        self.ring();
        let Some(thread) = self.thread.lock().take() else { return };
        // Its panic was reported when it happened.
        drop(thread.join());
        if let (Some(sink), "async-late") = (self.sink.get().copied(), broken) {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                sink.sink().push(&[Chunk { task: u64::MAX, ..Chunk::default() }]);
            });
        }
    }

    fn wait(&self, seen: u64, limit: Duration) {
        let mut bell = self.bell.lock();
        if *bell == seen {
            self.rung.wait_for(&mut bell, limit);
        }
    }
}

impl OpenSink for Mock {
    fn attach(&self, sink: AsyncSink) -> Result<()> {
        self.own.sink.set(sink).map_err(|_| Error::config("there is a sink already"))?;
        let me = Weak::clone(&self.me);
        let thread = spawn(self.worker, "mock engine", move || run(&me, sink));
        let thread = thread.map_err(|e| Error::backend(format!("no thread: {e}")))?;
        *self.own.thread.lock() = Some(thread);
        Ok(())
    }
}

fn run(me: &Weak<Mock>, sink: AsyncSink) {
    /// An idle engine looks again after this long, rung or not.
    const IDLE: Duration = Duration::from_millis(200);
    let mut sink = sink.sink();
    while let Some(mock) = Weak::upgrade(me) {
        let seen = *mock.own.bell.lock();
        let next = match mock.turn(&mut sink) {
            Ok(next) => next,
            Err(error) => return mock.worker.fault(&error.message),
        };
        let limit = match next {
            Next::More => Duration::ZERO,
            Next::Idle => IDLE,
            Next::Until(at) => Duration::from_nanos(at.saturating_sub(now_ns())).min(IDLE),
        };
        if next != Next::More && mock.is_over() {
            return;
        }
        if limit > Duration::ZERO {
            mock.own.wait(seen, limit);
        }
        // The engine must not be freed by its own thread.
        if Arc::strong_count(&mock) == 1 {
            return;
        }
    }
}
