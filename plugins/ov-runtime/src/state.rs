//! Moves a running sequence: its state goes out to who asks, or comes in and goes on here.
//!
//! Both work on the caller's thread, which may wait for a slow peer, and visit the engine between two of its steps, a few MiB a
//! visit. The bytes: the tokens of the positions (32 bits each), whole blocks in their order, the used rows of the last one.
//! What holds: a state is taken whole or not at all; what is wrong with it is refused by the key of its descriptor, never
//! believed and never fatal; it is of no use to any other sequence. Knows neither the boundary's tables nor the library.

mod descriptor;
mod restore;
mod save;
#[cfg(test)]
mod tests;
mod weights;

use std::time::Duration;

use cascadia_plugin_api::sdk::{KvReader, KvWriter, Result, Serial, Task};

use crate::engine::Batched;
use crate::generations::Generations;

pub(crate) use descriptor::Form;
pub(crate) use restore::restore;
pub(crate) use save::save;
pub(crate) use weights::Weights;

/// Bytes that cross at once, and that a visit moves: at least a block, and a few milliseconds.
const PIECE: usize = if cfg!(test) { 64 } else { 4 << 20 };
/// Longest wait for the end of a step.
const WAIT: Duration = Duration::from_secs(30);

/// An engine between two of its steps.
pub(crate) trait Between {
    /// Shows what it has.
    ///
    /// # Errors
    /// No step came to its end in time.
    fn visit<R>(&self, see: impl FnOnce(&mut Generations) -> R) -> Result<R>;

    /// Refuses a task as if it were submitted.
    ///
    /// # Errors
    /// Why.
    fn check(&self, task: &Task) -> Result<()>;

    /// Begins a task in a visit.
    ///
    /// # Errors
    /// Those of the visit, of `begin`, and of an engine that is full or closed.
    fn adopt(&self, task: u64, begin: impl FnOnce(&mut Generations) -> Result<()>) -> Result<()>;
}

impl Between for Serial<Batched> {
    fn visit<R>(&self, see: impl FnOnce(&mut Generations) -> R) -> Result<R> {
        Serial::visit(self, WAIT, |engine| see(engine.generations()))
    }

    fn check(&self, task: &Task) -> Result<()> {
        Serial::check(self, task)
    }

    fn adopt(&self, task: u64, begin: impl FnOnce(&mut Generations) -> Result<()>) -> Result<()> {
        Serial::adopt(self, task, WAIT, |engine| begin(engine.generations()))
    }
}

/// Who takes a state: its descriptor, then its bytes in order.
pub(crate) trait Receiver {
    fn describe(&mut self, descriptor: &str) -> Result<()>;
    fn chunk(&mut self, bytes: &[u8]) -> Result<()>;
}

impl Receiver for KvWriter {
    fn describe(&mut self, descriptor: &str) -> Result<()> {
        KvWriter::describe(self, descriptor)
    }

    fn chunk(&mut self, bytes: &[u8]) -> Result<()> {
        KvWriter::chunk(self, bytes)
    }
}

/// Who gives one.
pub(crate) trait Giver {
    fn descriptor(&self) -> &str;
    /// At most so many bytes from there on; none = the end.
    fn read(&self, offset: u64, most: u64) -> Result<Vec<u8>>;
}

impl Giver for KvReader<'_> {
    fn descriptor(&self) -> &str {
        self.descriptor
    }

    fn read(&self, offset: u64, most: u64) -> Result<Vec<u8>> {
        KvReader::read(self, offset, most)
    }
}
