//! What other threads leave for the driving one: tasks and cancels; and what they read of it: the load.
//!
//! Holds: a task is `live` from its accepted submit to the step that ends it, and only live tasks are cancelled, so that
//! nothing here grows without bound. Pure: the engine puts a lock around it.

use std::collections::{HashMap, VecDeque};

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Error, Load, Result};

use crate::batch::Batch;
use crate::crash::Crash;
use crate::order::Site;
use crate::run::Run;

/// The waiting tasks, and the load.
#[derive(Debug)]
pub(crate) struct Inbox {
    slots: usize,
    most: usize,
    queue: VecDeque<Run>,
    cancels: Vec<u64>,
    /// Tasks to be held (true) or to go on.
    pauses: Vec<(u64, bool)>,
    /// Every task that was accepted and is not over, and how its cancel crashes.
    live: HashMap<u64, Option<Crash>>,
    load: Load,
    closed: bool,
    broken: Option<Error>,
}

/// What a step left behind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Tasks that left without the host's knowledge.
    pub(crate) lost: u64,
    /// A task waits although there is a slot for it.
    pub(crate) waiting: bool,
}

impl Inbox {
    /// An inbox for `slots` running and `max_waiting` waiting tasks.
    pub(crate) fn new(slots: usize, max_waiting: usize, kv_blocks: u64) -> Inbox {
        Inbox {
            slots,
            most: slots.saturating_add(max_waiting),
            queue: VecDeque::new(),
            cancels: Vec::new(),
            pauses: Vec::new(),
            live: HashMap::new(),
            load: Load { kv_blocks_total: kv_blocks, ..Load::default() },
            closed: false,
            broken: None,
        }
    }

    /// Takes a task, behind those of its priority.
    pub(crate) fn put(&mut self, run: Run) -> Result<()> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        if self.closed {
            return Err(Error::new(code::CLOSED, "the engine is closed"));
        }
        // A task between submit and the next step takes a slot of that step, not a place to wait.
        if self.live.len() >= self.most {
            return Err(Error::queue_full(self.queue.len()));
        }
        let id = run.task.id;
        if self.live.contains_key(&id) {
            return Err(Error::config(format!("task id {id} is in use")));
        }
        self.live.insert(id, run.order.crash(Site::Cancel));
        let behind = self.queue.iter().position(|other| other.task.priority < run.task.priority);
        self.queue.insert(behind.unwrap_or(self.queue.len()), run);
        Ok(())
    }

    /// Notes a cancel; answers the crash that the task brings for it.
    pub(crate) fn cancel(&mut self, task: u64) -> Option<Crash> {
        let crash = *self.live.get(&task)?;
        self.cancels.push(task);
        crash
    }

    /// Notes that a task is to be held, or to go on.
    pub(crate) fn pause(&mut self, task: u64, hold: bool) {
        if self.live.contains_key(&task) {
            self.pauses.push((task, hold));
        }
    }

    /// Whether the engine was closed and nothing is left.
    pub(crate) fn is_over(&self) -> bool {
        self.broken.is_some() || (self.closed && self.live.is_empty())
    }

    /// From now on tasks are refused, and the next step ends those there are.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Hands cancels, and tasks as far as there are slots, to the batch.
    pub(crate) fn hand_over(&mut self, batch: &mut Batch, now: u64) -> Result<()> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        for id in self.cancels.drain(..) {
            match self.queue.iter().position(|run| run.task.id == id) {
                None => batch.cancel(id, now),
                Some(at) if self.queue[at].order.ignore_cancel => {}
                Some(at) => {
                    self.queue.remove(at);
                    batch.withdraw(id, now);
                }
            }
        }
        for (id, hold) in self.pauses.drain(..) {
            match self.queue.iter_mut().find(|run| run.task.id == id) {
                Some(run) => run.paused = hold,
                None => batch.pause(id, hold),
            }
        }
        if self.closed {
            self.queue.drain(..).for_each(|run| batch.withdraw(run.task.id, now));
            batch.end_all();
        }
        while batch.len() < self.slots
            && let Some(run) = self.queue.pop_front()
        {
            batch.admit(run, now);
        }
        self.see(batch);
        Ok(())
    }

    /// Brings the load up to date with a step.
    pub(crate) fn settle(&mut self, batch: &mut Batch) -> Settled {
        self.see(batch);
        let (over, lost) = batch.take_over();
        for id in over {
            self.live.remove(&id);
        }
        Settled { lost, waiting: batch.len() < self.slots && !self.queue.is_empty() }
    }

    /// The engine failed: all tasks are gone, and every later call answers `error`. Answers how many there were.
    pub(crate) fn fail(&mut self, error: Error) -> usize {
        let failed = self.live.len();
        self.queue.clear();
        self.cancels.clear();
        self.pauses.clear();
        self.live.clear();
        self.load = Load { kv_blocks_total: self.load.kv_blocks_total, ..Load::default() };
        self.broken = Some(error);
        failed
    }

    /// The load at this moment.
    pub(crate) fn load(&self) -> Load {
        Load { waiting: count(self.queue.len()), ..self.load }
    }

    fn see(&mut self, batch: &Batch) {
        self.load.running = count(batch.len());
        self.load.kv_blocks_used = batch.blocks();
        self.load.tokens_cached = batch.tokens_cached();
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
