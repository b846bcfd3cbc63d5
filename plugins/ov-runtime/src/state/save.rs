//! The state of a running sequence, given out.
//!
//! The descriptor comes first and has the digest, so the bytes are read twice; they are nowhere whole. Meanwhile the sequence goes on:
//! what is full of it stays as it is, and the rest was copied in the first visit.

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Error, Result};
use sha2::{Digest, Sha256};

use super::descriptor::{Form, State};
use super::weights::hex;
use super::{Between, PIECE, Receiver};
use crate::generations::Kept;

/// Gives out the state of a task.
///
/// # Errors
/// It is not running, or was over before all of it was read; the receiver gave up.
pub(crate) fn save(engine: &impl Between, form: &Form, task: u64, out: &mut dyn Receiver) -> Result<()> {
    let kept = engine.visit(|all| all.kept(task))??;
    let mut digest = Sha256::new();
    pieces(engine, form, task, &kept, &mut |bytes| {
        digest.update(bytes);
        Ok(())
    })?;
    let state = State {
        positions: kept.tokens.len(),
        generated_from: kept.generated_from as u64,
        seed: kept.seed,
        digest: hex(&digest.finalize()),
    };
    out.describe(&form.describe(&state)?)?;
    pieces(engine, form, task, &kept, &mut |bytes| out.chunk(bytes))
}

/// The bytes of a state, in order.
fn pieces(
    engine: &impl Between,
    form: &Form,
    task: u64,
    kept: &Kept,
    give: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut piece = Vec::with_capacity(PIECE.min(kept.tokens.len() * 4));
    for tokens in kept.tokens.chunks(PIECE / 4) {
        piece.clear();
        piece.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
        give(&piece)?;
    }
    let full = kept.tokens.len() / form.block_tokens();
    let at_once = form.at_once();
    for at in (0..full).step_by(at_once) {
        let blocks = at..full.min(at + at_once);
        piece.resize(blocks.len() * form.block_bytes(), 0);
        if !engine.visit(|all| all.read(task, kept.stay, blocks, &mut piece))?? {
            let message = format!("task {task} ended or gave its blocks back while its state was read");
            return Err(Error::new(code::INVALID_CONFIG, message));
        }
        piece.chunks(PIECE).try_for_each(&mut *give)?;
    }
    kept.rest.chunks(PIECE).try_for_each(&mut *give)
}
