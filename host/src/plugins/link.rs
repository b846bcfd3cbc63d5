//! What a worker and its plugin share: the wake, the heartbeat, the cancel flags, the fault, the open spans, and what it has
//! open to other stages. A plugin names it by address.
//!
//! Links are never freed: a plugin's thread may hold the address for as long as the process lives. There is one per
//! engine ever built.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, RwLock};

use super::isolate::bell::Bell;
use super::spans::Spans;
use super::steps::Steps;
use super::strict::Strict;
use super::transport::{Ends, Limits};

/// One per worker.
pub struct Link {
    /// Id of the plugin, for its metrics.
    pub plugin: String,
    pub(super) heartbeat: AtomicU64,
    pub(super) steps: Steps,
    /// The rules of the worker.
    pub(super) strict: Strict,
    /// Number of wakes so far. It grows under the lock that `changed` is waited for with, and is read without.
    epoch: AtomicU64,
    waiting: Mutex<()>,
    changed: Condvar,
    /// Rung at each wake, for a driver that sleeps on descriptors. It is taken away when its owner ends: links stay.
    bell: Mutex<Option<Arc<Bell>>>,
    flags: Mutex<Flags>,
    ends: Ends,
    fault: Mutex<Fault>,
    /// The fault is one to be told: it is asked for before each step.
    failed: AtomicBool,
    pub(super) spans: Mutex<Spans>,
}

/// What the plugin reported.
#[derive(Default)]
enum Fault {
    #[default]
    None,
    Reported(String),
    Told,
}

#[derive(Default)]
struct Flags {
    by_task: HashMap<u64, &'static AtomicU32>,
    free: Vec<&'static AtomicU32>,
}

impl Link {
    /// A new link, for ever.
    pub fn new(plugin: &str) -> &'static Link {
        let link: &'static Link = Box::leak(Box::new(Link {
            plugin: plugin.to_owned(),
            heartbeat: AtomicU64::new(0),
            steps: Steps::default(),
            strict: Strict::default(),
            epoch: AtomicU64::new(0),
            waiting: Mutex::default(),
            changed: Condvar::new(),
            bell: Mutex::new(None),
            flags: Mutex::default(),
            fault: Mutex::default(),
            failed: AtomicBool::new(false),
            spans: Mutex::default(),
            ends: Ends::new(plugin, Limits::CONTRACT),
        }));
        known().write().insert(std::ptr::from_ref(link) as usize, link);
        link
    }

    /// The link at an address that a plugin gave; none for an address that never was one.
    pub(super) fn at(address: usize) -> Option<&'static Link> {
        known().read().get(&address).copied()
    }

    /// Something happened: a submit, a cancel, a wake.
    pub fn wake(&self) {
        let waiting = self.waiting.lock();
        self.epoch.fetch_add(1, Ordering::AcqRel);
        drop(waiting);
        self.changed.notify_one();
        if let Some(bell) = &*self.bell.lock() {
            bell.ring();
        }
    }

    /// Sets what every wake rings, or takes it away.
    pub(super) fn hang(&self, bell: Option<Arc<Bell>>) {
        *self.bell.lock() = bell;
    }

    /// The plugin says that the engine is lost; the first reason counts.
    pub(super) fn fail(&self, reason: String) {
        let mut fault = self.fault.lock();
        if matches!(*fault, Fault::None) {
            *fault = Fault::Reported(reason);
            self.failed.store(true, Ordering::Release);
        }
        drop(fault);
        self.wake();
    }

    /// Why the engine is lost, if the plugin said so; told once.
    pub fn fault(&self) -> Option<String> {
        if !self.failed.load(Ordering::Acquire) {
            return None;
        }
        let mut fault = self.fault.lock();
        match std::mem::replace(&mut *fault, Fault::Told) {
            Fault::Reported(reason) => Some(reason),
            before => {
                *fault = before;
                None
            }
        }
    }

    /// Ends the spans that the plugin left open; the engine is gone.
    pub fn end_spans(&self) {
        drop(std::mem::take(&mut *self.spans.lock()));
    }

    /// Number of heartbeats so far.
    pub fn heartbeats(&self) -> u64 {
        self.heartbeat.load(Ordering::Relaxed)
    }

    /// Steps that the engine made since the last question, whoever asked.
    pub fn take_steps(&self) -> u64 {
        self.steps.take()
    }

    /// Number of wakes so far. Read it before looking for work, give it to [`Link::wait`] after finding none.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Waits until something happened since `seen`, or until then.
    pub fn wait(&self, seen: u64, until: Instant) {
        let mut waiting = self.waiting.lock();
        while self.epoch() == seen {
            if self.changed.wait_until(&mut waiting, until).timed_out() {
                return;
            }
        }
    }

    /// Lends a cancel flag for a task. The word is never freed, only used again after [`Link::forget`].
    pub fn lend(&self, task: u64) -> &'static AtomicU32 {
        let mut flags = self.flags.lock();
        let flag = flags.free.pop().unwrap_or_else(|| Box::leak(Box::new(AtomicU32::new(0))));
        flag.store(0, Ordering::Relaxed);
        flags.by_task.insert(task, flag);
        flag
    }

    /// Raises the task's flag.
    pub fn raise(&self, task: u64) {
        if let Some(flag) = self.flags.lock().by_task.get(&task) {
            flag.store(1, Ordering::Relaxed);
        }
    }

    /// Whether the task's flag is raised.
    pub(super) fn is_raised(&self, task: u64) -> bool {
        self.flag(task).is_some_and(|flag| flag.load(Ordering::Relaxed) != 0)
    }

    /// The engine has finished the task.
    pub fn forget(&self, task: u64) {
        let mut flags = self.flags.lock();
        if let Some(flag) = flags.by_task.remove(&task) {
            flags.free.push(flag);
        }
    }

    /// Its links to other stages.
    pub(super) fn ends(&'static self) -> &'static Ends {
        &self.ends
    }

    /// Closes its links to other stages and its listeners, for ever: the engine is gone.
    pub fn close_links(&self) {
        self.ends.close();
    }

    /// Closes them when dropped, unless the engine that they are for was built.
    pub(super) fn until_built(&'static self) -> Unbuilt {
        Unbuilt { link: Some(self) }
    }

    pub(super) fn flag(&self, task: u64) -> Option<&'static AtomicU32> {
        self.flags.lock().by_task.get(&task).copied()
    }
}

