//! `cascadia.stage/1` for authors: owned batches in, borrowed callbacks out. [`crate::ext::draft::stage`] has the contract.
#![expect(unsafe_code, reason = "the plugin's side of the table")]

use core::ffi::c_void;

use super::with_extension;
use crate::abi::code;
use crate::abi::host::dtype;
use crate::abi::prim::{Array, ErrOut, Str};
use crate::ext::draft::stage as wire;
use crate::sdk::{Error, Result};

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Row {
    /// The task.
    pub task: u64,
    /// Place of the token in its sequence.
    pub position: u64,
    /// Index into [`StageBatch::sequences`].
    pub sequence: u32,
    /// The last stage samples from it.
    pub sampled: bool,
    /// The last stage scores its token.
    pub scored: bool,
    /// Token id.
    pub token: u32,
}

/// One task's part of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sequence {
    /// The task.
    pub task: u64,
    /// Tokens held of it before this batch.
    pub past: u64,
    /// How often the task was begun, from 1.
    pub attempt: u32,
    /// Its rows are part of a prompt.
    pub prefill: bool,
    /// The first rows of this attempt.
    pub begins: bool,
    /// Blocks of the paged cache, or none.
    pub blocks: Vec<u32>,
    /// Tokens that may be sampled, as bits; empty = all.
    pub mask: Vec<u32>,
    /// How to sample, in the engine's own form.
    pub sampling: String,
}

/// Rows on their way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StageBatch {
    /// Its number.
    pub batch: u64,
    /// The pipeline's epoch.
    pub epoch: u64,
    /// Grouped by sequence, positions rising.
    pub rows: Vec<Row>,
    /// One per task.
    pub sequences: Vec<Sequence>,
    /// Type of the payload's values.
    pub dtype: u32,
    /// Values per row.
    pub width: u32,
    /// Longest sequence, its new rows included.
    pub max_context: u64,
    /// The rows' values.
    pub payload: Vec<u8>,
}

/// A sampled token, or the score of a row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StageToken {
    /// The task.
    pub task: u64,
    /// One past the row it was sampled from; of a score, its row's own.
    pub position: u64,
    /// The attempt it belongs to.
    pub attempt: u32,
    /// Token id.
    pub token: u32,
    /// Its log-probability; 0 where none was asked for.
    pub logprob: f32,
    /// It is the score of a row, and no new token.
    pub scored: bool,
    /// Alternatives and their log-probabilities, most likely first.
    pub top: (Vec<u32>, Vec<f32>),
}

/// Why a batch was not computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The batch.
    pub batch: u64,
    /// The pipeline's epoch.
    pub epoch: u64,
    /// Tasks that begin anew.
    pub tasks: Vec<u64>,
    /// Code and message.
    pub error: Error,
}

/// What a stage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageInfo {
    /// Place in the pipeline, 0 = first.
    pub rank: u32,
    /// Number of stages.
    pub stages: u32,
    /// Type of the values between stages.
    pub dtype: u32,
    /// Values per row between stages.
    pub width: u32,
    /// Most rows of a batch.
    pub max_rows: u32,
    /// Most rows of one prompt in a batch.
    pub window: u32,
}

/// One stage of a pipeline. All but `attach` come from any thread and must not block; a later step does the work.
pub trait Stage {
    /// What it is.
    fn info(&self) -> StageInfo;
    /// Says where batches, tokens and refusals go, once, before the first step.
    fn attach(&self, out: StageOut) -> Result<()>;
    /// Takes a batch of the stage before. Its shape was checked.
    fn receive(&self, batch: StageBatch) -> Result<()>;
    /// Stage 0: tokens of the last stage.
    fn tokens(&self, epoch: u64, tokens: &[StageToken]) -> Result<()>;
    /// Stage 0: a batch was refused.
    fn refused(&self, refusal: Refusal) -> Result<()>;
    /// Forgets tasks, and raises the epoch.
    fn abort(&self, epoch: u64, tasks: &[u64]) -> Result<()>;
}

/// Where a stage gives what it made. Use it inside `step` only. Errors have the host's code: the link is gone.
#[derive(Clone, Copy)]
pub struct StageOut(wire::StageOut);

// SAFETY: the host's callbacks and context; they live as long as the engine, and the thread of `step` may change.
unsafe impl Send for StageOut {}
// SAFETY: as above.
unsafe impl Sync for StageOut {}

