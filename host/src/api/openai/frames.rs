//! Writes a generation as server-sent events. Everything but the text is made once per stream.

use serde_json::{Value, json};

use crate::error::{ApiError, Code};
use crate::generate::{Consumer, End, Event, Usage};
use crate::http::respond::error_body;

/// Which endpoint's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Chat completions.
    Chat,
    /// Text completions.
    Text,
}

/// What all objects of one answer have in common.
#[derive(Debug, Clone)]
pub(super) struct Labels {
    /// The answer's id.
    pub(super) id: String,
    /// Seconds since 1970; the same in every object.
    pub(super) created: u64,
    /// The served name.
    pub(super) model: String,
    /// What made the answer.
    pub(super) fingerprint: String,
}

impl Dialect {
    /// Beginning of an answer's id.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Dialect::Chat => "chatcmpl-",
            Dialect::Text => "cmpl-",
        }
    }

    fn chunk_object(self) -> &'static str {
        match self {
            Dialect::Chat => "chat.completion.chunk",
            Dialect::Text => "text_completion",
        }
    }
}

/// Writes the events of one stream.
pub(super) struct Frames {
    dialect: Dialect,
    labels: Labels,
    include_usage: bool,
    /// A text event up to its JSON string.
    before: Vec<u8>,
    /// And behind it.
    after: Vec<u8>,
    greeted: bool,
}

impl Frames {
    /// A stream of that dialect.
    pub(super) fn new(dialect: Dialect, labels: Labels, include_usage: bool) -> Frames {
        let mut frames =
            Frames { dialect, labels, include_usage, before: Vec::new(), after: Vec::new(), greeted: false };
        // The template is a frame with a mark for its text, cut at the mark: one place knows what a frame looks like.
        const MARK: &str = "\"\u{1}\"";
        let whole = frames.chunk(json!("\u{2}"), Value::Null).to_string().replace("\"\\u0002\"", MARK);
        if let Some((before, after)) = whole.split_once(MARK) {
            frames.before = format!("data: {before}").into_bytes();
            frames.after = format!("{after}\n\n").into_bytes();
        }
        frames
    }

    fn object(&self, choices: Value) -> Value {
        let l = &self.labels;
        let mut object = json!({
            "id": l.id,
            "object": self.dialect.chunk_object(),
            "created": l.created,
            "model": l.model,
            "system_fingerprint": l.fingerprint,
            "choices": choices,
        });
        if self.include_usage {
            object["usage"] = Value::Null;
        }
        object
    }

    fn chunk(&self, text: Value, finish: Value) -> Value {
        self.object(match self.dialect {
            Dialect::Chat => {
                let delta = if text.is_null() { json!({}) } else { json!({"content": text}) };
                json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}])
            }
            Dialect::Text => {
                let text = if text.is_null() { json!("") } else { text };
                json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": finish}])
            }
        })
    }

    /// Chats begin with the role, once.
    fn greet(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.greeted, true) && self.dialect == Dialect::Chat {
            let delta = json!({"role": "assistant", "content": ""});
            let choice = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]);
            event(out, &self.object(choice));
        }
    }

    fn end(&mut self, end: &End, usage: Usage, out: &mut Vec<u8>) {
        match failure(end) {
            // No finish chunk: a client must not take it for a whole answer.
            Some(error) => event(out, &error_body(&error)),
            None => {
                self.greet(out);
                event(out, &self.chunk(Value::Null, json!(finish_reason(end))));
                if self.include_usage {
                    let mut object = self.object(json!([]));
                    object["usage"] = usage_object(usage);
                    event(out, &object);
                }
            }
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}

impl Consumer for Frames {
    fn write(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Text { text, .. } => {
                self.greet(out);
                out.extend_from_slice(&self.before);
                // Writing to a vector cannot fail.
                serde_json::to_writer(&mut *out, text).unwrap_or_default();
                out.extend_from_slice(&self.after);
            }
            Event::End { end, usage } => self.end(end, usage, out),
        }
    }
}

fn event(out: &mut Vec<u8>, object: &Value) {
    out.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut *out, object).unwrap_or_default();
    out.extend_from_slice(b"\n\n");
}

/// The error that a client is told, when the answer is none.
pub(super) fn failure(end: &End) -> Option<ApiError> {
    match end {
        End::Rejected(error) => Some(error.clone()),
        End::Error(failure) => Some(ApiError::new(Code::EngineError, failure.message.clone())),
        End::Teardown => Some(ApiError::new(Code::Draining, "the host is shutting down; try again")),
        End::Stop | End::Length | End::Cancelled(_) => None,
    }
}

/// The API's word for the end of an answer.
pub(super) fn finish_reason(end: &End) -> &'static str {
    if matches!(end, End::Length) { "length" } else { "stop" }
}

/// The counts, as the API has them.
pub(super) fn usage_object(usage: Usage) -> Value {
    let mut object = json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": u64::from(usage.prompt) + u64::from(usage.completion),
    });
    if let Some(cached) = usage.cached {
        object["prompt_tokens_details"] = json!({"cached_tokens": cached});
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Labels {
        Labels { id: "x-1".into(), created: 7, model: "m\"1".into(), fingerprint: "fp".into() }
    }

    fn events(frames: &mut Frames, list: &[Event<'_>]) -> Vec<String> {
        let mut out = Vec::new();
        for event in list {
            match event {
                Event::Text { text, tokens } => frames.write(Event::Text { text, tokens: *tokens }, &mut out),
                Event::End { end, usage } => frames.write(Event::End { end, usage: *usage }, &mut out),
            }
        }
        let text = String::from_utf8(out).expect("text");
        assert!(text.ends_with("\n\n"));
        text.trim_end().split("\n\n").map(|e| e.strip_prefix("data: ").expect("data").to_owned()).collect()
    }

    #[test]
    fn a_chat_is_role_text_finish_usage_done() {
        let mut frames = Frames::new(Dialect::Chat, labels(), true);
        let usage = Usage { prompt: 3, cached: Some(1), completion: 2 };
        let hard = "a\"b\\c\n\u{1F600}\u{1}";
        let list = [Event::Text { text: hard, tokens: 2 }, Event::End { end: &End::Length, usage }];
        let events = events(&mut frames, &list);
        let parsed: Vec<Value> = events[..4].iter().map(|e| serde_json::from_str(e).expect("JSON")).collect();
        assert_eq!(parsed[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
        assert_eq!(parsed[1]["choices"][0]["delta"], json!({"content": hard}));
        assert_eq!(
            parsed[2]["choices"][0],
            json!({"index": 0, "delta": {}, "logprobs": null, "finish_reason": "length"})
        );
        assert_eq!(parsed[3]["choices"], json!([]));
        assert_eq!(parsed[3]["usage"]["total_tokens"], 5);
        assert_eq!(events[4], "[DONE]");
        for object in &parsed {
            assert_eq!(
                (&object["id"], &object["created"], &object["model"]),
                (&json!("x-1"), &json!(7), &json!("m\"1"))
            );
        }
        assert_eq!(parsed[1]["usage"], Value::Null);
    }

    #[test]
    fn a_failure_is_an_error_then_done_without_finish() {
        let mut frames = Frames::new(Dialect::Text, labels(), true);
        let events = events(&mut frames, &[Event::End { end: &End::Teardown, usage: Usage::default() }]);
        let error: Value = serde_json::from_str(&events[0]).expect("JSON");
        assert_eq!(error["error"]["code"], "draining");
        assert_eq!(events[1..], ["[DONE]".to_owned()]);
    }
}
