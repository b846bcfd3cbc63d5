//! The sampling fields that chat and text completions share, checked against what the engine can do.

use serde_json::Value;

use super::fields::{Fields, unsupported, wrong};
use crate::error::{ApiError, Code};
use crate::generate::Sampling;
use crate::models::Model;
use cascadia_plugin_api::ext::features;

/// Most stop strings of a request.
const MAX_STOPS: usize = 16;
/// Longest stop string in bytes: it bounds what is held back.
const MAX_STOP_BYTES: usize = 4096;

/// What both endpoints ask for.
#[derive(Debug)]
pub(super) struct Params {
    /// Most tokens, when the client said so.
    pub(super) max_tokens: Option<u32>,
    /// Fewest tokens.
    pub(super) min_tokens: u32,
    /// End tokens do not end it.
    pub(super) ignore_eos: bool,
    /// Tokens that end it.
    pub(super) stop_tokens: Vec<u32>,
    /// Texts that end it.
    pub(super) stops: Vec<String>,
    /// How tokens are chosen.
    pub(super) sampling: Sampling,
    /// Stream the answer.
    pub(super) stream: bool,
    /// Send the counts at the end of the stream.
    pub(super) include_usage: bool,
}

impl Params {
    /// Takes the shared fields out of `fields`. `max_choices` bounds `n`.
    pub(super) fn read(fields: &mut Fields, model: &Model, max_choices: usize) -> Result<Params, ApiError> {
        choices(fields, max_choices)?;
        not_yet(fields)?;
        let max_tokens = match fields.integer("max_completion_tokens", 1, MAX_TOKENS)? {
            Some(n) => fields.integer("max_tokens", 1, MAX_TOKENS)?.and(Some(n)).or(Some(n)),
            None => fields.integer("max_tokens", 1, MAX_TOKENS)?,
        };
        let stream = fields.boolean("stream")?;
        let include_usage = match fields.object("stream_options")? {
            None => false,
            Some(_) if !stream => {
                let message = "stream_options needs stream to be true";
                return Err(ApiError::new(Code::InvalidValue, message).param("stream_options"));
            }
            Some(mut options) => options.boolean("include_usage")?,
        };
        let params = Params {
            max_tokens: max_tokens.map(small),
            min_tokens: fields.integer("min_tokens", 0, MAX_TOKENS)?.map_or(0, small),
            ignore_eos: fields.boolean("ignore_eos")?,
            stop_tokens: fields.token_ids("stop_token_ids")?,
            stops: stops(fields.take("stop"))?,
            sampling: sampling(fields, model)?,
            stream,
            include_usage,
        };
        params.check(model)?;
        Ok(params)
    }

    /// Refuses what the engine's card lacks; neutral values are always fine.
    fn check(&self, model: &Model) -> Result<(), ApiError> {
        let (s, off) = (&self.sampling, Sampling::default());
        let wanted = [
            ("temperature", s.temperature > 0.0, features::SAMPLING),
            ("min_p", s.min_p > 0.0, features::MIN_P),
            ("frequency_penalty", s.frequency_penalty != 0.0, features::PENALTIES),
            ("presence_penalty", s.presence_penalty != 0.0, features::PENALTIES),
            (
                "repetition_penalty",
                s.repetition_penalty != off.repetition_penalty,
                features::REPETITION_PENALTY,
            ),
            // Greedy decoding is reproducible with any seed.
            ("seed", s.seed.is_some() && s.temperature > 0.0, features::SEED),
            ("min_tokens", self.min_tokens > 0, features::MIN_TOKENS),
            ("ignore_eos", self.ignore_eos, features::IGNORE_EOS),
        ];
        match wanted.iter().find(|(_, asked, feature)| *asked && !model.card.has(feature)) {
            None => Ok(()),
            Some((field, _, feature)) => {
                Err(unsupported(field, format_args!("the engine of {} does not have {feature}", model.name)))
            }
        }
    }
}

