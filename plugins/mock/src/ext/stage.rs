//! `cascadia.stage/1`: a pipeline that says the prompt again, a byte at a time. The engine of a builder whose shard is one
//! of several stages.
//!
//! A row of "activations" is the token, its place and the number of stages it has passed; the last stage holds the tokens
//! of all rows and samples byte i of the prompt as token i of the answer. So an answer is right only where every row came
//! through every stage, once, in order. [`head`] is stage 0, [`tail`] the others; both are pure: what they give is left in
//! [`Given`] and handed out without a lock.

mod head;
mod tail;

use std::sync::OnceLock;
use std::time::Duration;

use cascadia_plugin_api::abi::host::dtype;
use cascadia_plugin_api::sdk::{
    Card, Chunk, Engine, Error, Extensions, Load, MaskFiller, Next, Refusal, Result, Sink, Stage, StageBatch,
    StageInfo, StageOut, StageToken, Task, TokenMask, Worker,
};
use parking_lot::Mutex;

use crate::card;
use crate::options::Options;
use head::Head;
use tail::Tail;

/// Values per row: token, place, stages passed, and nothing.
const WIDTH: usize = 4;
/// Tokens per block of the block table.
const BLOCK: usize = 16;

/// One row's values.
type Hidden = [f32; WIDTH];

/// What a step leaves to be given away.
#[derive(Debug, Default)]
struct Given {
    batches: Vec<StageBatch>,
    tokens: Vec<StageToken>,
    refusals: Vec<Refusal>,
    /// Chunks of stage 0: task, tokens, how it ends.
    chunks: Vec<head::Piece>,
}

/// One stage.
pub(crate) struct Stages {
    worker: Worker,
    card: Card,
    info: StageInfo,
    out: OnceLock<StageOut>,
    filler: OnceLock<MaskFiller>,
    role: Mutex<Role>,
}

enum Role {
    Head(Head),
    Tail(Tail),
}

impl Stages {
    /// The stage of that place.
    pub(crate) fn new(worker: Worker, options: &Options, (rank, stages): (u32, u32)) -> Result<Stages> {
        let info = StageInfo {
            rank,
            stages,
            dtype: dtype::F32,
            width: WIDTH as u32,
            max_rows: u32::try_from(options.stage_window).unwrap_or(u32::MAX).saturating_mul(4),
            window: u32::try_from(options.stage_window).unwrap_or(u32::MAX),
        };
        let role = if rank == 0 {
            Role::Head(Head::new(options))
        } else {
            Role::Tail(Tail::new(rank, rank + 1 == stages, options.breaks("stage-silent")))
        };
        let (card, role) = (card::card(options)?, Mutex::new(role));
        Ok(Stages { worker, card, info, out: OnceLock::new(), filler: OnceLock::new(), role })
    }

    /// Stage 0's part, where this is stage 0.
    fn head<T>(&self, body: impl FnOnce(&mut Head) -> Result<T>) -> Result<T> {
        match &mut *self.role.lock() {
            Role::Head(head) => body(head),
            Role::Tail(_) => Err(Error::unsupported("tasks: only stage 0 has them")),
        }
    }

    /// Gives away what a step made; a lost link is for the host to mend by a new epoch.
    fn give(&self, given: &Given, epoch: u64, sink: &mut Sink) {
        let chunks: Vec<Chunk<'_>> = given.chunks.iter().map(head::Piece::chunk).collect();
        sink.push(&chunks);
        let Some(out) = self.out.get() else { return };
        let lost = given.batches.iter().map(|batch| out.batch(batch));
        let lost = lost.chain((!given.tokens.is_empty()).then(|| out.tokens(epoch, &given.tokens)));
        // The link is the host's: it knows already.
        lost.chain(given.refusals.iter().map(|refusal| out.refuse(refusal))).for_each(drop);
    }
}

impl Engine for Stages {
    fn submit(&self, task: Task) -> Result<()> {
        let filler = self.filler.get().is_some();
        self.head(|head| head.submit(task, filler))
    }

