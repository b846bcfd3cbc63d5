//! Families of Hugging Face folders, by `model_type` of `config.json`.
//!
//! Keys and defaults as in the configuration classes of transformers; `rope_parameters` is its version 5 form of
//! `rope_theta` and `rope_scaling`.

mod config;
mod packing;
mod rope;
mod text;

use std::path::Path;

use serde_json::Value;

use super::assemble::assemble;
use super::names::HF_LAYOUTS;
use super::{Choices, Facts, Layer, MAX_LAYERS};
use crate::error::Error;
use crate::model::{Activation, Model, Rope};
use crate::source::Source;

use config::Config;
use rope::rope;
pub(crate) use text::TextConfig;

/// Describes the model of a folder; `path` is its `config.json`, for messages.
pub(crate) fn from_hf(
    path: &Path,
    config: &TextConfig,
    source: &Source,
    choices: Choices,
) -> Result<Model, Error> {
    let c = Config { path, json: &config.json };
    let family = config.family.as_str();
    let mut facts = match family {
        "smollm3" => smollm3(&c, family, choices)?,
        "gemma" | "gemma2" | "gemma3_text" => gemma(&c, family, choices)?,
        _ => base(&c, family, choices)?,
    };
    windows(&c, family, &mut facts)?;
    let layouts = if config.inner { HF_LAYOUTS } else { &HF_LAYOUTS[..1] };
    let names = layouts.iter().find(|names| source.has(names.embedding));
    assemble(facts, names.unwrap_or(&layouts[layouts.len() - 1]), source)
}

fn base(c: &Config, family: &str, choices: Choices) -> Result<Facts, Error> {
    let hidden = c.size("hidden_size")?;
    let heads = c.size("num_attention_heads")?;
    let kv_heads = c.optional("num_key_value_heads")?.unwrap_or(heads);
    let head_dim = c.optional("head_dim")?.unwrap_or(hidden / heads);
    let layers = c.number("num_hidden_layers", MAX_LAYERS)?.filter(|n| *n > 0);
    let layers = layers.ok_or_else(|| c.missing("num_hidden_layers"))? as usize;
    if kv_heads == 0 || heads % kv_heads != 0 || head_dim == 0 || head_dim % 2 != 0 {
        let problem = format!(
            "has {heads} heads of {head_dim} over {kv_heads} key heads, which cannot be; take the config.json of the original model"
        );
        return Err(Error::damaged(c.path, problem));
    }
    let gemma = family.starts_with("gemma");
    let activation = match c.text("hidden_activation").or(c.text("hidden_act")) {
        Some("silu" | "swish") => Activation::Silu,
        Some("gelu_pytorch_tanh") => Activation::GeluTanh,
        // The first Gemma files say gelu and mean its tanh form.
        Some("gelu") | None if gemma => Activation::GeluTanh,
        None => Activation::Silu,
        Some(other) => {
            let known = "known are silu and gelu_pytorch_tanh";
            return Err(Error::unsupported(c.path, format!("the activation {other}"), known));
        }
    };
    let context = c.number("max_position_embeddings", u64::MAX)?;
    let partial =
        c.float("partial_rotary_factor")?.or(c.rope_parameter("partial_rotary_factor")).unwrap_or(1.0);
    let dims = (head_dim as f64 * partial) as usize;
    if dims == 0 || !dims.is_multiple_of(2) || dims > head_dim {
        return Err(Error::damaged(
            c.path,
            format!(
                "rotates {dims} elements of heads of {head_dim}, which cannot be; take the config.json of the original model"
            ),
        ));
    }
    Ok(Facts {
        family: family.to_owned(),
        hidden,
        heads,
        kv_heads,
        head_dim,
        epsilon: c.float("rms_norm_eps")?.ok_or_else(|| c.missing("rms_norm_eps"))? as f32,
        context,
        activation,
        interleaved: false,
        plus_one: gemma,
        sandwich: matches!(family, "gemma2" | "gemma3_text"),
        tied: c.flag("tie_word_embeddings").unwrap_or(gemma || family == "smollm3"),
        embedding_scale: None,
        attention_scale: None,
        attention_cap: None,
        logit_cap: None,
        ropes: vec![rope(c, "full_attention", dims, choices)?],
        layers: vec![Layer { rope: Some(0), window: None }; layers],
    })
}

