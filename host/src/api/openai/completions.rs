//! `POST /v1/completions`: the prompt as it is, without a template.

use std::sync::Arc;

use hyper::Response;
use serde_json::Value;

use super::encode::Prompt;
use super::fields::wrong;
use super::frames::Dialect;
use super::intake::{intake, name};
use super::params::Params;
use super::refused;
use super::run::{self, Plan, Who};
use crate::api::{Api, Call, Refusal};
use crate::error::{ApiError, Code};
use crate::http::Body;

/// Tokens when the client names no number, as the API's reference says.
const DEFAULT_MAX_TOKENS: u32 = 16;

/// Completes prompts.
pub async fn answer(api: &Arc<Api>, call: Call) -> Result<Response<Body>, Refusal> {
    let (mut fields, model, held) = intake(api, call.request).await?;
    name(&call.id, &mut fields)?;
    let who = Who { id: call.id, caller: call.caller, connection: call.connection.token };
    let prompts = prompts(fields.take("prompt"))?;
    let most = api.config().limits.max_choices;
    let mut params = Params::read(&mut fields, model.offer(), Dialect::Text, prompts.len(), most)?;
    refused::rest(api, fields)?;
    params.max_tokens.get_or_insert(DEFAULT_MAX_TOKENS);
    let plan = Plan { model, params, prompts, dialect: Dialect::Text };
    run::run(api, plan, held, &who).await
}

/// A text, a list of token ids, or a list of either.
pub(super) fn prompts(value: Option<Value>) -> Result<Vec<Prompt>, ApiError> {
    match value {
        None => Err(empty()),
        Some(Value::Array(items)) if items.is_empty() => Err(empty()),
        Some(Value::Array(items)) if items.iter().all(|v| v.is_string() || v.is_array()) => {
            let place = |at, error: ApiError| match error.code {
                Code::EmptyPrompt => {
                    ApiError::new(error.code, format!("prompt[{at}] is empty")).param("prompt")
                }
                _ => error,
            };
            let prompts = items.into_iter().enumerate();
            prompts.map(|(at, item)| one(item).map_err(|error| place(at, error))).collect()
        }
        Some(single) => one(single).map(|prompt| vec![prompt]),
    }
}

fn one(value: Value) -> Result<Prompt, ApiError> {
    match value {
        Value::String(text) if text.is_empty() => Err(empty()),
        Value::String(text) => Ok(Prompt::Text(text)),
        Value::Array(items) if items.is_empty() => Err(empty()),
        Value::Array(items) if items.iter().all(Value::is_u64) => {
            let ids = items
                .iter()
                .map(|v| v.as_u64().and_then(|n| u32::try_from(n).ok()))
                .collect::<Option<Vec<_>>>();
            let bad =
                || ApiError::new(Code::InvalidValue, "prompt has a token id over 32 bits").param("prompt");
            Ok(Prompt::Tokens(ids.ok_or_else(bad)?))
        }
        other => Err(wrong("prompt", "a string, a list of token ids, or a list of these", &other)),
    }
}

fn empty() -> ApiError {
    ApiError::new(Code::EmptyPrompt, "prompt is missing or empty").param("prompt")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_prompt_is_a_text_a_list_of_ids_or_several_of_these() {
        let shape = |v: Value| {
            let prompts = prompts(Some(v)).expect("valid");
            prompts
                .iter()
                .map(|p| match p {
                    Prompt::Text(text) => text.clone(),
                    Prompt::Tokens(ids) => format!("{ids:?}"),
                    other => format!("{other:?}"),
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(shape(json!("x")), ["x"]);
        assert_eq!(shape(json!(["x"])), ["x"]);
        assert_eq!(shape(json!([1, 2])), ["[1, 2]"]);
        assert_eq!(shape(json!([[1, 2], "y", [3]])), ["[1, 2]", "y", "[3]"]);
        let code = |v: Value| prompts(Some(v)).err().map(|e| e.code);
        assert_eq!(code(json!("")), Some(Code::EmptyPrompt));
        assert_eq!(code(json!([])), Some(Code::EmptyPrompt));
        assert_eq!(code(json!(["a", ""])), Some(Code::EmptyPrompt));
        assert_eq!(code(json!([["a"]])), Some(Code::InvalidValue));
        assert_eq!(code(json!([1, "a"])), Some(Code::InvalidValue));
        assert_eq!(code(json!([5_000_000_000_u64])), Some(Code::InvalidValue));
        assert_eq!(code(json!({})), Some(Code::InvalidValue));
    }
}
