//! A whole answer: the text of each choice is collected as it comes, and all become one object at the end.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::frames::{Choice, Dialect, Labels, finish_reason, usage_object};
use super::logprobs;
use crate::generate::{Consumer, End, Event, Outbox, Scored, Usage};

/// What is collected beside the text.
#[derive(Debug, Default)]
pub(super) struct Beside {
    scores: Vec<Scored>,
    /// Log-probabilities of the prompt.
    prompt: Vec<f32>,
}

/// Collects a choice.
pub(super) struct Collect(pub(super) Arc<Mutex<Beside>>);

impl Consumer for Collect {
    fn write(&mut self, event: Event<'_>, out: &mut Outbox) {
        match event {
            Event::Prompt(logprobs) => self.0.lock().prompt = logprobs.to_vec(),
            Event::Text { text, scores, .. } => {
                out.text(text.as_bytes());
                if !scores.is_empty() {
                    self.0.lock().scores.extend_from_slice(scores);
                }
            }
            Event::End { .. } => {}
        }
    }
}

/// A choice that has ended.
pub(super) struct Ended {
    pub(super) choice: Choice,
    pub(super) text: String,
    pub(super) beside: Arc<Mutex<Beside>>,
    pub(super) end: End,
    pub(super) usage: Usage,
}

/// The answer's object.
pub(super) fn object(dialect: Dialect, labels: &Labels, choices: &[Ended], choices_each: usize) -> Value {
    let usages: Vec<Usage> = choices.iter().map(|ended| ended.usage).collect();
    let object = match dialect {
        Dialect::Chat => "chat.completion",
        Dialect::Text => "text_completion",
    };
    json!({
        "id": labels.id,
        "object": object,
        "created": labels.created,
        "model": labels.model,
        "system_fingerprint": labels.fingerprint,
        "choices": choices.iter().map(|ended| choice(dialect, ended)).collect::<Vec<_>>(),
        "usage": usage_object(&usages, choices_each),
    })
}

fn choice(dialect: Dialect, ended: &Ended) -> Value {
    let Ended { choice: Choice { index, echo, logprobs }, text, beside, end, .. } = ended;
    let (finish, beside) = (finish_reason(end), beside.lock());
    match dialect {
        Dialect::Chat => json!({
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": null},
            "logprobs": logprobs.as_ref().map(|vocabulary| logprobs::chat(&beside.scores, vocabulary)),
            "finish_reason": finish,
        }),
        Dialect::Text => {
            let prompt = echo.as_ref().map(|echo| (&echo.tokens[..], &beside.prompt[..]));
            let told = logprobs
                .as_ref()
                .map(|vocabulary| logprobs::completion(prompt, &beside.scores, vocabulary, &mut 0));
            let text = echo.as_ref().map_or_else(|| text.clone(), |echo| format!("{}{text}", echo.text));
            json!({"index": index, "text": text, "logprobs": told, "finish_reason": finish})
        }
    }
}