impl StageOut {
    /// A batch for the next stage.
    pub fn batch(&self, batch: &StageBatch) -> Result<()> {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        let row = |r: &Row| wire::StageRow {
            task: r.task,
            position: r.position,
            sequence: r.sequence,
            flags: bit(r.sampled, wire::ROW_SAMPLED) | bit(r.scored, wire::ROW_SCORED),
            token: r.token,
            reserved: 0,
        };
        let sequence = |s: &Sequence| wire::StageSequence {
            task: s.task,
            past: s.past,
            attempt: s.attempt,
            flags: bit(s.prefill, wire::SEQUENCE_PREFILL) | bit(s.begins, wire::SEQUENCE_BEGINS),
            blocks: Array::new(&s.blocks),
            mask: Array::new(&s.mask),
            sampling: Str::new(s.sampling.as_bytes()),
        };
        let rows: Vec<_> = batch.rows.iter().map(row).collect();
        let sequences: Vec<_> = batch.sequences.iter().map(sequence).collect();
        let wire = wire::StageBatch {
            struct_size: size_of::<wire::StageBatch>() as u32,
            flags: 0,
            batch: batch.batch,
            epoch: batch.epoch,
            rows: Array::new(&rows),
            sequences: Array::new(&sequences),
            dtype: batch.dtype,
            width: batch.width,
            max_context: batch.max_context,
            payload: Str::new(&batch.payload),
        };
        // SAFETY: the host's callback; the batch and what it views live through the call.
        taken(unsafe { (self.0.batch)(self.0.ctx, &raw const wire) })
    }

    /// Tokens of the last stage, for stage 0.
    pub fn tokens(&self, epoch: u64, tokens: &[StageToken]) -> Result<()> {
        let token = |t: &StageToken| wire::StageToken {
            task: t.task,
            position: t.position,
            attempt: t.attempt,
            token: t.token,
            logprob: t.logprob,
            flags: if t.scored { wire::STAGE_TOKEN_SCORED } else { 0 },
            top_ids: Array::new(&t.top.0),
            top_logprobs: Array::new(&t.top.1),
        };
        let tokens: Vec<_> = tokens.iter().map(token).collect();
        // SAFETY: as above.
        taken(unsafe { (self.0.tokens)(self.0.ctx, epoch, Array::new(&tokens)) })
    }

    /// A batch that was not computed.
    pub fn refuse(&self, refusal: &Refusal) -> Result<()> {
        let wire = wire::StageRefusal {
            struct_size: size_of::<wire::StageRefusal>() as u32,
            code: refusal.error.code,
            batch: refusal.batch,
            epoch: refusal.epoch,
            tasks: Array::new(&refusal.tasks),
            message: Str::new(refusal.error.message.as_bytes()),
        };
        // SAFETY: as above.
        taken(unsafe { (self.0.refuse)(self.0.ctx, &raw const wire) })
    }
}

fn taken(answer: u32) -> Result<()> {
    match answer {
        code::OK => Ok(()),
        other => Err(Error::new(other, "the pipeline's link is gone")),
    }
}

pub(super) static TABLE: wire::StageV1 = wire::StageV1 {
    struct_size: size_of::<wire::StageV1>() as u32,
    flags: 0,
    info,
    attach,
    receive,
    tokens,
    refused,
    abort,
};

unsafe extern "C" fn info(engine: *mut c_void, out: *mut wire::StageInfo) -> u32 {
    // SAFETY: the host's promise: `out` is lent and its size set.
    unsafe {
        with_extension!(engine, None, stage, "pipeline stages", |stage| {
            let out = out.as_mut().ok_or_else(|| Error::config("the host passed no info"))?;
            if (out.struct_size as usize) < size_of::<wire::StageInfo>() {
                return Err(Error::config("the host's info is too small"));
            }
            let info = stage.info();
            (out.rank, out.stages, out.dtype) = (info.rank, info.stages, info.dtype);
            (out.width, out.max_rows, out.window) = (info.width, info.max_rows, info.window);
            Ok(())
        })
    }
}

unsafe extern "C" fn attach(engine: *mut c_void, out: wire::StageOut, err: ErrOut) -> u32 {
    // SAFETY: the host's promise.
    unsafe { with_extension!(engine, Some(err), stage, "pipeline stages", |s| s.attach(StageOut(out))) }
}

unsafe extern "C" fn receive(engine: *mut c_void, batch: *const wire::StageBatch, err: ErrOut) -> u32 {
    // SAFETY: the host's promise: the batch and its views are lent for the call.
    unsafe {
        with_extension!(engine, Some(err), stage, "pipeline stages", |stage| {
            let batch = batch.as_ref().ok_or_else(|| Error::config("the host passed no batch"))?;
            if (batch.struct_size as usize) < size_of::<wire::StageBatch>() {
                return Err(Error::config("the host's batch is too small"));
            }
            let batch = read(batch);
            shaped(&batch)?;
            stage.receive(batch)
        })
    }
}

unsafe extern "C" fn tokens(engine: *mut c_void, epoch: u64, tokens: Array, err: ErrOut) -> u32 {
    // SAFETY: the host's promise: the tokens and what they view are lent for the call.
    let token = |t: wire::StageToken| unsafe {
        StageToken {
            task: t.task,
            position: t.position,
            attempt: t.attempt,
            token: t.token,
            logprob: t.logprob,
            scored: t.flags & wire::STAGE_TOKEN_SCORED != 0,
            top: (t.top_ids.scalars::<u32>().into_owned(), t.top_logprobs.scalars::<f32>().into_owned()),
        }
    };
    // SAFETY: the host's promise: the tokens are lent; an all-zero one is valid.
    unsafe {
        with_extension!(engine, Some(err), stage, "pipeline stages", |stage| {
            let tokens: Vec<_> = tokens.iter::<wire::StageToken>().map(token).collect();
            stage.tokens(epoch, &tokens)
        })
    }
}

