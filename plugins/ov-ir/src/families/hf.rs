//! Families of Hugging Face folders, by `model_type` of `config.json`.
//!
//! Keys and defaults as in the configuration classes of transformers; `rope_parameters` is its version 5 form of
//! `rope_theta` and `rope_scaling`.

use std::path::Path;

use serde_json::Value;

use super::assemble::assemble;
use super::names::HF;
use super::{Choices, Facts, Layer, MAX_LAYERS, MAX_SIZE};
use crate::error::Error;
use crate::model::{Activation, Model, Rope, Scaling};
use crate::source::Source;

/// Describes the model of a folder; `path` is its `config.json`, for messages.
pub(crate) fn from_hf(
    path: &Path,
    config: &Value,
    source: &Source,
    choices: Choices,
) -> Result<Model, Error> {
    let c = Config { path, json: config };
    let family = c.text("model_type").ok_or_else(|| Error::damaged(path, "has no model_type"))?;
    if let Some(quantization) = config.get("quantization_config").filter(|value| !value.is_null()) {
        let method = quantization.get("quant_method").and_then(Value::as_str).unwrap_or("unknown");
        return Err(Error::unsupported(path, format!("quantization method {method}")));
    }
    let mut facts = match family {
        "llama" | "mistral" | "qwen2" | "qwen3" | "phi3" => base(&c, family, choices)?,
        "smollm3" => smollm3(&c, family, choices)?,
        "gemma" | "gemma2" | "gemma3_text" => gemma(&c, family, choices)?,
        other => return Err(Error::unsupported(path, format!("the model type {other}"))),
    };
    windows(&c, family, &mut facts)?;
    assemble(facts, &HF, source)
}