/// Closes the links of a worker whose engine does not come to be.
pub(super) struct Unbuilt {
    link: Option<&'static Link>,
}

impl Unbuilt {
    /// The engine is there; it closes them.
    pub(super) fn built(mut self) {
        self.link = None;
    }
}

impl Drop for Unbuilt {
    fn drop(&mut self) {
        if let Some(link) = self.link {
            link.close_links();
        }
    }
}

fn known() -> &'static RwLock<HashMap<usize, &'static Link>> {
    static KNOWN: OnceLock<RwLock<HashMap<usize, &'static Link>>> = OnceLock::new();
    KNOWN.get_or_init(RwLock::default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_wake_between_looking_and_waiting_is_not_lost() {
        let link = Link::new("test");
        let seen = link.epoch();
        link.wake();
        let begun = Instant::now();
        link.wait(seen, begun + Duration::from_secs(60));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn links_are_closed_unless_the_engine_was_built() {
        let metrics = crate::telemetry::metrics::Metrics::new();
        let listen = |link: &'static Link| link.ends().listen(":0", "test", &metrics.transport);
        let given_up = Link::new("test");
        let unbuilt = given_up.until_built();
        let (handle, _) = listen(given_up).expect("open");
        drop(unbuilt);
        assert!(!crate::plugins::transport::is_open(handle));
        assert!(listen(given_up).is_err());
        let built = Link::new("test");
        built.until_built().built();
        let (handle, _) = listen(built).expect("open");
        built.close_links();
        assert!(!crate::plugins::transport::is_open(handle));
    }

    #[test]
    fn a_flag_is_lent_clean_again() {
        let link = Link::new("test");
        let flag = link.lend(1);
        link.raise(1);
        assert_eq!(flag.load(Ordering::Relaxed), 1);
        link.forget(1);
        assert!(link.flag(1).is_none());
        assert_eq!(link.lend(2).load(Ordering::Relaxed), 0);
    }
}
