//! `cascadia.token-mask/1`: guided decoding. Before it samples, the engine asks which tokens may come next.
//!
//! A table of the engine that takes a filler, and not a service of the host: its presence is the claim that masks are
//! kept to, which decides whether a request is admitted at all; and no worker must be looked up in the hot path. The
//! engine asks from inside `step`, once for all tasks of the batch, and lends one matrix for the answers, which can go to
//! the device as it is.
//!
//! Asked for are the tasks whose grammar is [`crate::abi::task::GRAMMAR_MASK`], and no others.

use crate::abi::prim::{Array, ErrOut};
use core::ffi::c_void;

/// State of a row: every token may come; its bits were left alone.
pub const MASK_ALL: u32 = 0;
/// State of a row: the tokens whose bit is set may come, at least one.
pub const MASK_SOME: u32 = 1;
/// State of a row: no token of the vocabulary goes on from here. The engine ends the task with an error
/// ([`crate::abi::code::INVALID_CONFIG`]).
pub const MASK_DEAD_END: u32 = 2;
/// State of a row: a draft token before it is not allowed, so that nothing will be sampled there.
pub const MASK_UNREACHED: u32 = 3;

table! {
    /// What one task needs. An element of an array. It takes `1 + drafts.len` rows of the answer: one for the token after
    /// what was taken, and one after each draft.
    MaskRequest as "cascadia_mask_request" {
        /// The task.
        task: u64,
        /// Token ids (`u32`) that became part of the answer since the last request for this task, in order. Empty in its
        /// first one.
        taken: Array,
        /// Token ids (`u32`) that a draft proposes after them. They count as taken only when a later request says so.
        drafts: Array,
        /// Of the tokens told as taken before, so many of the last are withdrawn; counted before `taken`.
        rollback: u32,
        /// No flag is defined; 0.
        flags: u32,
    }
}

table! {
    /// The host's side.
    MaskFiller as "cascadia_mask_filler" {
        /// The host's context.
        ctx: *mut c_void,
        /// Called inside `step`, on its thread, while the engine holds no lock that submit or cancel needs. `requests`
        /// are [`MaskRequest`]s. `masks` is a matrix of `rows` times `words` words, zeroed by the engine: bit `t % 32` of
        /// word `t / 32` stands for token `t`. `states` has a place for each row and takes one of the `MASK_` values. Of
        /// a task that the host does not know the rows are [`MASK_ALL`]. A code other than 0 ends every task of the call
        /// with an error of that code.
        fill: unsafe extern "C" fn(ctx: *mut c_void, requests: Array, masks: *mut u32, words: u32, states: *mut u32, rows: u32) -> u32,
    }
}

table! {
    /// `cascadia.token-mask/1`.
    TokenMaskV1 as "cascadia_token_mask_v1" {
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[control]` Takes the filler, once, before the first submit. It lives as long as the engine. End and stop
        /// tokens are tokens like others: where their bit is not set they may not be chosen. Without a filler the engine
        /// refuses tasks whose grammar is a mask.
        attach: unsafe extern "C" fn(engine: *mut c_void, filler: MaskFiller, err: ErrOut) -> u32,
    }
}
