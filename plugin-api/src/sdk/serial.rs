//! For engines that want one thread and `&mut self`: [`Serial`] queues what comes from other threads and hands it over
//! at the next step. It has no extensions: an engine with some implements [`Engine`] itself around it, and has
//! [`Serial::visit`] for what its extensions want of the engine between two steps.

#![expect(
    clippy::disallowed_types,
    reason = "the SDK brings no crate into a plugin; poison is handled in `lock`"
)]

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

mod turns;

use turns::Turns;

use super::{Card, Engine, Error, Load, Next, Progress, Result, Sink, Task};

/// An engine that only the driving thread touches.
pub trait SerialEngine: Send {
    /// Runs what the first request would otherwise pay for.
    fn warmup(&mut self, _progress: &Progress) -> Result<()> {
        Ok(())
    }

    /// Refuses a task at once, on the caller's thread, from what never changes (window, options).
    fn check(limits: &Self::Limits, task: &Task) -> Result<()>;

    /// What [`SerialEngine::check`] needs.
    type Limits: Send + Sync;

    /// Those limits, asked once.
    fn limits(&self) -> Self::Limits;

    /// Begins a task. A failure becomes the task's error chunk, which the engine pushes itself.
    fn start(&mut self, task: Task, sink: &mut Sink);

    /// Does a piece of work.
    fn step(&mut self, budget: Duration, sink: &mut Sink) -> Result<Next>;

    /// Ends a task and pushes its finish. Unknown and ended ids are fine.
    fn cancel(&mut self, task: u64, sink: &mut Sink);

    /// Whether another task can begin now; tasks wait in the queue until it can.
    fn has_room(&self) -> bool;

    /// What the model is and can do; asked once.
    fn card(&self) -> Card;

    /// The load, without the tasks that wait in the queue.
    fn load(&self) -> Load;
}

#[derive(Default)]
struct Inbox {
    tasks: VecDeque<Task>,
    cancels: Vec<u64>,
    /// Tasks in the engine that have had no finish.
    running: BTreeSet<u64>,
    closed: bool,
}

/// Makes an [`Engine`] of a [`SerialEngine`].
pub struct Serial<E: SerialEngine> {
    inbox: Mutex<Inbox>,
    /// Locked by whose turn it is, who never waits for it.
    engine: Mutex<E>,
    turns: Turns,
    load: Mutex<Load>,
    limits: E::Limits,
    card: Card,
    max_waiting: usize,
}

impl<E: SerialEngine> Serial<E> {
    /// Wraps `engine`; at most `max_waiting` tasks wait for a place in it, where its card does not say how many it takes.
    pub fn new(engine: E, max_waiting: usize) -> Serial<E> {
        let (limits, card, load) = (engine.limits(), engine.card(), engine.load());
        Serial {
            inbox: Mutex::default(),
            engine: Mutex::new(engine),
            turns: Turns::default(),
            load: Mutex::new(load),
            limits,
            card,
            max_waiting,
        }
    }

    /// Refuses a task that [`Engine::submit`] would refuse now.
    ///
    /// # Errors
    /// Why.
    pub fn check(&self, task: &Task) -> Result<()> {
        E::check(&self.limits, task)?;
        self.refuse(&lock(&self.inbox))
    }

    /// Shows `see` the engine between two steps, on this thread. Nothing may be pushed there. Steps go on between two
    /// visits, and wait for the end of one: keep it to a few milliseconds.
    ///
    /// # Errors
    /// No step came to its end within that time.
    pub fn visit<R>(&self, within: Duration, see: impl FnOnce(&mut E) -> R) -> Result<R> {
        let Some(_turn) = self.turns.visit(within) else {
            let message = format!("no step came to its end within {} ms", within.as_millis());
            return Err(Error::new(crate::abi::code::DEADLINE_EXCEEDED, message));
        };
        let mut engine = lock(&self.engine);
        let seen = see(&mut engine);
        *lock(&self.load) = engine.load();
        Ok(seen)
    }

