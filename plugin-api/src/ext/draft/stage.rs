//! `cascadia.stage/1`: one stage of a pipeline. Stage 0 has the tasks and plans batches; each stage computes its layers
//! and gives the batch on; the last one samples and returns tokens to stage 0 directly.
//!
//! The host drives the links, the engine does not: what is received is handed to `receive`, what a stage gives comes out
//! of its [`StageOut`] inside `step`. A batch so travels the same way inside a process and over
//! [`crate::abi::host::TransportV1`], where it is one raw frame (everything but `payload`, in the host's own form: both
//! ends are hosts) and one tensor frame (`dtype`, dims `[rows, width]`, `payload`). Deadlines, reconnects and metrics
//! of links are the host's; attempts and epochs, which say what is still of use after a loss, are here.
//!
//! - *Epoch*: counts the pipeline's lives. After a link was lost the host raises it with `abort` on every stage; what
//!   bears a smaller one is dropped where it arrives.
//! - *Attempt*: counts how often stage 0 began a task anew. Rows of another attempt than the one a stage holds begin at
//!   position 0 or are refused; tokens of another are dropped.
//! - *Window*: a long prompt travels as several batches of at most [`StageInfo::window`] rows, of which only the last
//!   row of the last asks for a token. They follow each other without waiting for an answer.
//! - *Refusal* (NACK): a stage that cannot compute a batch refuses it whole, naming all its tasks, and keeps nothing of
//!   it. The refusal goes to stage 0, which begins these tasks anew.

use crate::abi::prim::{Array, ErrOut, Str};
use core::ffi::c_void;

/// [`StageRow::flags`]: the last stage samples a token from this row.
pub const ROW_SAMPLED: u32 = 1;
/// [`StageRow::flags`]: the last stage tells the log-probability of this row's own token, given the rows before it. Not
/// for position 0.
pub const ROW_SCORED: u32 = 2;

/// [`StageToken::flags`]: no new token, but the score of the row that was asked for ([`ROW_SCORED`]).
pub const STAGE_TOKEN_SCORED: u32 = 1;

/// [`StageSequence::flags`]: its rows are part of a prompt.
pub const SEQUENCE_PREFILL: u32 = 1;
/// [`StageSequence::flags`]: the first rows of this attempt; a stage forgets what it held of the task.
pub const SEQUENCE_BEGINS: u32 = 2;

table! {
    /// One row: a token's place in its sequence, and in the payload. An element of an array.
    StageRow as "cascadia_stage_row" {
        /// The task.
        task: u64,
        /// Place of the token in its sequence, from 0.
        position: u64,
        /// Index into [`StageBatch::sequences`].
        sequence: u32,
        /// [`ROW_SAMPLED`], [`ROW_SCORED`].
        flags: u32,
        /// Token id, for what a later stage does with ids: penalties, scores.
        token: u32,
        /// No meaning yet; 0.
        reserved: u32,
    }
}

table! {
    /// One task's part of a batch. An element of an array.
    StageSequence as "cascadia_stage_sequence" {
        /// The task.
        task: u64,
        /// Tokens that every stage holds of it before this batch; fewer than before = the last ones were withdrawn.
        past: u64,
        /// How often the task was begun, from 1.
        attempt: u32,
        /// [`SEQUENCE_PREFILL`], [`SEQUENCE_BEGINS`].
        flags: u32,
        /// Blocks (`u32`) of the paged cache, in order, for engines whose stage 0 owns the block table; else empty.
        blocks: Array,
        /// Bit mask (words of `u32`) of the tokens that may be sampled; empty = all.
        mask: Array,
        /// How to sample, in the engine's own form; told where it begins or changes, else empty.
        sampling: Str,
    }
}

table! {
    /// Rows on their way from one stage to the next, borrowed for the call.
    StageBatch as "cascadia_stage_batch" {
        /// Size of this struct as its writer was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// Number of the batch, counted by stage 0.
        batch: u64,
        /// The pipeline's epoch.
        epoch: u64,
        /// [`StageRow`] elements, grouped by sequence, positions rising.
        rows: Array,
        /// [`StageSequence`] elements.
        sequences: Array,
        /// Type of the payload's values: one of [`crate::abi::host::dtype`].
        dtype: u32,
        /// Values per row.
        width: u32,
        /// Longest sequence in the batch, its new rows included.
        max_context: u64,
        /// The rows' values, row by row: `rows * width` of `dtype`, little-endian.
        payload: Str,
    }
}

