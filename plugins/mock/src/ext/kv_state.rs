//! `cascadia.kv-state/1`: a sequence's state as bytes. A token's "keys and values" are the hash of all tokens up to it, so
//! that a state can be held against the tokens it is said to be of.

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Error, KvReader, KvState, KvWriter, Result, Task};
use serde_json::{Value, json};

use super::kv_log::mix;
use crate::engine::Mock;

/// Name and revision of the form.
const LAYOUT: &str = "mock/1";
/// Digest of the weights, of which there are none.
const MODEL: &str = "mock-without-weights";
/// Bytes that go out and come in at once.
const PIECE: usize = 256;

/// The state of these tokens, 8 bytes each.
fn state(tokens: &[u32]) -> Vec<u8> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut bytes = Vec::with_capacity(tokens.len() * 8);
    for id in tokens {
        hash = id.to_le_bytes().into_iter().fold(hash, mix);
        bytes.extend(hash.to_le_bytes());
    }
    bytes
}

fn digest(bytes: &[u8]) -> String {
    format!("{:016x}", bytes.iter().copied().fold(0xcbf2_9ce4_8422_2325_u64, mix))
}

fn descriptor(tokens: usize, bytes: &[u8]) -> Value {
    json!({
        "layout": LAYOUT, "dtype": "u64", "model": MODEL, "tokens": tokens, "bytes": bytes.len(), "digest": digest(bytes),
    })
}

/// Refuses a state that is not that of `tokens`, by the key that does not fit.
fn verify(tokens: &[u32], state: &KvReader<'_>) -> Result<()> {
    let own = self::state(tokens);
    let want = descriptor(tokens.len(), &own);
    let have: Value = serde_json::from_str(state.descriptor)
        .map_err(|e| Error::kv_state("descriptor", "no JSON object", &format!("one ({e})")))?;
    // The digest last: it differs with everything else.
    for key in ["layout", "dtype", "model", "tokens", "bytes", "digest"] {
        if have[key] != want[key] {
            return Err(Error::kv_state(key, &have[key].to_string(), &want[key].to_string()));
        }
    }
    let mut bytes = Vec::with_capacity(own.len());
    while bytes.len() < own.len() {
        let piece = state.read(bytes.len() as u64, PIECE as u64)?;
        if piece.is_empty() {
            return Err(Error::kv_state("bytes", &bytes.len().to_string(), &own.len().to_string()));
        }
        bytes.extend(piece);
    }
    if bytes != own {
        return Err(Error::kv_state("digest", &digest(&bytes), &digest(&own)));
    }
    Ok(())
}

impl KvState for Mock {
    fn save(&self, task: u64, out: &mut KvWriter) -> Result<()> {
        let tokens = self.batch.lock().sequence(task);
        let tokens = tokens.ok_or_else(|| Error::config(format!("task {task} is not being generated")))?;
        let bytes = state(&tokens);
        out.describe(&descriptor(tokens.len(), &bytes).to_string())?;
        bytes.chunks(PIECE).try_for_each(|piece| out.chunk(piece))
    }

    fn restore(&self, task: Task, state: &KvReader<'_>) -> Result<()> {
        if !self.options.breaks("kv-state-blind") {
            verify(&task.tokens, state)?;
        }
        let begun = usize::try_from(task.generated_from).unwrap_or(usize::MAX);
        if begun > task.tokens.len() {
            let message = format!("generated_from is {begun} of {} tokens", task.tokens.len());
            return Err(Error::new(code::INVALID_CONFIG, message));
        }
        self.accept(task, Some(begun))
    }
}
