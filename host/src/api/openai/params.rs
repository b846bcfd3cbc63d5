//! The sampling fields that chat and text completions share, checked against what the engine can do.

use serde_json::Value;

use super::fields::{Fields, out_of_range, unsupported, wrong};
use super::frames::Dialect;
use super::refused;
use crate::error::{ApiError, Code};
use crate::generate::{Bias, Sampling};
use crate::models::Offer;
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
    /// Additions to logits.
    pub(super) logit_bias: Vec<Bias>,
    /// Where not empty, the only tokens that may be chosen.
    pub(super) allowed: Vec<u32>,
    /// Log-probabilities that are wanted: none, or so many alternatives beside each chosen token.
    pub(super) logprobs: Option<u32>,
    /// The answer begins with the prompt.
    pub(super) echo: bool,
    /// Choices of each prompt.
    pub(super) choices: usize,
    /// Stream the answer.
    pub(super) stream: bool,
    /// Send the counts at the end of the stream.
    pub(super) include_usage: bool,
}

impl Params {
    /// Takes the shared fields out of `fields`, for so many prompts. `max_choices` bounds all choices together.
    pub(super) fn read(
        fields: &mut Fields,
        model: Offer<'_>,
        dialect: Dialect,
        prompts: usize,
        max_choices: usize,
    ) -> Result<Params, ApiError> {
        let choices = choices(fields, prompts, max_choices)?;
        let logprobs = logprobs(fields, dialect)?;
        let echo = dialect == Dialect::Text && fields.boolean("echo")?;
        refused::check(fields)?;
        // A completion of no tokens is how a prompt is scored.
        let least = if dialect == Dialect::Text { 0 } else { 1 };
        let max_tokens = fields.integer("max_tokens", least, MAX_TOKENS)?;
        let max_tokens = fields.integer("max_completion_tokens", least, MAX_TOKENS)?.or(max_tokens);
        let stream = fields.boolean("stream")?;
        let include_usage = match fields.few("stream_options")? {
            None => false,
            Some(_) if !stream => {
                let message = "stream_options needs stream to be true";
                return Err(ApiError::new(Code::InvalidValue, message).param("stream_options"));
            }
            Some(mut options) => {
                let include_usage = options.boolean("include_usage")?;
                fields.leave("stream_options", &options);
                include_usage
            }
        };
        let params = Params {
            max_tokens: max_tokens.map(small),
            min_tokens: fields.integer("min_tokens", 0, MAX_TOKENS)?.map_or(0, small),
            ignore_eos: fields.boolean("ignore_eos")?,
            stop_tokens: fields.token_ids("stop_token_ids")?,
            stops: stops(fields.take("stop"))?,
            sampling: sampling(fields, model)?,
            logit_bias: logit_bias(fields, model)?,
            allowed: fields.token_ids("allowed_token_ids")?,
            logprobs,
            echo,
            choices,
            stream,
            include_usage,
        };
        params.check(model, dialect)?;
        Ok(params)
    }