unsafe extern "C" fn refused(engine: *mut c_void, refusal: *const wire::StageRefusal, err: ErrOut) -> u32 {
    // SAFETY: the host's promise: the refusal and its views are lent for the call.
    unsafe {
        with_extension!(engine, Some(err), stage, "pipeline stages", |stage| {
            let refusal = refusal.as_ref().ok_or_else(|| Error::config("the host passed no refusal"))?;
            if (refusal.struct_size as usize) < size_of::<wire::StageRefusal>() {
                return Err(Error::config("the host's refusal is too small"));
            }
            stage.refused(Refusal {
                batch: refusal.batch,
                epoch: refusal.epoch,
                tasks: refusal.tasks.scalars::<u64>().into_owned(),
                error: Error::new(refusal.code, refusal.message.text()),
            })
        })
    }
}

unsafe extern "C" fn abort(engine: *mut c_void, epoch: u64, tasks: Array, err: ErrOut) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_extension!(engine, Some(err), stage, "pipeline stages", |stage| {
            stage.abort(epoch, &tasks.scalars::<u64>())
        })
    }
}

/// # Safety
/// `batch` and everything it points to must be readable during the call.
unsafe fn read(batch: &wire::StageBatch) -> StageBatch {
    let row = |r: wire::StageRow| Row {
        task: r.task,
        position: r.position,
        sequence: r.sequence,
        sampled: r.flags & wire::ROW_SAMPLED != 0,
        scored: r.flags & wire::ROW_SCORED != 0,
        token: r.token,
    };
    // SAFETY: of all reads below: the caller vouches for the batch and its views; all-zero elements are valid.
    let sequence = |s: wire::StageSequence| unsafe {
        Sequence {
            task: s.task,
            past: s.past,
            attempt: s.attempt,
            prefill: s.flags & wire::SEQUENCE_PREFILL != 0,
            begins: s.flags & wire::SEQUENCE_BEGINS != 0,
            blocks: s.blocks.scalars::<u32>().into_owned(),
            mask: s.mask.scalars::<u32>().into_owned(),
            sampling: s.sampling.text().into_owned(),
        }
    };
    // SAFETY: as above.
    unsafe {
        StageBatch {
            batch: batch.batch,
            epoch: batch.epoch,
            rows: batch.rows.iter::<wire::StageRow>().map(row).collect(),
            sequences: batch.sequences.iter::<wire::StageSequence>().map(sequence).collect(),
            dtype: batch.dtype,
            width: batch.width,
            max_context: batch.max_context,
            payload: batch.payload.bytes().to_vec(),
        }
    }
}

/// A batch from outside must be what it says before anybody indexes into it.
fn shaped(batch: &StageBatch) -> Result<()> {
    let size = dtype::size(batch.dtype)
        .ok_or_else(|| Error::config(format!("the batch's dtype {} is not known", batch.dtype)))?;
    let values = (batch.rows.len() as u64).checked_mul(batch.width.into());
    if values.and_then(|n| n.checked_mul(size)) != Some(batch.payload.len() as u64) {
        let (rows, width, have) = (batch.rows.len(), batch.width, batch.payload.len());
        return Err(Error::config(format!("the batch has {rows} rows of {width} values and {have} bytes")));
    }
    for row in &batch.rows {
        let sequence = batch.sequences.get(row.sequence as usize);
        if sequence.is_none_or(|s| s.task != row.task || row.position < s.past) {
            return Err(Error::config(format!("a row of task {} has no sequence of its own", row.task)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_must_be_what_it_says() {
        let row = |sequence, position| Row { task: 7, position, sequence, ..Row::default() };
        let sound = StageBatch {
            rows: vec![row(0, 3), row(0, 4)],
            sequences: vec![Sequence { task: 7, past: 3, ..Sequence::default() }],
            dtype: dtype::F32,
            width: 2,
            payload: vec![0; 16],
            ..StageBatch::default()
        };
        assert_eq!(shaped(&sound), Ok(()));
        for broken in [
            StageBatch { payload: vec![0; 15], ..sound.clone() },
            StageBatch { dtype: 99, ..sound.clone() },
            StageBatch { width: u32::MAX, ..sound.clone() },
            StageBatch { rows: vec![row(1, 3), row(0, 4)], ..sound.clone() },
            StageBatch { rows: vec![row(0, 2), row(0, 4)], ..sound },
        ] {
            assert_eq!(shaped(&broken).expect_err("refused").code, code::INVALID_CONFIG);
        }
    }
}
