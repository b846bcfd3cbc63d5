//! `POST /tokenize` and `POST /detokenize`, with the field names of both servers that clients know them from.

use std::sync::Arc;

use hyper::Response;
use serde_json::{Value, json};

use super::encode::{self, Prompt};
use super::fields::wrong;
use super::intake::intake;
use super::messages;
use crate::api::{Api, Call, Refusal};
use crate::error::{ApiError, Code};
use crate::http::{Body, respond};
use crate::prompt::template::ChatOptions;

/// Token ids of a text, or of messages as the model's template renders them.
pub async fn tokenize(api: &Arc<Api>, call: Call) -> Result<Response<Body>, Refusal> {
    let (mut fields, model, held) = intake(api, call.request).await?;
    let text = match fields.string("prompt")? {
        Some(text) => Some(text),
        None => fields.string("content")?,
    };
    let special = match fields.take("add_special_tokens").or(fields.take("add_special")) {
        None => None,
        Some(Value::Bool(special)) => Some(special),
        Some(other) => return Err(wrong("add_special_tokens", "a boolean", &other).into()),
    };
    let with_texts = fields.boolean("return_token_strs")? | fields.boolean("with_pieces")?;
    let prompt = match (text, fields.take("messages")) {
        // Nothing is a text too, here.
        (Some(text), _) if text.is_empty() => None,
        (Some(text), _) if special == Some(false) => Some(Prompt::Fragment(text)),
        (Some(text), _) => Some(Prompt::Text(text)),
        (None, Some(list)) => {
            let mut options = ChatOptions::new(i64::try_from(crate::models::unix_now()).unwrap_or(0));
            options.max_bytes = usize::try_from(api.max_body()).unwrap_or(usize::MAX);
            Some(Prompt::Chat { messages: messages::read(Some(list))?, options })
        }
        (None, None) => {
            let message = "prompt is missing; content and messages will do too";
            return Err(ApiError::new(Code::InvalidValue, message).param("prompt").into());
        }
    };
    let tokens = match prompt {
        None => Vec::new(),
        Some(prompt) => encode::all(api, &model, vec![prompt], held).await?.pop().unwrap_or_default(),
    };
    let mut answer = json!({"tokens": tokens, "count": tokens.len(), "max_model_len": model.window()});
    if with_texts {
        let texts = tokens
            .iter()
            .map(|id| String::from_utf8_lossy(model.text.token_piece(*id).unwrap_or_default()).into_owned());
        answer["token_strs"] = texts.collect();
    }
    Ok(respond::json(200, &answer))
}

/// The text of token ids.
pub async fn detokenize(api: &Arc<Api>, call: Call) -> Result<Response<Body>, Refusal> {
    let (mut fields, model, _held) = intake(api, call.request).await?;
    let Some(Value::Array(items)) = fields.take("tokens") else {
        return Err(ApiError::new(Code::InvalidValue, "tokens is missing or no list").param("tokens").into());
    };
    let known = model.text.vocab_size();
    let mut ids = Vec::with_capacity(items.len());
    for item in &items {
        let id = item.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|id| (*id as usize) < known);
        ids.push(id.ok_or_else(|| wrong("tokens", &format!("a list of ids below {known}"), item))?);
    }
    let (mut detokenizer, mut bytes) = (model.detokenizer(false), Vec::new());
    for id in ids {
        detokenizer.push(id, &mut bytes);
    }
    detokenizer.finish(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    Ok(respond::json(200, &json!({"prompt": text, "content": text})))
}
