//! What a worker and its plugin share: the wake, the heartbeat, the cancel flags. A plugin names it by address.
//!
//! Links are never freed: a plugin's thread may hold the address for as long as the process lives. There is one per
//! engine ever built.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, RwLock};

use super::isolate::bell::Bell;

/// One per worker.
pub struct Link {
    /// Id of the plugin, for its metrics.
    pub plugin: String,
    pub(super) heartbeat: AtomicU64,
    /// Steps of the engine, and how many of them were asked for.
    steps: AtomicU64,
    taken: AtomicU64,
    epoch: Mutex<u64>,
    changed: Condvar,
    /// Rung at each wake, for a driver that sleeps on descriptors. It is taken away when its owner ends: links stay.
    bell: Mutex<Option<Arc<Bell>>>,
    flags: Mutex<Flags>,
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
            steps: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            epoch: Mutex::new(0),
            changed: Condvar::new(),
            bell: Mutex::new(None),
            flags: Mutex::default(),
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
        *self.epoch.lock() += 1;
        self.changed.notify_one();
        if let Some(bell) = &*self.bell.lock() {
            bell.ring();
        }
    }

    /// Sets what every wake rings, or takes it away.
    pub(super) fn hang(&self, bell: Option<Arc<Bell>>) {
        *self.bell.lock() = bell;
    }

    /// Number of heartbeats so far.
    pub fn heartbeats(&self) -> u64 {
        self.heartbeat.load(Ordering::Relaxed)
    }

    /// The engine made so many steps. Said by its driver alone, and so without a locked instruction, which would cost as much
    /// as the rest of a short step.
    pub(super) fn add_steps(&self, n: u64) {
        self.steps.store(self.steps.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Steps that the engine made since the last question. One asks at a time.
    pub fn take_steps(&self) -> u64 {
        let all = self.steps.load(Ordering::Relaxed);
        all.saturating_sub(self.taken.swap(all, Ordering::Relaxed))
    }

    /// Number of wakes so far. Read it before looking for work, give it to [`Link::wait`] after finding none.
    pub fn epoch(&self) -> u64 {
        *self.epoch.lock()
    }

    /// Waits until something happened since `seen`, or until then.
    pub fn wait(&self, seen: u64, until: Instant) {
        let mut epoch = self.epoch.lock();
        while *epoch == seen {
            if self.changed.wait_until(&mut epoch, until).timed_out() {
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

    pub(super) fn flag(&self, task: u64) -> Option<&'static AtomicU32> {
        self.flags.lock().by_task.get(&task).copied()
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
