//! `POST /v1/completions`: the prompt as it is, without a template.

use std::sync::Arc;

use hyper::Response;
use serde_json::Value;

use super::fields::wrong;
use super::frames::Dialect;
use super::intake::intake;
use super::params::Params;
use super::run::{self, Plan, Prompt};
use crate::api::{Api, Call, Refusal};
use crate::error::{ApiError, Code};
use crate::http::Body;

/// Tokens when the client names no number, as the API's reference says.
const DEFAULT_MAX_TOKENS: u32 = 16;

/// Completes a prompt.
pub async fn answer(api: &Arc<Api>, call: Call) -> Result<Response<Body>, Refusal> {
    let (mut fields, model) = intake(api, call.request).await?;
    let prompt = prompt(fields.take("prompt"))?;
    let mut params = Params::read(&mut fields, &model, api.config.limits.max_choices)?;
    params.max_tokens.get_or_insert(DEFAULT_MAX_TOKENS);
    let plan = Plan { model, params, prompt, dialect: Dialect::Text };
    run::run(api, plan, &call.id, call.connection.token).await
}

/// A text, a list of token ids, or a list with one of either.
fn prompt(value: Option<Value>) -> Result<Prompt, ApiError> {
    let empty = || ApiError::new(Code::EmptyPrompt, "prompt is missing or empty").param("prompt");
    match value {
        None => Err(empty()),
        Some(Value::String(text)) if text.is_empty() => Err(empty()),
        Some(Value::String(text)) => Ok(Prompt::Text(text)),
        Some(Value::Array(items)) if items.is_empty() => Err(empty()),
        Some(Value::Array(items)) if items.iter().all(Value::is_u64) => {
            let ids = items
                .iter()
                .map(|v| v.as_u64().and_then(|n| u32::try_from(n).ok()))
                .collect::<Option<Vec<_>>>();
            let bad =
                || ApiError::new(Code::InvalidValue, "prompt has a token id over 32 bits").param("prompt");
            Ok(Prompt::Tokens(ids.ok_or_else(bad)?))
        }
        Some(Value::Array(mut items)) if items.len() == 1 => match items.remove(0) {
            one @ (Value::String(_) | Value::Array(_)) if !matches!(&one, Value::Array(a) if !a.iter().all(Value::is_u64)) => {
                prompt(Some(one))
            }
            other => Err(wrong("prompt", "a string or a list of token ids", &other)),
        },
        Some(Value::Array(items)) if items.iter().all(|v| v.is_string() || v.is_array()) => {
            let message = format!("prompt has {} prompts; this version takes one a request", items.len());
            Err(ApiError::new(Code::MultiPrompt, message).param("prompt"))
        }
        Some(other) => Err(wrong("prompt", "a string or a list of token ids", &other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_prompt_is_one_text_or_one_list_of_ids() {
        assert!(matches!(prompt(Some(json!("x"))), Ok(Prompt::Text(t)) if t == "x"));
        assert!(matches!(prompt(Some(json!(["x"]))), Ok(Prompt::Text(_))));
        assert!(matches!(prompt(Some(json!([1, 2]))), Ok(Prompt::Tokens(t)) if t == [1, 2]));
        assert!(matches!(prompt(Some(json!([[1, 2]]))), Ok(Prompt::Tokens(_))));
        let code = |v: Value| prompt(Some(v)).err().map(|e| e.code);
        assert_eq!(code(json!("")), Some(Code::EmptyPrompt));
        assert_eq!(code(json!([])), Some(Code::EmptyPrompt));
        assert_eq!(code(json!(["a", "b"])), Some(Code::MultiPrompt));
        assert_eq!(code(json!([[1], [2]])), Some(Code::MultiPrompt));
        assert_eq!(code(json!([["a"]])), Some(Code::InvalidValue));
        assert_eq!(code(json!([5_000_000_000_u64])), Some(Code::InvalidValue));
        assert_eq!(code(json!({})), Some(Code::InvalidValue));
    }
}
