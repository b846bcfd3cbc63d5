//! What a configuration is of: whether we have the family, and which part of it is the text model.
//!
//! What must hold: what is not supported is refused here, by its name, before a weight is looked at. Models that take
//! pictures too have a text model inside, whose configuration leaves out what its class has by default.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::packing;
use crate::error::Error;
use crate::families::DENSE;
use crate::source::packed::Packing;

/// The configuration of a text model.
pub(crate) struct TextConfig {
    /// Its keys, with the defaults of its class where they are left out.
    pub(super) json: Value,
    /// Its `model_type`.
    pub(super) family: String,
    /// It is a part of a model that takes pictures too.
    pub(super) inner: bool,
    /// How its matrices were packed, if they were.
    pub(crate) packing: Option<Packing>,
}

/// Text models.
const FAMILIES: [&str; 9] =
    ["llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma", "gemma2", "gemma3_text", "phi3"];

/// Models that take pictures too, and the text models in them.
const INSIDE: [(&str, &str); 2] = [("gemma3", "gemma3_text"), ("mistral3", "mistral")];

impl TextConfig {
    /// Finds the text model of a configuration; `path` is for messages.
    ///
    /// # Errors
    /// The family, or what was made of it, is not supported.
    pub(crate) fn of(path: &Path, config: &Value) -> Result<Self, Error> {
        let outer = config.get("model_type").and_then(Value::as_str);
        let outer = outer.ok_or_else(|| {
            Error::damaged(path, "has no model_type; take the config.json of the original model")
        })?;
        let text = config.get("text_config").and_then(Value::as_object);
        dense(path, outer, &[Some(config), config.get("text_config")])?;
        let packing = packing::of(path, &[Some(config), config.get("text_config")])?;
        let Some((_, expected)) = INSIDE.iter().find(|(model, _)| *model == outer) else {
            if !FAMILIES.contains(&outer) {
                return Err(unknown(path, format!("the model type {outer}")));
            }
            return Ok(Self { json: config.clone(), family: outer.to_owned(), inner: false, packing });
        };
        let text = text.ok_or_else(|| {
            Error::damaged(path, "has no text_config; take the config.json of the original model")
        })?;
        let family = text.get("model_type").and_then(Value::as_str).unwrap_or(expected);
        if family != *expected {
            return Err(unknown(
                path,
                format!("the model type {outer} with a text model of the type {family}"),
            ));
        }
        let mut all = defaults(family);
        all.extend(text.clone());
        Ok(Self { json: Value::Object(all), family: family.to_owned(), inner: true, packing })
    }
}

fn unknown(path: &Path, what: String) -> Error {
    let (families, inside) = (FAMILIES.join(", "), INSIDE.map(|(model, _)| model).join(" and "));
    Error::unsupported(path, what, format!("known are {families}, and of {inside} the text model"))
}
/// What the classes of transformers have where a configuration within another says nothing.
fn defaults(family: &str) -> Map<String, Value> {
    let all = match family {
        "gemma3_text" => json!({
            "hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
            "head_dim": 256, "max_position_embeddings": 131_072, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "sliding_window": 4096,
        }),
        _ => json!({
            "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "max_position_embeddings": 131_072, "rms_norm_eps": 1e-6, "sliding_window": 4096,
        }),
    };
    match all {
        Value::Object(all) => all,
        _ => Map::new(),
    }
}

/// Refuses mixtures of experts, by the keys in which families count them.
fn dense(path: &Path, family: &str, configs: &[Option<&Value>]) -> Result<(), Error> {
    const COUNTS: [&str; 4] = ["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"];
    let counted = configs.iter().flatten().find_map(|config| {
        let count = |key: &&str| config.get(*key).and_then(Value::as_u64).filter(|count| *count > 0);
        COUNTS.iter().find_map(|key| count(key).map(|count| format!(", {key} {count}")))
    });
    if counted.is_none() && !family.ends_with("_moe") && family != "mixtral" {
        return Ok(());
    }
    let what = format!("a mixture of experts (model type {family}{})", counted.unwrap_or_default());
    Err(Error::unsupported(path, what, DENSE))
}