    fn step(&self, _budget: Duration, sink: &mut Sink) -> Result<Next> {
        let (given, epoch, more) = match &mut *self.role.lock() {
            Role::Head(head) => {
                head.answer();
                (Given { chunks: head.take_pieces(), ..Given::default() }, head.epoch, true)
            }
            Role::Tail(tail) => {
                let given = tail.step();
                (given, tail.epoch, tail.has_more())
            }
        };
        self.give(&given, epoch, sink);
        // Masks are asked for without the lock, then the batch is planned with it.
        let Ok(asking) = self.head(|head| Ok(head.take_asking())) else {
            return Ok(if more { Next::More } else { Next::Idle });
        };
        let asking = asking.ask(self.filler.get(), self.card.vocab_size);
        let (batch, epoch, more) = self.head(|head| Ok((head.plan(asking), head.epoch, head.has_more())))?;
        let given = Given { batches: batch.into_iter().collect(), ..Given::default() };
        self.give(&given, epoch, sink);
        Ok(if more { Next::More } else { Next::Idle })
    }

    fn cancel(&self, task: u64) {
        // A later stage has no tasks, and unknown ones are fine.
        drop(self.head(|head| {
            head.cancel(task);
            Ok(())
        }));
    }

    fn close(&self, _deadline: Duration) -> Result<()> {
        if let Role::Head(head) = &mut *self.role.lock() {
            head.close();
        }
        Ok(())
    }

    fn card(&self) -> Card {
        self.card.clone()
    }

    fn load(&self) -> Load {
        let running = match &*self.role.lock() {
            Role::Head(head) => head.len(),
            Role::Tail(tail) => tail.len(),
        };
        Load { running: u32::try_from(running).unwrap_or(u32::MAX), ..Load::default() }
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { stage: Some(self), token_mask: Some(self), ..Extensions::default() }
    }
}

impl TokenMask for Stages {
    fn attach(&self, filler: MaskFiller) -> Result<()> {
        self.filler.set(filler).map_err(|_| Error::config("there is a filler already"))
    }
}

impl Stage for Stages {
    fn info(&self) -> StageInfo {
        self.info
    }

    fn attach(&self, out: StageOut) -> Result<()> {
        self.out.set(out).map_err(|_| Error::config("the stage has its neighbours already"))
    }

    fn receive(&self, batch: StageBatch) -> Result<()> {
        if (batch.dtype, batch.width) != (self.info.dtype, self.info.width) {
            let (dtype, width) = (batch.dtype, batch.width);
            return Err(Error::config(format!("rows of {width} values of type {dtype} are not ours")));
        }
        match &mut *self.role.lock() {
            Role::Tail(tail) => tail.receive(batch)?,
            Role::Head(_) => return Err(Error::unsupported("stage before it")),
        }
        self.worker.wake();
        Ok(())
    }

    fn tokens(&self, epoch: u64, tokens: &[StageToken]) -> Result<()> {
        self.head(|head| {
            head.tokens(epoch, tokens);
            Ok(())
        })?;
        self.worker.wake();
        Ok(())
    }

    fn refused(&self, refusal: Refusal) -> Result<()> {
        self.head(|head| {
            head.refused(&refusal);
            Ok(())
        })?;
        self.worker.wake();
        Ok(())
    }

    fn abort(&self, epoch: u64, tasks: &[u64]) -> Result<()> {
        match &mut *self.role.lock() {
            Role::Head(head) => head.abort(epoch),
            Role::Tail(tail) => tail.abort(epoch, tasks),
        }
        self.worker.wake();
        Ok(())
    }
}

/// The rows' values as bytes.
fn pack(rows: impl Iterator<Item = Hidden>) -> Vec<u8> {
    rows.flatten().flat_map(f32::to_le_bytes).collect()
}

/// The values of each row.
fn unpack(payload: &[u8]) -> Vec<Hidden> {
    let value = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let row =
        |bytes: &[u8]| [value(&bytes[..4]), value(&bytes[4..8]), value(&bytes[8..12]), value(&bytes[12..])];
    payload.chunks_exact(4 * WIDTH).map(row).collect()
}

#[cfg(test)]
mod tests;
