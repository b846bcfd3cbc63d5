//! Generations that move to another engine or come from one; all of it between two turns.

use std::ops::Range;

use cascadia_batching::{Entry, Id, Ticket};
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Error, Result, Task};

use super::{Generations, refused};
use crate::generation::Generation;

/// What is kept of a running generation while its state is read.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Tokens of the positions that are computed.
    pub(crate) tokens: Vec<u32>,
    /// Where generated text begins in them.
    pub(crate) generated_from: usize,
    /// Start of its random numbers.
    pub(crate) seed: u64,
    /// As long as it is the same, the full blocks are.
    pub(crate) stay: u64,
    /// The used rows of the last block, where that is not full: they change with the next turn.
    pub(crate) rest: Vec<u8>,
}

impl Generations {
    /// A generation as it is now.
    ///
    /// # Errors
    /// It is not running, or is not one that can move.
    pub(crate) fn kept(&self, task: u64) -> Result<Kept> {
        let living = self.living.get(&task);
        let living = living.ok_or_else(|| Error::config(format!("task {task} is not being generated")))?;
        if living.is_masked() {
            return Err(Error::unsupported("state to move of tasks with token masks"));
        }
        let state = self.scheduler.state(Id(task)).filter(|state| state.positions > 0);
        let state = state.ok_or_else(|| {
            Error::config(format!("task {task} waits for its blocks and has no state; ask again later"))
        })?;
        let size = self.scheduler.limits().block_size;
        let rows = state.positions % size;
        let mut rest = Vec::new();
        if let (true, Some(&last)) = (rows > 0, state.blocks.last()) {
            rest.resize(self.backend.rows_bytes(rows), 0);
            self.backend.read_rows(last, rows, &mut rest).map_err(Error::backend)?;
        }
        Ok(Kept {
            tokens: state.tokens[..state.positions].to_vec(),
            generated_from: state.generated_from,
            seed: living.seed(),
            stay: state.stay,
            rest,
        })
    }

    /// Reads full blocks of a generation, one after the other. False where it is not in that stay any more.
    ///
    /// # Errors
    /// The backend's.
    pub(crate) fn read(&self, task: u64, stay: u64, places: Range<usize>, to: &mut [u8]) -> Result<bool> {
        let Some(state) = self.scheduler.state(Id(task)).filter(|state| state.stay == stay) else {
            return Ok(false);
        };
        let Some(blocks) = state.blocks.get(places) else { return Ok(false) };
        let size = self.scheduler.limits().block_size;
        let each = to.len() / blocks.len().max(1);
        for (&block, to) in blocks.iter().zip(to.chunks_exact_mut(each.max(1))) {
            self.backend.read_rows(block, size, to).map_err(Error::backend)?;
        }
        Ok(true)
    }

    /// Reserves blocks for a task of which `positions` are computed elsewhere.
    ///
    /// # Errors
    /// Why it cannot be taken now.
    pub(crate) fn reserve(&mut self, task: &Task, positions: usize) -> Result<(Ticket, Entry)> {
        let mut entry = self.entry(task.clone());
        // What is told of the prompt was told where it was computed.
        entry.score = false;
        Ok((self.scheduler.reserve(&entry, positions).map_err(refused)?, entry))
    }

    /// Writes the first `rows` rows of reserved blocks, one after the other.
    ///
    /// # Errors
    /// The blocks were needed by others; the backend's.
    pub(crate) fn write(
        &mut self,
        ticket: &Ticket,
        places: Range<usize>,
        rows: usize,
        from: &[u8],
    ) -> Result<()> {
        let blocks = self.scheduler.reserved(ticket).and_then(|blocks| blocks.get(places));
        let blocks = blocks.ok_or_else(|| {
            let message = "the state's blocks were needed by others; submit the task without its state";
            Error::new(code::OUT_OF_MEMORY, message)
        })?;
        let each = from.len() / blocks.len().max(1);
        for (&block, from) in blocks.iter().zip(from.chunks_exact(each.max(1))) {
            self.backend.write_rows(block, rows, from).map_err(Error::backend)?;
        }
        Ok(())
    }

    /// Goes on with a task whose first `positions` are in the reserved blocks now.
    ///
    /// # Errors
    /// Why it cannot be done; nothing of it is kept.
    pub(crate) fn resume(
        &mut self,
        ticket: Ticket,
        entry: Entry,
        task: &Task,
        positions: usize,
        seed: u64,
        now_ns: u64,
    ) -> Result<()> {
        let generation = Generation::new(task, entry.most, self.limits.vocabulary, seed)
            .map_err(|e| Error::config(e.to_string()))?;
        self.scheduler.restore(ticket, entry, positions, now_ns).map_err(refused)?;
        self.living.insert(task.id, generation.moved(positions));
        Ok(())
    }

    /// Gives back the blocks of states that will not come.
    pub(crate) fn sweep(&mut self) {
        self.scheduler.sweep();
    }
}