/// No window is near this.
const MAX_TOKENS: i64 = 1 << 30;

fn small(n: i64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn sampling(fields: &mut Fields, model: &Model) -> Result<Sampling, ApiError> {
    let off = Sampling::default();
    // A greedy-only engine is greedy unless asked for something else.
    let natural = if model.card.has(features::SAMPLING) { off.temperature } else { 0.0 };
    Ok(Sampling {
        temperature: fields.number("temperature", 0.0, 2.0)?.unwrap_or(natural),
        top_p: fields.number("top_p", 0.0, 1.0)?.unwrap_or(off.top_p),
        top_k: fields.integer("top_k", -1, i64::from(u32::MAX))?.map_or(off.top_k, |k| small(k.max(0))),
        min_p: fields.number("min_p", 0.0, 1.0)?.unwrap_or(off.min_p),
        repetition_penalty: fields
            .number("repetition_penalty", 0.01, 10.0)?
            .unwrap_or(off.repetition_penalty),
        frequency_penalty: fields.number("frequency_penalty", -2.0, 2.0)?.unwrap_or(off.frequency_penalty),
        presence_penalty: fields.number("presence_penalty", -2.0, 2.0)?.unwrap_or(off.presence_penalty),
        // The bits of a negative seed are as good as any.
        seed: fields.integer("seed", i64::MIN, i64::MAX)?.map(i64::cast_unsigned),
    })
}

fn stops(value: Option<Value>) -> Result<Vec<String>, ApiError> {
    let stops = match value {
        None => return Ok(Vec::new()),
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) if many.len() <= MAX_STOPS && many.iter().all(Value::is_string) => {
            many.into_iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
        }
        Some(other) => return Err(wrong("stop", "a string or a list of at most 16 strings", &other)),
    };
    match stops.iter().find(|s| s.is_empty() || s.len() > MAX_STOP_BYTES) {
        None => Ok(stops),
        Some(_) => {
            let message = format!("stop has a string that is empty or over {MAX_STOP_BYTES} bytes");
            Err(ApiError::new(Code::InvalidValue, message).param("stop"))
        }
    }
}

/// `n` and `best_of`.
fn choices(fields: &mut Fields, max: usize) -> Result<(), ApiError> {
    for name in ["n", "best_of"] {
        match fields.integer(name, 1, i64::from(u32::MAX))? {
            None | Some(1) => {}
            Some(n) if usize::try_from(n).map_or(true, |n| n > max) => {
                let message = format!("{name} is {n}; one request may have at most {max} choices");
                return Err(ApiError::new(Code::MultiPrompt, message).param(name));
            }
            Some(_) => return Err(unsupported(name, "this version gives one choice a request")),
        }
    }
    Ok(())
}

/// Fields that are known and not implemented: refused unless they have their neutral value, never ignored.
fn not_yet(fields: &mut Fields) -> Result<(), ApiError> {
    let empty = |v: &Value| match v {
        Value::Bool(b) => !b,
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s == "none" || s == "auto",
        Value::Null => true,
    };
    for name in [
        "logprobs",
        "top_logprobs",
        "prompt_logprobs",
        "logit_bias",
        "tools",
        "tool_choice",
        "functions",
        "function_call",
        "audio",
        "prediction",
        "web_search_options",
        "bad_words",
        "allowed_token_ids",
        "structured_outputs",
        "chat_template",
        "return_token_ids",
        "echo",
        "suffix",
        "typical_p",
    ] {
        match fields.take(name) {
            Some(value) if !empty(&value) => return Err(unsupported(name, "this version does not have it")),
            _ => {}
        }
    }
    if let Some(format) = fields.take("response_format")
        && format.get("type").and_then(Value::as_str) != Some("text")
    {
        return Err(unsupported("response_format", "this version gives text only"));
    }
    match fields.take("modalities") {
        Some(modalities) if modalities != serde_json::json!(["text"]) => {
            Err(unsupported("modalities", "this version gives text only"))
        }
        _ => Ok(()),
    }
}
