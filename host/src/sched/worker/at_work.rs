//! What the engine's thread alone knows of its tasks, so that a piece finds its flight without a lock.
//!
//! What must hold: a task is here from before its submit until its finish or refusal. Others end its flight whenever they want:
//! what the engine still gives to that goes nowhere.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::task::Waker;

use super::gathering::Pace;
use crate::sched::Flight;

/// A table by task.
pub(super) type ByTask<T> = HashMap<u64, T, BuildHasherDefault<TaskHasher>>;

/// Spreads task ids over the table. They are the host's own numbers, so nobody can choose them to collide.
#[derive(Default)]
pub(super) struct TaskHasher(u64);

impl Hasher for TaskHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// The engine's tasks, as its thread has them.
#[derive(Default)]
pub(super) struct AtWork {
    pub(super) flights: ByTask<Arc<Flight>>,
    /// Tasks the host has ended inside a push, where the engine may not be called.
    pub(super) cancels: Vec<u64>,
    pub(super) pace: Pace,
    /// Who waits for what a push brought. They are woken together at its end: a body that runs at once, on another
    /// core, would wait for the locks of the pieces that are still to be delivered.
    pub(super) wakers: Vec<Waker>,
}
