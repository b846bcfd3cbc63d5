//! Fields that clients know and this host does not act on: those that ask for something are refused by name unless they
//! have their neutral value, those that ask for nothing are left alone, and what nobody knows is counted.

use serde_json::{Value, json};

use super::fields::{Fields, unsupported};
use crate::api::Api;
use crate::error::{ApiError, Code};

/// Refused unless neutral.
const NOT_YET: &[&str] = &[
    "prompt_logprobs",
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "audio",
    "prediction",
    "web_search_options",
    "bad_words",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "chat_template",
    "return_token_ids",
    "suffix",
    "include_stop_str_in_output",
    "continue_final_message",
    "truncate_prompt_tokens",
    "thinking_token_budget",
    "priority",
];

/// Refused unless this.
fn only(name: &str) -> Option<Value> {
    Some(match name {
        "length_penalty" => json!(1),
        "skip_special_tokens" | "add_generation_prompt" | "include_reasoning" => json!(true),
        "spaces_between_special_tokens" => json!(true),
        "modalities" => json!(["text"]),
        "use_beam_search" => json!(false),
        _ => return None,
    })
}

const ONLY: &[&str] = &[
    "length_penalty",
    "skip_special_tokens",
    "add_generation_prompt",
    "include_reasoning",
    "spaces_between_special_tokens",
    "modalities",
    "use_beam_search",
];

/// Accepted whatever they say: they ask for nothing that an answer shows.
const IDLE: &[&str] = &[
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "verbosity",
    "moderation",
    "parallel_tool_calls",
    "stream_options.include_obfuscation",
];

/// Takes these fields out; an error names the first that asks for something.
pub(super) fn check(fields: &mut Fields) -> Result<(), ApiError> {
    for name in NOT_YET {
        if fields.take(name).is_some_and(|value| !is_neutral(name, &value)) {
            return Err(unsupported(name, "this version does not have it"));
        }
    }
    for name in ONLY {
        let Some(value) = fields.take(name) else { continue };
        let neutral = only(name);
        // 1 and 1.0 are one value.
        let same = |value: &Value| match (value.as_f64(), neutral.as_ref().and_then(Value::as_f64)) {
            (Some(a), Some(b)) => a == b,
            _ => Some(value) == neutral.as_ref(),
        };
        if !same(&value) {
            let shown: String = value.to_string().chars().take(80).collect();
            let only = neutral.unwrap_or_default();
            return Err(unsupported(name, format_args!("{shown}; this version has {only} only")));
        }
    }
    if let Some(format) = fields.take("response_format")
        && format.get("type").and_then(Value::as_str) != Some("text")
    {
        return Err(unsupported("response_format", "this version gives text only"));
    }
    match fields.string("reasoning_effort")?.as_deref() {
        None | Some("none" | "medium") => Ok(()),
        Some(_) => Err(unsupported(
            "reasoning_effort",
            "the model has no such switch; none and medium change nothing",
        )),
    }
}

/// What is left is known to nobody here: counted, and refused where the configuration says so. It ends here, or a long
/// field would be kept for as long as the answer takes.
pub(super) fn rest(api: &Api, fields: Fields) -> Result<(), ApiError> {
    let unknown = fields.names().filter(|name| !IDLE.contains(name));
    let mut shown = Vec::new();
    for name in unknown {
        api.metrics.unknown_fields.inc();
        if shown.len() < 8 {
            shown.push(name.chars().take(64).collect::<String>());
        }
    }
    if shown.is_empty() {
        return Ok(());
    }
    tracing::debug!(fields = shown.join(","), "request has fields that nobody knows");
    if api.config().server.strict_fields {
        let message = format!("{} is not known; server.strict_fields refuses it", shown.join(", "));
        return Err(ApiError::new(Code::UnknownParameter, message).param(shown.swap_remove(0)));
    }
    Ok(())
}

/// Whether a value of the field asks for nothing.
fn is_neutral(name: &str, value: &Value) -> bool {
    match value {
        Value::Bool(b) => !b,
        Value::Array(a) => a.is_empty(),
        // Empty options turn the search on.
        Value::Object(o) => o.is_empty() && name != "web_search_options",
        // No alternatives are asked for, but the log-probabilities are.
        Value::Number(n) => n.as_f64() == Some(0.0) && name != "prompt_logprobs",
        // Elsewhere these words are a text like any other.
        Value::String(s) if matches!(name, "tool_choice" | "function_call") => s == "none" || s == "auto",
        Value::String(s) => s.is_empty(),
        Value::Null => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: Value) -> Option<String> {
        let mut fields = Fields::parse(body.to_string().as_bytes()).expect("an object");
        check(&mut fields).err().and_then(|error| error.param)
    }

    #[test]
    fn neutral_values_ask_for_nothing_and_others_are_named() {
        let neutral = json!({
            "tools": [], "tool_choice": "none", "skip_special_tokens": true, "length_penalty": 1.0, "modalities": ["text"],
            "response_format": {"type": "text"}, "reasoning_effort": "none", "suffix": "", "prompt_logprobs": null,
            "function_call": "auto", "bad_words": [], "web_search_options": null, "priority": 0,
        });
        assert_eq!(refused(neutral), None);
        for (field, value) in [
            ("tools", json!([{}])),
            ("skip_special_tokens", json!(false)),
            ("length_penalty", json!(0.5)),
            ("modalities", json!(["audio"])),
            ("response_format", json!({"type": "json_object"})),
            ("reasoning_effort", json!("high")),
            ("use_beam_search", json!(true)),
            ("prompt_logprobs", json!(0)),
            ("suffix", json!("none")),
            ("web_search_options", json!({})),
            ("tool_choice", json!("required")),
        ] {
            assert_eq!(refused(json!({field: value})).as_deref(), Some(field));
        }
    }
}
