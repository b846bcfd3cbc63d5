//! From a prompt as the client sent it to token ids: template, tokenizer, and the bounds of both.

use std::sync::Arc;

use serde_json::Value;

use crate::api::Api;
use crate::error::{ApiError, Code};
use crate::http::room::Held;
use crate::models::Model;
use crate::prompt::template::{ChatOptions, TemplateError};

/// Prompts up to this size are rendered and tokenized in place; longer ones leave the runtime's thread.
const INLINE_PROMPT: usize = 4 << 10;
/// Texts above this are measured against the window before they are tokenized.
const LONG_TEXT: usize = 64 << 10;

/// What to generate from.
#[derive(Debug)]
pub(super) enum Prompt {
    /// Messages, for the model's template.
    Chat {
        /// The messages.
        messages: Vec<Value>,
        /// How to render them.
        options: ChatOptions,
    },
    /// A text as it is.
    Text(String),
    /// A part of a text: no token of its own goes in front.
    Fragment(String),
    /// Token ids as they are.
    Tokens(Vec<u32>),
}

impl Prompt {
    fn size(&self) -> usize {
        match self {
            Prompt::Chat { messages, .. } => {
                messages.iter().map(|m| m["content"].as_str().map_or(0, str::len)).sum()
            }
            Prompt::Text(text) | Prompt::Fragment(text) => text.len(),
            Prompt::Tokens(ids) => ids.len(),
        }
    }
}

/// Renders and tokenizes prompts, and gives the room of their request back.
pub(super) async fn all(
    api: &Api,
    model: &Arc<Model>,
    prompts: Vec<Prompt>,
    held: Held,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let max_bytes = api.max_body();
    if prompts.iter().map(Prompt::size).sum::<usize>() <= INLINE_PROMPT {
        return prompts.into_iter().map(|prompt| now(model, prompt, max_bytes)).collect();
    }
    // A client that leaves while it waits for its turn costs nothing more; work that has begun keeps its turn to its end.
    let turn = Arc::clone(&api.preparing).acquire_owned().await;
    let model = Arc::clone(model);
    let prepare = move || {
        let tokens = prompts.into_iter().map(|prompt| now(&model, prompt, max_bytes)).collect();
        drop((turn, held));
        tokens
    };
    let done = tokio::task::spawn_blocking(prepare).await;
    done.unwrap_or_else(|_| Err(ApiError::new(Code::Internal, "the prompt could not be prepared")))
}

fn now(model: &Model, prompt: Prompt, max_bytes: u64) -> Result<Vec<u32>, ApiError> {
    let tokens = match prompt {
        Prompt::Tokens(tokens) => {
            let known = model.text.vocab_size();
            if let Some(id) = tokens.iter().find(|id| **id as usize >= known) {
                let message = format!("prompt has token id {id}; those of {} are below {known}", model.name);
                return Err(ApiError::new(Code::InvalidValue, message).param("prompt"));
            }
            tokens
        }
        Prompt::Text(text) => tokenize(model, &text, true)?,
        Prompt::Fragment(text) => tokenize(model, &text, false)?,
        Prompt::Chat { messages, options } => {
            let text =
                model.text.render_chat(&messages, &options).map_err(|e| template_error(&e, max_bytes))?;
            tokenize(model, &text, false)?
        }
    };
    if tokens.is_empty() {
        return Err(ApiError::new(Code::EmptyPrompt, "the prompt has no tokens"));
    }
    Ok(tokens)
}

/// Tokens of a text; `raw` as for [`crate::prompt::Text::encode`].
pub(super) fn tokenize(model: &Model, text: &str, raw: bool) -> Result<Vec<u32>, ApiError> {
    // What cannot fit is refused before the work of finding out how little it fits.
    if text.len() > LONG_TEXT {
        room(model, model.text.fewest_tokens(text.len()))?;
    }
    model.text.encode(text, raw).map_err(|e| ApiError::new(Code::Internal, e.to_string()))
}

/// Tokens that may be generated after a prompt of so many, at least one.
pub(super) fn room(model: &Model, prompt: usize) -> Result<u32, ApiError> {
    /// Without a known window an engine decides itself; this bounds what is asked of it.
    const UNKNOWN_WINDOW: u32 = 1 << 20;
    let window = model.window().unwrap_or(UNKNOWN_WINDOW);
    match u32::try_from(prompt).ok().and_then(|n| window.checked_sub(n)).filter(|n| *n > 0) {
        Some(room) => Ok(room),
        None => {
            let message = format!(
                "context of {} is {window} tokens, the prompt has {prompt} or more; shorten it, it needs room for an answer too",
                model.name
            );
            Err(ApiError::new(Code::ContextLengthExceeded, message))
        }
    }
}

/// What a client is told whose messages the template does not take.
pub(super) fn template_error(error: &TemplateError, max_bytes: u64) -> ApiError {
    match error {
        TemplateError::TooLong { .. } => {
            let message =
                format!("the rendered prompt is over {} MiB; raise --api-max-body-mb", max_bytes >> 20);
            ApiError::new(Code::PromptTooLarge, message)
        }
        other => ApiError::new(Code::TemplateError, other.to_string()).param("messages"),
    }
}
