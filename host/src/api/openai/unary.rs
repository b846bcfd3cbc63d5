//! A whole answer: the text is collected as it comes and becomes one object at the end.

use serde_json::{Value, json};

use super::frames::{Dialect, Labels, finish_reason, usage_object};
use crate::generate::{Consumer, End, Event, Usage};

/// Collects the text.
pub(super) struct Collect;

impl Consumer for Collect {
    fn write(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        if let Event::Text { text, .. } = event {
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// The answer's object.
pub(super) fn object(dialect: Dialect, labels: &Labels, text: &str, end: &End, usage: Usage) -> Value {
    let finish = finish_reason(end);
    let (object, choice) = match dialect {
        Dialect::Chat => (
            "chat.completion",
            json!({
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": null},
                "logprobs": null,
                "finish_reason": finish,
            }),
        ),
        Dialect::Text => {
            ("text_completion", json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish}))
        }
    };
    json!({
        "id": labels.id,
        "object": object,
        "created": labels.created,
        "model": labels.model,
        "system_fingerprint": labels.fingerprint,
        "choices": [choice],
        "usage": usage_object(usage),
    })
}
