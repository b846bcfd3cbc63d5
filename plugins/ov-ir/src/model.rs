//! A decoder-only transformer in neutral terms: numbers and the roles of tensors, whatever the family or the file.
//!
//! Invariant: what a [`Model`] says is complete. The graph follows from it and from the tensors it names, and a family
//! adds no code to the graph. Sizes were checked against the tensors' shapes by `families`.

mod rope;

pub(crate) use rope::{Rope, Scaling};

use std::collections::BTreeMap;
use std::ops::Range;

use crate::manifest::Stored;

/// A whole model; `blocks` are all layers of the file.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    /// The family's name as the file has it, for messages and manifests.
    pub(crate) family: String,
    /// Width of the residual stream.
    pub(crate) hidden: usize,
    /// Rows of the embedding table.
    pub(crate) vocab: usize,
    /// Positions the model was trained for; none where the file does not say.
    pub(crate) context: Option<u64>,
    /// Token embeddings `[vocab, hidden]`.
    pub(crate) embedding: Weight,
    /// Factor on embeddings (Gemma: the square root of `hidden`).
    pub(crate) embedding_scale: Option<f32>,
    /// The layers.
    pub(crate) blocks: Vec<Block>,
    /// The last norm.
    pub(crate) norm: Norm,
    /// The language model head; it names the embedding table where the two are tied.
    pub(crate) head: Linear,
    /// Logits become `cap · tanh(logits / cap)`.
    pub(crate) logit_cap: Option<f32>,
    /// Factor on logits (none in most families).
    pub(crate) logit_scale: Option<f32>,
    /// Position encodings, chosen by [`Attention::rope`].
    pub(crate) ropes: Vec<Rope>,
    /// Parts of the source that are no part of the text model: their names, and what they have.
    pub(crate) left_out: BTreeMap<String, Stored>,
}

/// One layer: attention and feed-forward network, each with a residual connection.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// Before attention.
    pub(crate) attention_norm: Norm,
    /// Self-attention.
    pub(crate) attention: Attention,
    /// After attention, before its residual is added (Gemma 2 and 3).
    pub(crate) post_attention_norm: Option<Norm>,
    /// Before the feed-forward network.
    pub(crate) mlp_norm: Norm,
    /// The feed-forward network.
    pub(crate) mlp: Mlp,
    /// After it, before its residual is added (Gemma 2 and 3).
    pub(crate) post_mlp_norm: Option<Norm>,
}

/// Root mean square norm (Zhang and Sennrich 2019).
#[derive(Debug, Clone)]
pub(crate) struct Norm {
    /// Tensor of the gain.
    pub(crate) weight: String,
    /// Added to the mean square.
    pub(crate) epsilon: f32,
    /// The gain is `1 + weight` (Gemma in safetensors; GGUF has it added already).
    pub(crate) plus_one: bool,
}

/// Rows of a stored matrix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Weight {
    /// The stored tensor.
    pub(crate) tensor: String,
    /// Its rows that are meant; all where none (fused projections hold several matrices).
    pub(crate) rows: Option<Range<usize>>,
    /// How rows are ordered.
    pub(crate) order: RowOrder,
}

/// Order of the rows of a query or key projection within a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RowOrder {
    /// As the graph needs it: the two halves of each rotated pair lie half a head apart.
    HalfSplit,
    /// Pairs are neighbours, as GGUF files of the llama architecture have them. Rows are put back when read.
    Interleaved {
        /// Heads among which the rows are divided.
        heads: usize,
        /// Rows of a head that are rotated; the others stay.
        rotated: usize,
    },
}

/// `y = x · Wᵀ + b`.
#[derive(Debug, Clone)]
pub(crate) struct Linear {
    /// `[outputs, inputs]`.
    pub(crate) weight: Weight,
    /// `[outputs]`, in the order of the weight's rows.
    pub(crate) bias: Option<Weight>,
    /// Columns.
    pub(crate) inputs: usize,
}

/// Self-attention with grouped key and value heads (Ainslie et al. 2023).
#[derive(Debug, Clone)]
pub(crate) struct Attention {
    /// Query heads.
    pub(crate) heads: usize,
    /// Key and value heads; divides `heads`.
    pub(crate) kv_heads: usize,
    /// Width of a head.
    pub(crate) head_dim: usize,
    /// Factor on the scores.
    pub(crate) scale: f32,
    /// Query projection.
    pub(crate) query: Linear,
    /// Key projection.
    pub(crate) key: Linear,
    /// Value projection.
    pub(crate) value: Linear,
    /// Output projection.
    pub(crate) output: Linear,
    /// Norm of each query head (Qwen 3, Gemma 3).
    pub(crate) query_norm: Option<Norm>,
    /// Norm of each key head.
    pub(crate) key_norm: Option<Norm>,
    /// Index into [`Model::ropes`]; none where the layer has no position encoding.
    pub(crate) rope: Option<usize>,
    /// A query sees this many positions, its own included; all before it where none.
    pub(crate) window: Option<usize>,
    /// Scores become `cap · tanh(scores / cap)` (Gemma 2).
    pub(crate) cap: Option<f32>,
}

/// Gated feed-forward network: `down(act(gate(x)) · up(x))` (Shazeer 2020).
#[derive(Debug, Clone)]
pub(crate) struct Mlp {
    /// Through the activation.
    pub(crate) gate: Linear,
    /// Beside it.
    pub(crate) up: Linear,
    /// Back to the residual stream.
    pub(crate) down: Linear,
    /// Of the gate.
    pub(crate) activation: Activation,
}

/// Activation functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// The tanh approximation of GELU.
    GeluTanh,
}

impl Weight {
    /// A whole tensor in the order it has.
    pub(crate) fn whole(tensor: impl Into<String>) -> Self {
        Self { tensor: tensor.into(), rows: None, order: RowOrder::HalfSplit }
    }
}

impl Model {
    /// Whether head and embeddings are one table.
    pub(crate) fn is_tied(&self) -> bool {
        self.head.weight == self.embedding
    }

    /// Whether attention scores are capped, which no fused attention of OpenVINO does.
    pub(crate) fn caps_scores(&self) -> bool {
        self.blocks.iter().any(|block| block.attention.cap.is_some())
    }
}
