//! What the roles are called in GGUF files and in Hugging Face folders.

/// Names of tensors; those of layers follow the layer's prefix, weights and biases have `.weight` and `.bias` added.
pub(super) struct Names {
    pub(super) embedding: &'static str,
    pub(super) norm: &'static str,
    pub(super) head: &'static str,
    /// Before and after the layer's number.
    pub(super) layer: (&'static str, &'static str),
    pub(super) attention_norm: &'static str,
    pub(super) query: &'static str,
    pub(super) key: &'static str,
    pub(super) value: &'static str,
    /// Query, key and value in one.
    pub(super) fused_qkv: &'static str,
    pub(super) output: &'static str,
    pub(super) query_norm: &'static str,
    pub(super) key_norm: &'static str,
    pub(super) gate: &'static str,
    pub(super) up: &'static str,
    /// Gate and up in one.
    pub(super) fused_gate_up: &'static str,
    pub(super) down: &'static str,
    /// The norm before the network where there is none after attention.
    pub(super) mlp_norm: &'static str,
    /// The norms of a layer with four.
    pub(super) sandwich: Sandwich,
    /// Parts of names that hold no weights of the graph: position tables, read when the model is described.
    pub(super) ignored: &'static [&'static str],
    /// Beginnings of names of parts that are left out and told of: what makes a text model's input of pictures.
    pub(super) beside: &'static [&'static str],
}

/// Names of the norms around attention and network where both have one before and one after.
pub(super) struct Sandwich {
    pub(super) post_attention: &'static str,
    pub(super) mlp: &'static str,
    pub(super) post_mlp: &'static str,
}

pub(super) const GGUF: Names = Names {
    embedding: "token_embd.weight",
    norm: "output_norm",
    head: "output.weight",
    layer: ("blk.", "."),
    attention_norm: "attn_norm",
    query: "attn_q",
    key: "attn_k",
    value: "attn_v",
    fused_qkv: "attn_qkv",
    output: "attn_output",
    query_norm: "attn_q_norm",
    key_norm: "attn_k_norm",
    gate: "ffn_gate",
    up: "ffn_up",
    fused_gate_up: "ffn_up",
    down: "ffn_down",
    mlp_norm: "ffn_norm",
    sandwich: Sandwich { post_attention: "post_attention_norm", mlp: "ffn_norm", post_mlp: "post_ffw_norm" },
    ignored: &["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"],
    beside: &[],
};

const HF: Names = Names {
    embedding: "model.embed_tokens.weight",
    norm: "model.norm",
    head: "lm_head.weight",
    layer: ("model.layers.", "."),
    attention_norm: "input_layernorm",
    query: "self_attn.q_proj",
    key: "self_attn.k_proj",
    value: "self_attn.v_proj",
    fused_qkv: "self_attn.qkv_proj",
    output: "self_attn.o_proj",
    query_norm: "self_attn.q_norm",
    key_norm: "self_attn.k_norm",
    gate: "mlp.gate_proj",
    up: "mlp.up_proj",
    fused_gate_up: "mlp.gate_up_proj",
    down: "mlp.down_proj",
    mlp_norm: "post_attention_layernorm",
    sandwich: Sandwich {
        post_attention: "post_attention_layernorm",
        mlp: "pre_feedforward_layernorm",
        post_mlp: "post_feedforward_layernorm",
    },
    ignored: &["rotary_emb.inv_freq"],
    beside: &[],
};

/// The layouts of a folder: a text model, and one inside a model that takes pictures too, as it is published and as later
/// versions of transformers write it.
pub(super) const HF_LAYOUTS: &[Names] = &[
    HF,
    Names {
        embedding: "model.language_model.embed_tokens.weight",
        norm: "model.language_model.norm",
        layer: ("model.language_model.layers.", "."),
        beside: &["model.vision_tower.", "model.multi_modal_projector."],
        ..HF
    },
    Names {
        embedding: "language_model.model.embed_tokens.weight",
        norm: "language_model.model.norm",
        head: "language_model.lm_head.weight",
        layer: ("language_model.model.layers.", "."),
        beside: &["vision_tower.", "multi_modal_projector."],
        ..HF
    },
];
