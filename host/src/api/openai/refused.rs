//! Fields that clients know and this host does not have: refused by name unless they have their neutral value, never
//! ignored.

use serde_json::Value;

use super::fields::{Fields, unsupported};
use crate::error::ApiError;

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
    "chat_template",
    "return_token_ids",
    "suffix",
    "typical_p",
];

/// Takes these fields out; an error names the first that asks for something.
pub(super) fn check(fields: &mut Fields) -> Result<(), ApiError> {
    for name in NOT_YET {
        match fields.take(name) {
            Some(value) if !is_neutral(&value) => {
                return Err(unsupported(name, "this version does not have it"));
            }
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

fn is_neutral(value: &Value) -> bool {
    match value {
        Value::Bool(b) => !b,
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty() || s == "none" || s == "auto",
        Value::Null => true,
    }
}
