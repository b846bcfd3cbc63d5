//! A decoder-only transformer in neutral terms: numbers and the roles of tensors, whatever the family or the file.
//!
//! Invariant: what a [`Model`] says is complete. The graph follows from it and from the tensors it names, and a family
//! adds no code to the graph. Sizes were checked against the tensors' shapes by `families`.

mod rope;

pub use rope::{Rope, Scaling};

use std::ops::Range;

/// A whole model; `blocks` are all layers of the file.
#[derive(Debug, Clone)]
pub struct Model {
    /// The family's name as the file has it, for messages and manifests.
    pub family: String,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Rows of the embedding table.
    pub vocab: usize,
    /// Positions the model was trained for; none where the file does not say.
    pub context: Option<u64>,
    /// Token embeddings `[vocab, hidden]`.
    pub embedding: Weight,
    /// Factor on embeddings (Gemma: the square root of `hidden`).
    pub embedding_scale: Option<f32>,
    /// The layers.
    pub blocks: Vec<Block>,
    /// The last norm.
    pub norm: Norm,
    /// The language model head; it names the embedding table where the two are tied.
    pub head: Linear,
    /// Logits become `cap · tanh(logits / cap)`.
    pub logit_cap: Option<f32>,
    /// Factor on logits (none in most families).
    pub logit_scale: Option<f32>,
    /// Position encodings, chosen by [`Attention::rope`].
    pub ropes: Vec<Rope>,
}

/// One layer: attention and feed-forward network, each with a residual connection.
#[derive(Debug, Clone)]
pub struct Block {
    /// Before attention.
    pub attention_norm: Norm,
    /// Self-attention.
    pub attention: Attention,
    /// After attention, before its residual is added (Gemma 2 and 3).
    pub post_attention_norm: Option<Norm>,
    /// Before the feed-forward network.
    pub mlp_norm: Norm,
    /// The feed-forward network.
    pub mlp: Mlp,
    /// After it, before its residual is added (Gemma 2 and 3).
    pub post_mlp_norm: Option<Norm>,
}

/// Root mean square norm (Zhang and Sennrich 2019).
#[derive(Debug, Clone)]
pub struct Norm {
    /// Tensor of the gain.
    pub weight: String,
    /// Added to the mean square.
    pub epsilon: f32,
    /// The gain is `1 + weight` (Gemma in safetensors; GGUF has it added already).
    pub plus_one: bool,
}

/// Rows of a stored matrix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Weight {
    /// The stored tensor.
    pub tensor: String,
    /// Its rows that are meant; all where none (fused projections hold several matrices).
    pub rows: Option<Range<usize>>,
    /// How rows are ordered.
    pub order: RowOrder,
}

/// Order of the rows of a query or key projection within a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowOrder {
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
pub struct Linear {
    /// `[outputs, inputs]`.
    pub weight: Weight,
    /// `[outputs]`, in the order of the weight's rows.
    pub bias: Option<Weight>,
    /// Rows.
    pub outputs: usize,
    /// Columns.
    pub inputs: usize,
}

/// Self-attention with grouped key and value heads (Ainslie et al. 2023).
#[derive(Debug, Clone)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Query projection.
    pub query: Linear,
    /// Key projection.
    pub key: Linear,
    /// Value projection.
    pub value: Linear,
    /// Output projection.
    pub output: Linear,
    /// Norm of each query head (Qwen 3, Gemma 3).
    pub query_norm: Option<Norm>,
    /// Norm of each key head.
    pub key_norm: Option<Norm>,
    /// Index into [`Model::ropes`]; none where the layer has no position encoding.
    pub rope: Option<usize>,
    /// A query sees this many positions, its own included; all before it where none.
    pub window: Option<usize>,
    /// Scores become `cap · tanh(scores / cap)` (Gemma 2).
    pub cap: Option<f32>,
}

/// Gated feed-forward network: `down(act(gate(x)) · up(x))` (Shazeer 2020).
#[derive(Debug, Clone)]
pub struct Mlp {
    /// Through the activation.
    pub gate: Linear,
    /// Beside it.
    pub up: Linear,
    /// Back to the residual stream.
    pub down: Linear,
    /// Of the gate.
    pub activation: Activation,
}

/// Activation functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// The tanh approximation of GELU.
    GeluTanh,
}

impl Weight {
    /// A whole tensor in the order it has.
    pub fn whole(tensor: impl Into<String>) -> Self {
        Self { tensor: tensor.into(), rows: None, order: RowOrder::HalfSplit }
    }
}

impl Model {
    /// Whether head and embeddings are one table.
    pub fn is_tied(&self) -> bool {
        self.head.weight == self.embedding
    }

    /// Whether attention scores are capped, which no fused attention of OpenVINO does.
    pub fn caps_scores(&self) -> bool {
        self.blocks.iter().any(|block| block.attention.cap.is_some())
    }
}
