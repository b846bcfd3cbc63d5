//! From a file's own terms to a [`Model`]: which families there are, what their keys mean, how tensors are called.
//!
//! A family is a row of facts (`gguf`, `hf`), not code: `assemble` makes the model of any of them. What must hold: a
//! tensor of the file that the model does not use is an error, since it stands for a feature that would be lost
//! silently; every tensor that it uses has the shape that the numbers demand.

mod assemble;
mod gguf;
mod hf;
mod names;

use crate::model::{Activation, Rope};

pub(crate) use gguf::from_gguf;
pub(crate) use hf::{TextConfig, from_hf};

/// The way out for mixtures of experts.
const DENSE: &str = "take a dense model, or serve this one by an engine that has experts";

/// What the two kinds of file have to say for a model to be assembled.
pub(crate) struct Facts {
    pub(crate) family: String,
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) epsilon: f32,
    pub(crate) context: Option<u64>,
    pub(crate) activation: Activation,
    /// Query and key rows have rotated pairs as neighbours.
    pub(crate) interleaved: bool,
    /// Norm gains are stored less one.
    pub(crate) plus_one: bool,
    /// Norms after attention and the network too.
    pub(crate) sandwich: bool,
    /// The head is the embedding table even where the file has one of its own.
    pub(crate) tied: bool,
    pub(crate) embedding_scale: Option<f32>,
    /// Where it is not one over the root of the head's width.
    pub(crate) attention_scale: Option<f32>,
    pub(crate) attention_cap: Option<f32>,
    pub(crate) logit_cap: Option<f32>,
    pub(crate) ropes: Vec<Rope>,
    pub(crate) layers: Vec<Layer>,
}

/// What differs from layer to layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) rope: Option<usize>,
    pub(crate) window: Option<usize>,
}

/// What the caller decides where a file leaves a choice.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Choices {
    /// Positions that will be used; LongRoPE models have one set of factors for short and one for long contexts.
    pub(crate) context: Option<u64>,
}

/// Layers in a file; the largest models have below 200.
const MAX_LAYERS: u64 = 4096;
/// Any size of a model's numbers.
const MAX_SIZE: u64 = 1 << 24;