/// Some layers have no position encoding: those with a 0 in a list, or every fourth.
fn smollm3(c: &Config, family: &str, choices: Choices) -> Result<Facts, Error> {
    let mut facts = base(c, family, choices)?;
    let count = facts.layers.len();
    let period = c.optional("no_rope_layer_interval")?.unwrap_or(4).max(1);
    let turned: Option<Vec<bool>> = match c.get("no_rope_layers") {
        None => Some((0..count).map(|layer| (layer + 1) % period != 0).collect()),
        Some(list) => list
            .as_array()
            .filter(|list| list.len() == count)
            .and_then(|list| list.iter().map(|flag| flag.as_u64().map(|flag| flag != 0)).collect()),
    };
    let turned = turned.ok_or_else(|| {
        Error::damaged(
            c.path,
            format!("no_rope_layers is no list of {count} flags; take the config.json of the original model"),
        )
    })?;
    for (layer, turned) in facts.layers.iter_mut().zip(turned) {
        layer.rope = layer.rope.filter(|_| turned);
    }
    Ok(facts)
}

fn gemma(c: &Config, family: &str, choices: Choices) -> Result<Facts, Error> {
    let mut facts = base(c, family, choices)?;
    facts.embedding_scale = Some((facts.hidden as f32).sqrt());
    if family != "gemma" {
        let width = c.float("query_pre_attn_scalar")?.unwrap_or(256.0);
        facts.attention_scale = Some(1.0 / (width as f32).sqrt());
        facts.logit_cap = c.float("final_logit_softcapping")?.map(|cap| cap as f32);
        facts.attention_cap = c.float("attn_logit_softcapping")?.map(|cap| cap as f32);
    }
    if family == "gemma3_text" {
        if c.flag("use_bidirectional_attention") == Some(true) {
            return Err(Error::feature(c.path, "use_bidirectional_attention (an embedding model)"));
        }
        let dims = facts.ropes[0].dims;
        let base = c.float("rope_local_base_freq")?.unwrap_or(10000.0);
        let local = match c.rope_object("sliding_attention") {
            Some(_) => rope(c, "sliding_attention", dims, choices)?,
            None => Rope::plain(dims, base),
        };
        facts.ropes.push(local);
    }
    Ok(facts)
}

/// Which layers see a window only.
fn windows(c: &Config, family: &str, facts: &mut Facts) -> Result<(), Error> {
    let window = c.optional("sliding_window")?.filter(|window| *window > 0);
    let Some(window) = window else { return Ok(()) };
    let count = facts.layers.len();
    let types = c.json.get("layer_types").and_then(Value::as_array);
    let local: Vec<bool> = match (types, family) {
        (_, "llama" | "gemma") => return Ok(()),
        (_, "qwen2" | "qwen3" | "smollm3") if c.flag("use_sliding_window") != Some(true) => return Ok(()),
        (_, "mistral" | "phi3") => vec![true; count],
        (Some(types), _) => {
            if types.len() != count {
                let problem = format!(
                    "names {} layer_types for {count} layers; take the config.json of the original model",
                    types.len()
                );
                return Err(Error::damaged(c.path, problem));
            }
            types.iter().map(|kind| layer_kind(c, kind)).collect::<Result<_, _>>()?
        }
        (None, "qwen2" | "qwen3") => {
            let first = c.optional("max_window_layers")?.unwrap_or(28);
            (0..count).map(|layer| layer >= first).collect()
        }
        (None, "gemma2") => (0..count).map(|layer| layer % 2 == 0).collect(),
        (None, _) => {
            let period = c.optional("sliding_window_pattern")?.unwrap_or(6).max(1);
            (0..count).map(|layer| (layer + 1) % period != 0).collect()
        }
    };
    let local_rope = facts.ropes.len() - 1;
    for (layer, local) in facts.layers.iter_mut().zip(local) {
        if local {
            *layer = Layer { rope: layer.rope.map(|_| local_rope), window: Some(window) };
        }
    }
    Ok(())
}

fn layer_kind(c: &Config, kind: &Value) -> Result<bool, Error> {
    match kind.as_str() {
        Some("sliding_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => {
            let known = "known are full_attention and sliding_attention";
            Err(Error::unsupported(c.path, format!("the layer type {kind}"), known))
        }
    }
}
