//! What is told of a state beside its bytes, and whether a state fits this engine.

use cascadia_plugin_api::sdk::{Error, Result};
use serde_json::{Map, Value, json};

use super::PIECE;
use super::weights::Weights;
use crate::backend::Backend;

/// Name and revision of the form of the bytes.
const LAYOUT: &str = "ov-runtime/1";
/// Bytes of a descriptor.
const MOST: usize = 16 << 10;
/// Characters of a value that a refusal repeats.
const SHOWN: usize = 100;

/// What decides whether a state fits: where all of it is equal, the bytes of a block mean the same.
#[derive(Debug)]
pub(crate) struct Form {
    /// Type that the cache is kept in.
    pub(crate) dtype: String,
    /// Precision in which the model computes.
    pub(crate) computes: String,
    /// Version of the library, whose kernels lay out the blocks.
    pub(crate) runtime: String,
    /// Types and shapes of the caches of a block.
    pub(crate) caches: String,
    pub(crate) weights: Weights,
    /// Bytes of the first 0, 1, ... rows of a block.
    pub(crate) rows: Vec<usize>,
}

/// What a state is, where it fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    /// Positions whose keys and values are in it.
    pub(super) positions: usize,
    /// Where generated text begins.
    pub(super) generated_from: u64,
    /// Start of the answer's random numbers.
    pub(super) seed: u64,
    /// Digest of the bytes.
    pub(super) digest: String,
}

impl Form {
    /// What the first rows of a block take up in a backend.
    pub(crate) fn rows(backend: &dyn Backend) -> Vec<usize> {
        (0..=backend.facts().block_tokens).map(|rows| backend.rows_bytes(rows)).collect()
    }

    pub(super) fn block_tokens(&self) -> usize {
        self.rows.len() - 1
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.rows[self.block_tokens()]
    }

    /// Blocks that cross in one visit.
    pub(super) fn at_once(&self) -> usize {
        (PIECE / self.block_bytes().max(1)).max(1)
    }

    /// Bytes of a state of so many positions; none where they cannot be counted.
    pub(super) fn bytes(&self, positions: usize) -> Option<u64> {
        let (full, rest) = (positions / self.block_tokens(), positions % self.block_tokens());
        let rest = if rest == 0 { 0 } else { self.rows[rest] };
        let blocks = full.checked_mul(self.block_bytes())?;
        let all = positions.checked_mul(4)?.checked_add(blocks)?.checked_add(rest)?;
        u64::try_from(all).ok()
    }

    /// The descriptor of a state.
    ///
    /// # Errors
    /// The weights cannot be told.
    pub(super) fn describe(&self, state: &State) -> Result<String> {
        let mut keys = self.fixed()?;
        keys.insert("tokens".to_owned(), json!(state.positions));
        keys.insert("generated_from".to_owned(), json!(state.generated_from));
        // As text: it has more digits than other readers of JSON keep of a number.
        keys.insert("seed".to_owned(), json!(format!("{:016x}", state.seed)));
        keys.insert("bytes".to_owned(), json!(self.bytes(state.positions)));
        keys.insert("digest".to_owned(), json!(state.digest));
        Ok(Value::Object(keys).to_string())
    }

    /// Reads the descriptor of a state for a task of so many tokens.
    ///
    /// # Errors
    /// What does not fit, by its key.
    pub(super) fn read(&self, descriptor: &str, tokens: usize, generated_from: u64) -> Result<State> {
        if descriptor.len() > MOST {
            let have = format!("of {} bytes", descriptor.len());
            return Err(Error::kv_state("descriptor", &have, &format!("at most {MOST}")));
        }
        let have: Map<String, Value> = serde_json::from_str(descriptor)
            .map_err(|e| Error::kv_state("descriptor", &format!("no JSON object ({e})"), "one"))?;
        let mut state = Value::Object(have);
        for (key, want) in &self.fixed()? {
            if state[key] != *want {
                return Err(refused(key, &state[key], &want.to_string()));
            }
        }
        if state["generated_from"].as_u64() != Some(generated_from) {
            return Err(refused("generated_from", &state["generated_from"], &generated_from.to_string()));
        }
        let positions = state["tokens"].as_u64().and_then(|n| usize::try_from(n).ok());
        // The last token's row is computed here: from it comes the next.
        let Some(positions) = positions.filter(|n| (1..tokens).contains(n)) else {
            let want = format!("1 to {} of the task's {tokens} tokens", tokens.saturating_sub(1));
            return Err(refused("tokens", &state["tokens"], &want));
        };
        let bytes = self.bytes(positions);
        if bytes.is_none() || state["bytes"].as_u64() != bytes {
            let have = format!("{positions} in {} bytes", shown(&state["bytes"]));
            return Err(Error::kv_state("tokens", &have, &format!("{} bytes for them", bytes.unwrap_or(0))));
        }
        let seed = state["seed"].as_str().filter(|text| text.len() == 16);
        let Some(seed) = seed.and_then(|text| u64::from_str_radix(text, 16).ok()) else {
            return Err(refused("seed", &state["seed"], "16 hexadecimal digits"));
        };
        match state["digest"].take() {
            Value::String(digest) if digest.len() == 64 => {
                Ok(State { positions, generated_from, seed, digest })
            }
            other => Err(refused("digest", &other, "64 hexadecimal digits")),
        }
    }

    fn fixed(&self) -> Result<Map<String, Value>> {
        let keys = [
            ("layout", json!(LAYOUT)),
            ("model", json!(self.weights.digest()?)),
            ("dtype", json!(self.dtype)),
            ("computes", json!(self.computes)),
            ("runtime", json!(self.runtime)),
            ("caches", json!(self.caches)),
            ("block", json!(self.block_tokens())),
        ];
        Ok(keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }
}

fn refused(key: &str, have: &Value, want: &str) -> Error {
    Error::kv_state(key, &shown(have), want)
}

/// A value as a refusal repeats it: not all of a long one.
fn shown(value: &Value) -> String {
    value.to_string().chars().take(SHOWN).collect()
}
