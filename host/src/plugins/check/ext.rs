//! Tests of the extensions: run where the plugin offers one, skipped where it does not.

pub(super) mod adapters;
pub(super) mod async_sink;
pub(super) mod embeddings;
pub(super) mod kv_events;
pub(super) mod kv_state;
pub(super) mod pause;
pub(super) mod stage;
pub(super) mod token_mask;
pub(super) mod tokenize;

use cascadia_plugin_api::abi::{code, ids};

use super::Fault;
use super::rig::{Refusal, Rig};
use super::said::Said;

/// The ids of all extensions that have tests here.
pub(super) const IDS: &[&str] = &[
    ids::KV_EVENTS,
    ids::TOKEN_MASK,
    ids::TOKENIZE,
    ids::EMBEDDINGS,
    ids::STAGE,
    ids::KV_STATE,
    ids::ADAPTERS,
    ids::PAUSE,
    ids::ASYNC_SINK,
];

/// Passes over an engine that answers unsupported: another one of the plugin has the extension.
fn done(call: &str, code: u32, said: &Said) -> Result<(), Fault> {
    if code == code::UNSUPPORTED {
        return Err(Fault::Skipped(format!("this engine lacks it: {}", said.words(code))));
    }
    Ok(said.expect_ok(call, code)?)
}

/// A refusal must be made as the contract has it, with one of these codes.
fn refused(call: &str, code: u32, said: &Said, with: &[u32]) -> Result<(), Fault> {
    if code == code::OK {
        return Err(format!("{call} is taken").into());
    }
    said.is_clean(call, code)?;
    if !with.contains(&code) {
        let names: Vec<_> = with.iter().map(|code| code::name(*code)).collect();
        return Err(format!("{call} is refused with {}, not {}", code::name(code), names.join(" or ")).into());
    }
    Ok(())
}

/// As [`refused`], of a task.
fn task_refused(call: &str, result: Result<u64, Refusal>, with: &[u32]) -> Result<(), Fault> {
    match result {
        Ok(_) => Err(format!("{call} is taken").into()),
        Err(refusal) => refused(call, refusal.code, &refusal.said, with),
    }
}

/// Exactly one finish, nothing after it.
fn ended_once(rig: &Rig, task: u64) -> Result<(), Fault> {
    let answer = rig.answer(task);
    if answer.finishes.len() == 1 && answer.after == 0 {
        return Ok(());
    }
    let (n, after) = (answer.finishes.len(), answer.after);
    Err(format!("a task has {n} finishes and {after} chunks after the first").into())
}
