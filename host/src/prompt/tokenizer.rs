//! From text to token ids: the tokenizers library for byte-level BPE and `tokenizer.json`, our own SentencePiece BPE, or
//! the engine.
//!
//! Invariant: the ids that `encode` returns lie inside `pieces`.

use std::sync::Arc;

use super::pieces::Pieces;
use super::spm::Spm;
use super::words::Words;

/// Bytes of a text. Requests are far below; the encoders count in 32 bits.
const MAX_TEXT: usize = 1 << 30;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(super) enum Encoder {
    Library(Arc<tokenizers::Tokenizer>),
    Spm(Spm),
    /// Each byte is its own id.
    Bytes,
    /// The engine's.
    Words(Arc<dyn Words>),
}

/// What a raw prompt gets in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bos {
    Never,
    Id(u32),
    /// Whatever the post-processor of `tokenizer.json`, or the engine, adds.
    Library,
}

pub(super) struct Tokenizer {
    pub(super) encoder: Encoder,
    pub(super) pieces: Arc<Pieces>,
    pub(super) bos: Bos,
    /// The vocabulary's tokens cannot be turned into bytes one by one.
    pub(super) by_window: bool,
}

impl Tokenizer {
    pub(super) fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, BoxError> {
        if text.len() > MAX_TEXT {
            return Err(format!("at most {MAX_TEXT} bytes can be tokenized at once").into());
        }
        let mut ids = match &self.encoder {
            Encoder::Library(library) => {
                let post_process = add_special && self.bos == Bos::Library;
                library.encode_fast(text, post_process)?.get_ids().to_vec()
            }
            Encoder::Spm(spm) => spm.encode(text),
            Encoder::Bytes => text.bytes().map(u32::from).collect(),
            Encoder::Words(words) => {
                let ids = words.encode(text, add_special && self.bos == Bos::Library)?;
                match ids.iter().find(|id| **id as usize >= self.pieces.len()) {
                    Some(id) => {
                        return Err(format!("the engine gave id {id}, which it has no token for").into());
                    }
                    None => ids,
                }
            }
        };
        if let Bos::Id(bos) = self.bos
            && add_special
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    pub(super) fn pieces(&self) -> &Arc<Pieces> {
        &self.pieces
    }

    /// The library, where detokenizing needs it.
    pub(super) fn window(&self) -> Option<Arc<tokenizers::Tokenizer>> {
        match &self.encoder {
            Encoder::Library(library) if self.by_window => Some(Arc::clone(library)),
            _ => None,
        }
    }
}