fn base(c: &Config, family: &str, choices: Choices) -> Result<Facts, Error> {
    let hidden = c.size("hidden_size")?;
    let heads = c.size("num_attention_heads")?;
    let kv_heads = c.optional("num_key_value_heads")?.unwrap_or(heads);
    let head_dim = c.optional("head_dim")?.unwrap_or(hidden / heads);
    let layers = c.number("num_hidden_layers", MAX_LAYERS)?.filter(|n| *n > 0);
    let layers = layers.ok_or_else(|| c.missing("num_hidden_layers"))? as usize;
    if kv_heads == 0 || heads % kv_heads != 0 || head_dim == 0 || head_dim % 2 != 0 {
        let problem = format!("has {heads} heads of {head_dim} over {kv_heads} key heads, which cannot be");
        return Err(Error::damaged(c.path, problem));
    }
    let gemma = family.starts_with("gemma");
    let activation = match c.text("hidden_activation").or(c.text("hidden_act")) {
        Some("silu" | "swish") => Activation::Silu,
        Some("gelu_pytorch_tanh") => Activation::GeluTanh,
        // The first Gemma files say gelu and mean its tanh form.
        Some("gelu") | None if gemma => Activation::GeluTanh,
        None => Activation::Silu,
        Some(other) => return Err(Error::unsupported(c.path, format!("the activation {other}"))),
    };
    let context = c.number("max_position_embeddings", u64::MAX)?;
    let partial =
        c.float("partial_rotary_factor")?.or(c.rope_parameter("partial_rotary_factor")).unwrap_or(1.0);
    let dims = (head_dim as f64 * partial) as usize;
    if dims == 0 || !dims.is_multiple_of(2) || dims > head_dim {
        return Err(Error::damaged(
            c.path,
            format!("rotates {dims} elements of heads of {head_dim}, which cannot be"),
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
    let turned = turned
        .ok_or_else(|| Error::damaged(c.path, format!("no_rope_layers is no list of {count} flags")))?;
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
                let problem = format!("names {} layer_types for {count} layers", types.len());
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
        _ => Err(Error::unsupported(c.path, format!("the layer type {kind}"))),
    }
}

/// The rope of layers of a kind; files name kinds only where they differ.
fn rope(c: &Config, kind: &str, dims: usize, choices: Choices) -> Result<Rope, Error> {
    let none = Value::Null;
    let own = c.rope_object(kind).or(c.json.get("rope_scaling")).unwrap_or(&none);
    let number = |key: &str| own.get(key).and_then(Value::as_f64).filter(|x| x.is_finite());
    let base = number("rope_theta").or(c.float("rope_theta")?).unwrap_or(10000.0);
    let need = |key: &str| number(key).ok_or_else(|| c.missing(&format!("rope_scaling.{key}")));
    let trained = number("original_max_position_embeddings")
        .or(c.float("original_max_position_embeddings")?)
        .or(c.float("max_position_embeddings")?);
    let context = || trained.ok_or_else(|| c.missing("rope_scaling.original_max_position_embeddings"));
    let name = own.get("rope_type").or(own.get("type")).and_then(Value::as_str);
    let mut rope = Rope::plain(dims, base);
    rope.scaling = match name.unwrap_or("default") {
        "default" => Scaling::None,
        "linear" => Scaling::Linear { factor: need("factor")? },
        "llama3" => Scaling::Llama3 {
            factor: need("factor")?,
            low: need("low_freq_factor")?,
            high: need("high_freq_factor")?,
            context: context()?,
        },
        "yarn" if number("mscale").is_some() || number("mscale_all_dim").is_some() => {
            return Err(Error::unsupported(c.path, "rope_scaling.mscale"));
        }
        "yarn" => Scaling::Yarn {
            factor: need("factor")?,
            fast: number("beta_fast").unwrap_or(32.0),
            slow: number("beta_slow").unwrap_or(1.0),
            context: context()?,
            truncate: own.get("truncate").and_then(Value::as_bool).unwrap_or(true),
            magnitude: number("attention_factor"),
        },
        "longrope" | "su" => {
            let trained = context()?;
            let most = c.float("max_position_embeddings")?.unwrap_or(trained);
            let stretch = number("factor").unwrap_or(most / trained);
            let grown = if stretch > 1.0 { (1.0 + stretch.ln() / trained.ln()).sqrt() } else { 1.0 };
            rope.magnitude = number("attention_factor").unwrap_or(grown);
            let long = choices.context.is_some_and(|asked| asked as f64 > trained);
            Scaling::Factors(factors(c, own, if long { "long_factor" } else { "short_factor" }, dims)?)
        }
        other => return Err(Error::unsupported(c.path, format!("rope scaling {other}"))),
    };
    Ok(rope)
}

fn factors(c: &Config, own: &Value, key: &str, dims: usize) -> Result<Vec<f32>, Error> {
    let list =
        own.get(key).and_then(Value::as_array).ok_or_else(|| c.missing(&format!("rope_scaling.{key}")))?;
    let factors: Option<Vec<f32>> = list.iter().map(|x| x.as_f64().map(|x| x as f32)).collect();
    match factors {
        Some(factors) if factors.len() == dims / 2 && factors.iter().all(|x| x.is_finite() && *x > 0.0) => {
            Ok(factors)
        }
        _ => Err(Error::damaged(
            c.path,
            format!("rope_scaling.{key} is no list of {} positive numbers", dims / 2),
        )),
    }
}

struct Config<'a> {
    path: &'a Path,
    json: &'a Value,
}

impl<'a> Config<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.json.get(key).filter(|value| !value.is_null())
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key).and_then(Value::as_str)
    }

    fn flag(&self, key: &str) -> Option<bool> {
        self.get(key).and_then(Value::as_bool)
    }

    fn missing(&self, key: &str) -> Error {
        Error::damaged(self.path, format!("has no usable {key}"))
    }

    fn number(&self, key: &str, limit: u64) -> Result<Option<u64>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().filter(|n| *n <= limit) {
            Some(n) => Ok(Some(n)),
            None => {
                Err(Error::damaged(self.path, format!("{key} is {value}, no whole number up to {limit}")))
            }
        }
    }

    fn optional(&self, key: &str) -> Result<Option<usize>, Error> {
        Ok(self.number(key, MAX_SIZE)?.map(|n| n as usize))
    }

    fn size(&self, key: &str) -> Result<usize, Error> {
        self.optional(key)?.filter(|n| *n > 0).ok_or_else(|| self.missing(key))
    }

    fn float(&self, key: &str) -> Result<Option<f64>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64().filter(|x| x.is_finite()) {
            Some(x) => Ok(Some(x)),
            None => Err(Error::damaged(self.path, format!("{key} is {value}, no finite number"))),
        }
    }

    /// The rope parameters of a kind of layer, or of all layers.
    fn rope_object(&self, kind: &str) -> Option<&'a Value> {
        let all = self.get("rope_parameters")?;
        match all.get(kind) {
            Some(own) => Some(own),
            None if all.get("rope_type").is_some() || all.get("rope_theta").is_some() => Some(all),
            None => None,
        }
    }

    fn rope_parameter(&self, key: &str) -> Option<f64> {
        self.get("rope_parameters")?.get(key)?.as_f64()
    }
}