    /// Takes a task otherwise than by [`SerialEngine::start`]: `begin` has it running when it answers OK, and its finish
    /// is owed from then on.
    ///
    /// # Errors
    /// Those of [`Serial::visit`] and of `begin`; the engine is closed, full, or has a task of this id. Nothing is kept.
    pub fn adopt(&self, task: u64, within: Duration, begin: impl FnOnce(&mut E) -> Result<()>) -> Result<()> {
        self.visit(within, |engine| {
            let mut inbox = lock(&self.inbox);
            self.refuse(&inbox)?;
            if inbox.tasks.iter().any(|other| other.id == task) || !inbox.running.insert(task) {
                return Err(Error::config(format!("task {task} is being generated already")));
            }
            drop(inbox);
            begin(engine).inspect_err(|_| {
                lock(&self.inbox).running.remove(&task);
            })
        })?
    }

    fn refuse(&self, inbox: &Inbox) -> Result<()> {
        if inbox.closed {
            return Err(Error::new(crate::abi::code::CLOSED, "the engine is closed"));
        }
        // The card says how many it takes at once; what waits beside what runs is up to the engine.
        let most = usize::try_from(self.card.max_tasks).unwrap_or(usize::MAX);
        let held = inbox.tasks.len() + inbox.running.len();
        if if most > 0 { held >= most } else { inbox.tasks.len() >= self.max_waiting } {
            return Err(Error::queue_full(inbox.tasks.len()));
        }
        Ok(())
    }
}

impl<E: SerialEngine> Engine for Serial<E> {
    fn warmup(&self, progress: &Progress) -> Result<()> {
        let _turn = self.turns.drive();
        lock(&self.engine).warmup(progress)
    }

    fn submit(&self, task: Task) -> Result<()> {
        E::check(&self.limits, &task)?;
        let mut inbox = lock(&self.inbox);
        self.refuse(&inbox)?;
        inbox.tasks.push_back(task);
        Ok(())
    }

    fn step(&self, budget: Duration, sink: &mut Sink) -> Result<Next> {
        let _turn = self.turns.drive();
        let mut engine = lock(&self.engine);
        sink.ended = Some(Vec::new());
        loop {
            // The inbox is never held while the engine works or pushes: submit and cancel must not wait for either.
            let mut inbox = lock(&self.inbox);
            let mut cancels = std::mem::take(&mut inbox.cancels);
            if inbox.closed {
                cancels.extend(inbox.tasks.iter().map(|task| task.id));
                cancels.extend(&inbox.running);
            }
            let withdrawn = withdraw(&mut inbox.tasks, &cancels);
            let next = if engine.has_room() { inbox.tasks.pop_front() } else { None };
            inbox.running.extend(next.as_ref().map(|task| task.id));
            drop(inbox);
            for task in &withdrawn {
                sink.push(&[super::Chunk {
                    task: *task,
                    finish: super::Finish::Cancelled,
                    ..Default::default()
                }]);
            }
            for task in cancels.iter().filter(|t| !withdrawn.contains(t)) {
                engine.cancel(*task, sink);
            }
            match next {
                Some(task) => engine.start(task, sink),
                None => break,
            }
        }
        let next = engine.step(budget, sink);
        *lock(&self.load) = engine.load();
        let mut inbox = lock(&self.inbox);
        for task in sink.ended.take().unwrap_or_default() {
            inbox.running.remove(&task);
        }
        match next {
            // The engine does not know of those that wait for the room it has now.
            Ok(Next::Idle | Next::Until(_)) if !inbox.tasks.is_empty() && engine.has_room() => Ok(Next::More),
            next => next,
        }
    }

    fn close(&self, _deadline: Duration) -> Result<()> {
        // The next step ends them: finishes are pushed from inside a step only.
        lock(&self.inbox).closed = true;
        Ok(())
    }

