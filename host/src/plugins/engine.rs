//! What drives a running engine, wherever it runs: in this process (`handle`) or in one of its own (`isolate`).
//!
//! Requests go in as `generate::Request`, what comes out is `generate::Piece`; nothing of the boundary is seen here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::link::Link;
use crate::generate::{Failure, Piece, Request};
use crate::prompt::words::Words;

/// Takes what an engine says during a step.
pub trait Receiver {
    /// One chunk; quick, called with the plugin waiting.
    fn piece(&mut self, task: u64, piece: Piece<'_>);
    /// The answer to a submit that said [`Taken::Later`].
    fn taken(&mut self, task: u64, taken: Result<(), Failure>);
    /// A batch is over; false when the engine should return at once.
    fn go_on(&mut self) -> bool;
    /// A chunk that could not be read.
    fn broken(&mut self);
}

/// What became of a task that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The engine has it.
    Now,
    /// The engine will say; before that nothing comes for the task.
    Later,
}

/// What a step left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Step again now.
    More,
    /// Nothing until something happens.
    Idle,
    /// Nothing until then.
    Until(Instant),
}

/// A worker's load as its engine reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Tasks in generation.
    pub running: u32,
    /// Tasks accepted and not begun.
    pub waiting: u32,
    /// Blocks in use.
    pub kv_blocks_used: u64,
    /// Blocks there are.
    pub kv_blocks_total: u64,
    /// Tokens held by the prefix cache.
    pub tokens_cached: u64,
}

/// A running engine. One thread at a time submits and steps, and closes it after its last step.
pub trait Engine: Send + Sync {
    /// The engine's side of the wake, the flags and the heartbeat.
    fn link(&self) -> &'static Link;

    /// The process it runs in, where that is not this one.
    fn process(&self) -> Option<u32> {
        None
    }

    /// `[any]` Hands a task over under this id.
    fn submit(&self, id: u64, request: &Request) -> Result<Taken, Failure>;

    /// `[drive]` One step; an error means that the engine as a whole failed. Boxed: what nearly every step answers fits two
    /// registers.
    fn step(&self, receiver: &mut dyn Receiver) -> Result<Next, Box<Failure>>;

    /// `[any]` Asks for the end of a task, and wakes the driver. Does not block.
    fn cancel(&self, id: u64);

    /// `[any]` The load, where the engine reports it. Does not block.
    fn load(&self) -> Load;

    /// The engine's own tokenizer, where its plugin offers one. Usable from any thread; fails once the engine is closed.
    fn words(&self) -> Option<Arc<dyn Words>> {
        None
    }

    /// `[control]` Ends all work and frees the engine; called by the driving thread after its last step.
    fn close(&self, deadline: Duration) -> Result<(), Failure>;
}