    /// Whether so many tokens as are asked for may be: where that is strict, no more than there is room for.
    pub(super) fn fits(&self, room: u32, strict: bool) -> Result<(), ApiError> {
        match self.max_tokens {
            Some(wanted) if strict && wanted > room => {
                let message = format!(
                    "max_tokens is {wanted}, and the model's window has room for {room} behind this prompt; \
                     server.strict_max_tokens refuses it"
                );
                Err(ApiError::new(Code::InvalidValue, message).param("max_tokens"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what the engine's card lacks; neutral values are always fine.
    fn check(&self, model: Offer<'_>, dialect: Dialect) -> Result<(), ApiError> {
        let (s, off) = (&self.sampling, Sampling::default());
        // A completion says with one field whether and how many.
        let alternatives = if dialect == Dialect::Text { "logprobs" } else { "top_logprobs" };
        let wanted = [
            ("temperature", s.temperature > 0.0, features::SAMPLING),
            ("min_p", s.min_p > 0.0, features::MIN_P),
            ("typical_p", s.typical_p < 1.0, features::TYPICAL_P),
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
            ("logprobs", self.logprobs.is_some(), features::LOGPROBS),
            (alternatives, self.logprobs.is_some_and(|n| n > 0), features::TOP_LOGPROBS),
            ("echo", self.echo && self.logprobs.is_some(), features::PROMPT_LOGPROBS),
            ("logit_bias", !self.logit_bias.is_empty(), features::LOGIT_BIAS),
            ("allowed_token_ids", !self.allowed.is_empty(), features::TOKEN_LISTS),
        ];
        match wanted.iter().find(|(_, asked, feature)| *asked && !model.card.has(feature)) {
            None => Ok(()),
            Some((field, _, feature)) => {
                let way = if *feature == features::TOP_LOGPROBS {
                    "; 0 gives those of the chosen tokens"
                } else {
                    ""
                };
                let name = model.name;
                Err(unsupported(field, format_args!("the engine of {name} does not have {feature}{way}")))
            }
        }
    }
}

/// Most alternatives of a token.
const MAX_ALTERNATIVES: i64 = 20;
/// No window is near this.
const MAX_TOKENS: i64 = 1 << 30;

fn small(n: i64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn sampling(fields: &mut Fields, model: Offer<'_>) -> Result<Sampling, ApiError> {
    let off = Sampling::default();
    // A greedy-only engine is greedy unless asked for something else.
    let can = model.card.has(features::SAMPLING);
    let natural = if can { off.temperature } else { 0.0 };
    let temperature = fields.number("temperature", 0.0, 2.0)?;
    let top_p = fields.number("top_p", 0.0, 1.0)?.unwrap_or(off.top_p);
    let top_k = fields.integer("top_k", -1, i64::from(u32::MAX))?.map_or(off.top_k, |k| small(k.max(0)));
    // With a temperature of zero they change nothing; without one they ask for what a greedy engine does not do.
    for (field, asked) in [("top_p", top_p < 1.0), ("top_k", top_k > 0)] {
        if asked && !can && temperature.is_none() {
            return Err(unsupported(field, format_args!("the engine of {} is greedy", model.name)));
        }
    }
    Ok(Sampling {
        temperature: temperature.unwrap_or(natural),
        top_p,
        top_k,
        min_p: fields.number("min_p", 0.0, 1.0)?.unwrap_or(off.min_p),
        typical_p: fields.number("typical_p", 0.0, 1.0)?.unwrap_or(off.typical_p),
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

/// Choices of each prompt: `n`, and `best_of`, which may not ask for more.
fn choices(fields: &mut Fields, prompts: usize, max: usize) -> Result<usize, ApiError> {
    // Of too many choices more is said below than that they are.
    let count =
        |fields: &mut Fields, name: &str, least: i64| match fields.integer(name, i64::MIN, i64::MAX)? {
            Some(n) if n < least => Err(out_of_range(name, n, least, i64::try_from(max).unwrap_or(i64::MAX))),
            other => Ok(other),
        };
    let n = count(fields, "n", 1)?.unwrap_or(1);
    if let Some(best_of) = count(fields, "best_of", 0)?.filter(|b| *b > 0)
        && best_of != n
    {
        return Err(match best_of < n {
            true => {
                ApiError::new(Code::InvalidValue, format!("best_of is {best_of}, less than n, which is {n}"))
                    .param("best_of")
            }
            false => unsupported("best_of", "every choice is given; ask for as many with n"),
        });
    }
    let n = usize::try_from(n).unwrap_or(usize::MAX);
    if n.saturating_mul(prompts) > max {
        let message = format!(
            "prompts times choices is {prompts} x {n}; one request may have at most {max} (limits.max_choices)"
        );
        return Err(ApiError::new(Code::MultiPrompt, message).param("n"));
    }
    Ok(n)
}

/// How many alternatives are wanted beside each token's log-probability; none when not even that is.
fn logprobs(fields: &mut Fields, dialect: Dialect) -> Result<Option<u32>, ApiError> {
    if dialect == Dialect::Text {
        // Some clients say false where the reference has null.
        return match fields.take("logprobs") {
            None | Some(Value::Bool(false)) => Ok(None),
            Some(value) => {
                fields.put("logprobs", value);
                Ok(fields.integer("logprobs", 0, MAX_ALTERNATIVES)?.map(small))
            }
        };
    }
    let wanted = fields.boolean("logprobs")?;
    let top = fields.integer("top_logprobs", 0, MAX_ALTERNATIVES)?;
    match (wanted, top) {
        (false, Some(1..)) => {
            let message = "top_logprobs needs logprobs to be true";
            Err(ApiError::new(Code::InvalidValue, message).param("top_logprobs"))
        }
        (false, _) => Ok(None),
        (true, top) => Ok(Some(top.map_or(0, small))),
    }
}

fn logit_bias(fields: &mut Fields, model: Offer<'_>) -> Result<Vec<Bias>, ApiError> {
    let Some(map) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    let known = model.text.vocab_size();
    let bad = |message: String| ApiError::new(Code::InvalidValue, message).param("logit_bias");
    let mut biases = Vec::new();
    for (key, value) in map {
        let token = key.parse::<u32>().ok().filter(|id| (*id as usize) < known);
        let shown: String = key.chars().take(40).collect();
        let token = token.ok_or_else(|| {
            bad(format!("logit_bias has the key {shown:?}; keys are token ids below {known}"))
        })?;
        let bias = value.as_f64().filter(|bias| (-100.0..=100.0).contains(bias));
        let bias = bias
            .ok_or_else(|| bad(format!("logit_bias of {token} is {value}; it must be from -100 to 100")))?;
        if bias != 0.0 {
            biases.push(Bias { token, bias: bias as f32 });
        }
    }
    Ok(biases)
}