    fn cancel(&self, task: u64) {
        lock(&self.inbox).cancels.push(task);
    }

    fn card(&self) -> Card {
        self.card.clone()
    }

    fn load(&self) -> Load {
        let mut load = *lock(&self.load);
        load.waiting += u32::try_from(lock(&self.inbox).tasks.len()).unwrap_or(u32::MAX);
        load
    }
}

/// Takes cancelled tasks out of the queue; answers their ids.
fn withdraw(tasks: &mut VecDeque<Task>, cancels: &[u64]) -> Vec<u64> {
    if cancels.is_empty() {
        return Vec::new();
    }
    let mut gone = Vec::new();
    tasks.retain(|task| {
        let hit = cancels.contains(&task.id);
        if hit {
            gone.push(task.id);
        }
        !hit
    });
    gone
}

/// A panic in the engine is caught at the boundary; the next call sees a poisoned lock and the host rebuilds.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::code;

    const LONG: Duration = Duration::from_secs(60);

    /// Counts the tasks that were begun.
    struct Counting(u32);

    impl SerialEngine for Counting {
        type Limits = ();

        fn check(_: &(), task: &Task) -> Result<()> {
            if task.tokens.is_empty() { Err(Error::config("no tokens")) } else { Ok(()) }
        }

        fn limits(&self) {}

        fn start(&mut self, _: Task, _: &mut Sink) {}

        fn step(&mut self, _: Duration, _: &mut Sink) -> Result<Next> {
            Ok(Next::Idle)
        }

        fn cancel(&mut self, _: u64, _: &mut Sink) {}

        fn has_room(&self) -> bool {
            true
        }

        fn card(&self) -> Card {
            Card { max_tasks: 3, ..Card::default() }
        }

        fn load(&self) -> Load {
            Load { running: self.0, ..Load::default() }
        }
    }

    fn begin(engine: &mut Counting) -> Result<()> {
        engine.0 += 1;
        Ok(())
    }

    #[test]
    fn a_task_is_adopted_once_within_the_bounds_and_counted_as_one_that_was_submitted() {
        let serial = Serial::new(Counting(0), 9);
        let task = |id| Task { id, tokens: vec![1], ..Task::default() };
        assert!(serial.check(&Task::default()).is_err_and(|e| e.message == "no tokens"));
        let failed = serial.adopt(1, LONG, |_| Err(Error::backend("broken")));
        assert!(failed.is_err_and(|e| e.message == "broken"));
        assert_eq!(serial.adopt(1, LONG, begin), Ok(()), "nothing was kept of the one that failed");
        assert_eq!(serial.load().running, 1);
        assert_eq!(serial.adopt(1, LONG, begin).unwrap_err().code, code::INVALID_CONFIG);
        assert_eq!(serial.submit(task(2)), Ok(()));
        assert_eq!(serial.adopt(2, LONG, begin).unwrap_err().code, code::INVALID_CONFIG);
        assert_eq!(serial.adopt(3, LONG, begin), Ok(()));
        for refused in [serial.adopt(4, LONG, begin), serial.submit(task(4)), serial.check(&task(4))] {
            assert_eq!(refused.unwrap_err().code, code::QUEUE_FULL);
        }
        assert_eq!(serial.close(LONG), Ok(()));
        assert_eq!(serial.adopt(5, LONG, begin).unwrap_err().code, code::CLOSED);
        assert_eq!(serial.visit(LONG, |engine| engine.0), Ok(2));
    }

    #[test]
    fn a_visit_that_does_not_get_its_turn_in_time_says_so() {
        let serial = Serial::new(Counting(0), 9);
        let _step = serial.turns.drive();
        let late = serial.visit(Duration::from_millis(2), |_| ()).unwrap_err();
        assert_eq!((late.code, late.message.contains("2 ms")), (code::DEADLINE_EXCEEDED, true));
    }
}
