//! Tells which of the things that a task waits for has woken it. With every token a connection's task runs, and what else it
//! waits for (its client's bytes, its cancellation) need not be asked each time.
//!
//! What must hold: who asks with [`Bell::waker`] and is told to wait is not asked again before the bell rang.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

/// Wakes a task, and remembers that it did.
pub(super) struct Bell {
    task: Waker,
    rung: AtomicBool,
}

impl Bell {
    /// The bell of the task that `waker` wakes, in its place: a new one, which has rung, for the first question and for
    /// another task.
    pub(super) fn of<'a>(place: &'a mut Option<Arc<Bell>>, waker: &Waker) -> &'a Arc<Bell> {
        if place.as_ref().is_some_and(|bell| !bell.task.will_wake(waker)) {
            *place = None;
        }
        place.get_or_insert_with(|| Arc::new(Bell { task: waker.clone(), rung: AtomicBool::new(true) }))
    }

    /// Whether it rang since it was asked last.
    pub(super) fn rang(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::AcqRel)
    }

    /// What rings it.
    pub(super) fn waker(self: &Arc<Bell>) -> Waker {
        Arc::clone(self).into()
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Bell>) {
        self.rung.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Woken>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_bell_rings_once_for_each_task_and_whenever_it_is_rung() {
        let tasks: [Arc<Woken>; 2] = Default::default();
        let wakers = tasks.clone().map(Waker::from);
        let mut place = None;
        let bell = Arc::clone(Bell::of(&mut place, &wakers[0]));
        assert!(bell.rang(), "it was never asked");
        assert!(!bell.rang());
        bell.waker().wake();
        assert!(Arc::ptr_eq(&bell, Bell::of(&mut place, &wakers[0])), "of the same task it is the same");
        assert!(bell.rang() && !bell.rang());
        let other = Arc::clone(Bell::of(&mut place, &wakers[1]));
        assert!(other.rang(), "another task has not asked");
        other.waker().wake_by_ref();
        assert!(other.rang() && !bell.rang());
        assert_eq!(tasks.map(|task| task.0.load(Ordering::Relaxed)), [1, 1]);
    }
}