table! {
    /// A sampled token, or a score. An element of an array.
    StageToken as "cascadia_stage_token" {
        /// The task.
        task: u64,
        /// Place of the token in its sequence: one past the row it was sampled from; of a score, its row's own.
        position: u64,
        /// The attempt it belongs to.
        attempt: u32,
        /// Token id.
        token: u32,
        /// Its log-probability; 0 where none was asked for.
        logprob: f32,
        /// [`STAGE_TOKEN_SCORED`].
        flags: u32,
        /// Token ids (`u32`) of alternatives, most likely first; empty where none were asked for.
        top_ids: Array,
        /// Their log-probabilities (`f32`).
        top_logprobs: Array,
    }
}

table! {
    /// Why a batch was not computed, borrowed for the call.
    StageRefusal as "cascadia_stage_refusal" {
        /// Size of this struct as its writer was built.
        struct_size: u32,
        /// A code of [`crate::abi::code`].
        code: u32,
        /// The batch.
        batch: u64,
        /// The pipeline's epoch.
        epoch: u64,
        /// Ids (`u64`) of the batch's tasks; they begin anew.
        tasks: Array,
        /// One line for people.
        message: Str,
    }
}

table! {
    /// Where a stage gives what it made. Called only inside `step`, on its thread, while the engine holds no lock that
    /// the functions of [`StageV1`] need.
    StageOut as "cascadia_stage_out" {
        /// The host's context.
        ctx: *mut c_void,
        /// A batch for the next stage. Answers a code: with another than OK the link is gone, and the tasks of the batch
        /// are begun anew in the next epoch.
        batch: unsafe extern "C" fn(ctx: *mut c_void, batch: *const StageBatch) -> u32,
        /// Tokens ([`StageToken`]) of the last stage, for stage 0. Answers a code.
        tokens: unsafe extern "C" fn(ctx: *mut c_void, epoch: u64, tokens: Array) -> u32,
        /// A refused batch, for stage 0. Answers a code.
        refuse: unsafe extern "C" fn(ctx: *mut c_void, refusal: *const StageRefusal) -> u32,
    }
}

table! {
    /// What a stage is.
    StageInfo as "cascadia_stage_info" {
        /// In: the size the host offers; the plugin fills no field beyond it.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// Place in the pipeline, 0 = first.
        rank: u32,
        /// Number of stages.
        stages: u32,
        /// Type of the values between stages: one of [`crate::abi::host::dtype`].
        dtype: u32,
        /// Values per row between stages.
        width: u32,
        /// Most rows of a batch.
        max_rows: u32,
        /// Most rows of one prompt in a batch.
        window: u32,
    }
}

table! {
    /// `cascadia.stage/1`. Tasks are submitted to and cancelled at stage 0 only, which pushes their chunks.
    StageV1 as "cascadia_stage_v1" {
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[any]` Fills `out`; answers a code.
        info: unsafe extern "C" fn(engine: *mut c_void, out: *mut StageInfo) -> u32,
        /// `[control]` Says where batches, tokens and refusals go, once, before the first step.
        attach: unsafe extern "C" fn(engine: *mut c_void, out: StageOut, err: ErrOut) -> u32,
        /// `[any]` Takes a batch of the stage before, by copy; a later step computes it. [`crate::abi::code::QUEUE_FULL`]
        /// = give it again after the next step. A batch of an older epoch is dropped with OK. One that is malformed
        /// (rows, widths and payload do not fit together) is refused with [`crate::abi::code::INVALID_CONFIG`].
        receive: unsafe extern "C" fn(engine: *mut c_void, batch: *const StageBatch, err: ErrOut) -> u32,
        /// `[any]` Stage 0: tokens ([`StageToken`]) that the last stage sampled.
        tokens: unsafe extern "C" fn(engine: *mut c_void, epoch: u64, tokens: Array, err: ErrOut) -> u32,
        /// `[any]` Stage 0: a batch was refused. The named tasks begin anew with the next attempt: their prompt and what
        /// was generated is computed again, and nothing of it is pushed twice.
        refused: unsafe extern "C" fn(engine: *mut c_void, refusal: *const StageRefusal, err: ErrOut) -> u32,
        /// `[any]` Forgets what is held of the tasks (ids, `u64`), and raises the epoch where it is larger than the
        /// stage's own: then batches of older ones are dropped, and stage 0 begins all its tasks anew. After the finish
        /// of a task the host calls it on every later stage; what is queued of it by then may still be computed, and is
        /// forgotten with it. Stage 0 passes over the ids: its tasks end by cancel.
        abort: unsafe extern "C" fn(engine: *mut c_void, epoch: u64, tasks: Array, err: ErrOut) -> u32,
    }
}
