//! A state that comes in, and the task that goes on with it.
//!
//! Its bytes go into reserved blocks as they come, a visit for each piece, and nothing runs before all of them, their digest and the
//! tokens were right. Whatever goes wrong before gives the blocks back.

use cascadia_batching::Ticket;
use cascadia_plugin_api::sdk::{Error, GrammarKind, Result, Task, now_ns};
use sha2::{Digest, Sha256};

use super::descriptor::{Form, State};
use super::weights::hex;
use super::{Between, Giver, PIECE};

/// Takes a task with the state of its tokens.
///
/// # Errors
/// The task is one that `submit` would refuse or that cannot move, the state does not fit or is damaged, or there are no blocks
/// for it now. Nothing of it is kept.
pub(crate) fn restore(engine: &impl Between, form: &Form, task: Task, from: &dyn Giver) -> Result<()> {
    engine.check(&task)?;
    refuse_immovable(&task)?;
    let state = form.read(from.descriptor(), task.tokens.len(), task.generated_from)?;
    let (ticket, entry) = engine.visit(|all| all.reserve(&task, state.positions))??;
    let done = fill(engine, form, &task, &state, &ticket, from).and_then(|()| {
        let State { positions, seed, .. } = state;
        engine.adopt(task.id, |all| all.resume(ticket, entry, &task, positions, seed, now_ns()))
    });
    if done.is_err() {
        // The blocks are given back with the next plan at the latest, whatever becomes of this visit.
        drop(engine.visit(|all| all.sweep()));
    }
    done
}

fn refuse_immovable(task: &Task) -> Result<()> {
    if task.grammar.0 != GrammarKind::None {
        // Whoever fills the masks here has not seen the answer so far.
        return Err(Error::unsupported("state to move of tasks with token masks"));
    }
    let generated_from = usize::try_from(task.generated_from).unwrap_or(usize::MAX);
    if generated_from > task.tokens.len() {
        let tokens = task.tokens.len();
        return Err(Error::config(format!("generated_from is {generated_from} of {tokens} tokens")));
    }
    if task.prompt_logprobs.is_some() && generated_from == task.tokens.len() {
        return Err(Error::unsupported("log-probabilities of a prompt that was computed elsewhere"));
    }
    Ok(())
}

/// Reads all bytes into the reserved blocks.
fn fill(
    engine: &impl Between,
    form: &Form,
    task: &Task,
    state: &State,
    ticket: &Ticket,
    from: &dyn Giver,
) -> Result<()> {
    let mut stream =
        Stream { from, offset: 0, total: form.bytes(state.positions).unwrap_or(0), digest: Sha256::new() };
    let mut piece = Vec::new();
    for tokens in task.tokens[..state.positions].chunks(PIECE / 4) {
        stream.next(tokens.len() * 4, &mut piece)?;
        let told = piece.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
        if !told.eq(tokens.iter().copied()) {
            return Err(Error::kv_state("tokens", "of another text", "the task's"));
        }
    }
    let (size, bytes) = (form.block_tokens(), form.block_bytes());
    let at_once = form.at_once();
    let (full, rest) = (state.positions / size, state.positions % size);
    for at in (0..full).step_by(at_once) {
        let blocks = at..full.min(at + at_once);
        stream.next(blocks.len() * bytes, &mut piece)?;
        engine.visit(|all| all.write(ticket, blocks, size, &piece))??;
    }
    if rest > 0 {
        stream.next(form.rows[rest], &mut piece)?;
        engine.visit(|all| all.write(ticket, full..full + 1, rest, &piece))??;
    }
    stream.end(&state.digest)
}

/// The bytes as they come.
struct Stream<'a> {
    from: &'a dyn Giver,
    offset: u64,
    /// How many there must be.
    total: u64,
    digest: Sha256,
}

impl Stream<'_> {
    /// The next `bytes` bytes, in place of what `piece` has.
    fn next(&mut self, bytes: usize, piece: &mut Vec<u8>) -> Result<()> {
        piece.clear();
        while piece.len() < bytes {
            let left = bytes - piece.len();
            let more = self.from.read(self.offset, left.min(PIECE) as u64)?;
            if more.is_empty() || more.len() > left {
                return Err(self.cut(more.len() as u64));
            }
            self.offset += more.len() as u64;
            piece.extend_from_slice(&more);
        }
        self.digest.update(&*piece);
        Ok(())
    }

    /// All of them came.
    fn end(self, digest: &str) -> Result<()> {
        let more = self.from.read(self.offset, 1)?;
        if !more.is_empty() {
            return Err(self.cut(more.len() as u64));
        }
        let found = hex(&self.digest.finalize());
        if found != digest {
            let have = format!("{digest:?}");
            return Err(Error::kv_state("digest", &have, &format!("{found}, that of the bytes")));
        }
        Ok(())
    }

    fn cut(&self, more: u64) -> Error {
        let have = format!("{} in fact", self.offset.saturating_add(more));
        Error::kv_state("bytes", &have, &format!("the {} of its descriptor", self.total))
    }
}
