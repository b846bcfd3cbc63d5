//! Writes the choices of an answer as server-sent events. Everything but the text is made once per choice.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::logprobs;
use crate::error::{ApiError, Code};
use crate::generate::outbox::LONG;
use crate::generate::{Consumer, End, Event, Framing, Kind, Outbox, Scored, Usage};
use crate::http::respond::error_body;
use crate::http::stream::Tail;
use crate::prompt::Text;

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

/// What the consumers of one choice need to know of it.
#[derive(Clone)]
pub(super) struct Choice {
    /// Its place in the answer.
    pub(super) index: usize,
    /// The prompt, where the answer begins with it.
    pub(super) echo: Option<Echo>,
    /// The vocabulary, where log-probabilities are told.
    pub(super) logprobs: Option<Arc<Text>>,
}

/// A prompt that is part of the answer.
#[derive(Clone)]
pub(super) struct Echo {
    /// Its text.
    pub(super) text: String,
    /// Its tokens.
    pub(super) tokens: Vec<u32>,
}

/// Writes the events of one choice.
pub(super) struct Frames {
    dialect: Dialect,
    /// What all its events have in common, before its choice and behind it.
    envelope: (Vec<u8>, Vec<u8>),
    choice: Choice,
    greeted: bool,
    /// Log-probabilities of the prompt, until they are told.
    prompt: Vec<f32>,
    /// Characters told so far, where log-probabilities are.
    offset: usize,
}

impl Frames {
    /// A choice in that dialect.
    pub(super) fn new(dialect: Dialect, labels: &Labels, include_usage: bool, choice: Choice) -> Frames {
        let mut whole = Vec::with_capacity(FRAME);
        event(&mut whole, &object(dialect, labels, include_usage, [MARK]));
        let mut envelope = cut(whole);
        // The mark is a text here, in quotes.
        envelope.0.pop();
        envelope.1.drain(..envelope.1.len().min(1));
        Frames { dialect, envelope, choice, greeted: false, prompt: Vec::new(), offset: 0 }
    }

    /// What its texts look like.
    pub(super) fn frame(&self) -> Frame {
        let mut whole = Vec::with_capacity(FRAME);
        self.chunk(Some(MARK), None, None, &mut whole);
        let (before, mut between) = cut(whole);
        let after = between.len();
        between.extend_from_slice(&before);
        Frame { between, after }
    }

    /// Appends an event with that text; without one, of a choice at its end.
    fn chunk(&self, text: Option<&str>, logprobs: Option<&Value>, finish: Option<&str>, out: &mut Vec<u8>) {
        let (delta, text) = match self.dialect {
            Dialect::Chat => (Some(Delta { role: None, content: text }), None),
            Dialect::Text => (None, Some(text.unwrap_or_default())),
        };
        self.part(&Part { index: self.choice.index, delta, text, logprobs, finish_reason: finish }, out);
    }

    /// Appends an event with that choice.
    fn part(&self, part: &Part<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.envelope.0);
        serde_json::to_writer(&mut *out, part).unwrap_or_default();
        out.extend_from_slice(&self.envelope.1);
    }

    /// Chats begin with the role, echoes with the prompt.
    fn greet_once(&mut self, out: &mut Outbox) {
        if !std::mem::replace(&mut self.greeted, true) {
            out.finished(|out| self.greet(out));
        }
    }

    fn greet(&mut self, out: &mut Vec<u8>) {
        if self.dialect == Dialect::Chat {
            let delta = Some(Delta { role: Some("assistant"), content: Some("") });
            let index = self.choice.index;
            self.part(&Part { index, delta, text: None, logprobs: None, finish_reason: None }, out);
        }
        if let Some(Echo { text, tokens }) = self.choice.echo.take() {
            let prompt = std::mem::take(&mut self.prompt);
            let told = |vocabulary: &Arc<Text>| {
                logprobs::completion(Some((&tokens, &prompt)), &[], vocabulary, &mut self.offset)
            };
            let logprobs = self.choice.logprobs.as_ref().map(told);
            self.chunk(Some(&text), logprobs.as_ref(), None, out);
        }
    }

    fn text(&mut self, text: &str, scores: &[Scored], out: &mut Outbox) {
        match &self.choice.logprobs {
            None if text.is_empty() => {}
            None if text.len() > LONG => out.finished(|out| self.chunk(Some(text), None, None, out)),
            None => out.text(text.as_bytes()),
            Some(vocabulary) => {
                let logprobs = match self.dialect {
                    Dialect::Chat => logprobs::chat(scores, vocabulary),
                    Dialect::Text => logprobs::completion(None, scores, vocabulary, &mut self.offset),
                };
                out.finished(|out| self.chunk(Some(text), Some(&logprobs), None, out));
            }
        }
    }
}

impl Consumer for Frames {
    fn write(&mut self, event_: Event<'_>, out: &mut Outbox) {
        match event_ {
            Event::Prompt(logprobs) => self.prompt = logprobs.to_vec(),
            Event::Text { text, scores, .. } => {
                self.greet_once(out);
                self.text(text, scores, out);
            }
            // No finish chunk after a failure: a client must not take it for a whole answer.
            Event::End { end, .. } if failure(end).is_some() => {}
            Event::End { end, .. } => {
                self.greet_once(out);
                out.finished(|out| self.chunk(None, None, Some(finish_reason(end)), out));
            }
        }
    }

    fn passes(&self) -> bool {
        self.greeted && self.choice.logprobs.is_none()
    }
}

/// What an event looks like around its text.
pub(super) struct Frame {
    /// What stands behind the text of one and before that of the next.
    between: Vec<u8>,
    /// So many bytes of it are behind.
    after: usize,
}

/// Stands for what is to come. No name has it: a control character is escaped.
const MARK: &str = "\u{2}";

/// What stands in an event before the mark and behind it, so that one place knows what an event is.
fn cut(mut whole: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    const ESCAPED: &[u8] = b"\\u0002";
    let at = whole.windows(ESCAPED.len()).rposition(|part| part == ESCAPED).unwrap_or(whole.len());
    let after = whole.get(at + ESCAPED.len()..).unwrap_or_default().to_vec();
    whole.truncate(at);
    (whole, after)
}

impl Framing for Frame {
    fn around(&self) -> (&[u8], &[u8]) {
        let (after, before) = self.between.split_at(self.after);
        (before, after)
    }

    fn between(&self) -> &[u8] {
        &self.between
    }

    fn within<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        if is_plain(text) {
            return Cow::Borrowed(text);
        }
        let mut quoted = Vec::with_capacity(2 * text.len() + 2);
        // Writing to a vector cannot fail, and a text is always JSON.
        serde_json::to_writer(&mut quoted, &String::from_utf8_lossy(text)).unwrap_or_default();
        quoted.pop();
        quoted.drain(..quoted.len().min(1));
        Cow::Owned(quoted)
    }
}

/// What follows when all choices of a stream have ended.
pub(super) struct Last {
    pub(super) dialect: Dialect,
    pub(super) labels: Arc<Labels>,
    pub(super) include_usage: bool,
    /// Choices that each prompt has: its tokens count once.
    pub(super) choices_each: usize,
}

impl Tail for Last {
    fn write(&self, ends: &[(End, Usage)], out: &mut Vec<u8>) {
        let failed = ends.iter().find_map(|(end, _)| failure(end));
        match failed {
            Some(error) => event(out, &error_body(&error)),
            None if self.include_usage => {
                let mut object = object(self.dialect, &self.labels, true, [(); 0]);
                let usages: Vec<Usage> = ends.iter().map(|(_, usage)| *usage).collect();
                object.usage = Some(usage_object(&usages, self.choices_each));
                event(out, &object);
            }
            None => {}
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}

/// Bytes that JSON writes in another way.
static ESCAPED: [bool; 256] = {
    let mut escaped = [false; 256];
    let mut control = 0;
    while control < b' ' as usize {
        escaped[control] = true;
        control += 1;
    }
    escaped[b'"' as usize] = true;
    escaped[b'\\' as usize] = true;
    escaped
};

/// Whether a text is written in JSON as it is, as most are. By a table: texts are short, and vectors are not worth their setting up.
fn is_plain(text: &[u8]) -> bool {
    !text.iter().fold(false, |any, byte| any | ESCAPED[usize::from(*byte)])
}

/// Somewhat longer than a frame is.
const FRAME: usize = 320;

/// The object of an event. Its fields are in the order of the API's own.
#[derive(Serialize)]
struct Object<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: C,
    /// Null until the last, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
}

/// A choice in an event.
#[derive(Serialize)]
struct Part<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Delta<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    logprobs: Option<&'a Value>,
    finish_reason: Option<&'a str>,
}

#[derive(Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

fn object<C>(dialect: Dialect, labels: &Labels, include_usage: bool, choices: C) -> Object<'_, C> {
    Object {
        id: &labels.id,
        object: dialect.chunk_object(),
        created: labels.created,
        model: &labels.model,
        system_fingerprint: &labels.fingerprint,
        choices,
        usage: include_usage.then_some(Value::Null),
    }
}

fn event(out: &mut Vec<u8>, object: &impl Serialize) {
    out.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut *out, object).unwrap_or_default();
    out.extend_from_slice(b"\n\n");
}

/// The error that a client is told, when the answer is none.
pub(super) fn failure(end: &End) -> Option<ApiError> {
    match end {
        End::Rejected(error) => Some(error.clone()),
        End::Error(failure) => Some(ApiError::new(code(failure.kind), failure.message.clone())),
        End::Teardown => Some(ApiError::new(Code::Draining, "the host is shutting down; try again")),
        End::Stop | End::Length | End::Cancelled(_) => None,
    }
}

/// A request that an engine took and then finds that it cannot do is no fault of the engine: clients try those again.
fn code(kind: Kind) -> Code {
    match kind {
        Kind::Refused => Code::EngineRefused,
        Kind::PromptTooLong => Code::ContextLengthExceeded,
        Kind::QueueFull | Kind::NotFound | Kind::Unavailable | Kind::Fault => Code::EngineError,
    }
}

/// The API's word for the end of an answer.
pub(super) fn finish_reason(end: &End) -> &'static str {
    if matches!(end, End::Length) { "length" } else { "stop" }
}

/// The counts, as the API has them: each prompt once, every choice.
pub(super) fn usage_object(usages: &[Usage], choices_each: usize) -> Value {
    let prompts = usages.iter().step_by(choices_each.max(1));
    let prompt: u64 = prompts.clone().map(|usage| u64::from(usage.prompt)).sum();
    let completion: u64 = usages.iter().map(|usage| u64::from(usage.completion)).sum();
    let cached: Option<u64> = prompts.filter_map(|usage| usage.cached).map(u64::from).reduce(|a, b| a + b);
    let mut object = json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    });
    if let Some(cached) = cached {
        object["prompt_tokens_details"] = json!({"cached_tokens": cached});
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Arc<Labels> {
        Arc::new(Labels { id: "x-1".into(), created: 7, model: "m\"1".into(), fingerprint: "fp".into() })
    }

    fn choice() -> Choice {
        Choice { index: 0, echo: None, logprobs: None }
    }

    /// The events of a choice that says `text` and ends so, and what follows.
    fn events(dialect: Dialect, text: &str, end: &End, usage: Usage) -> Vec<String> {
        let mut frames = Frames::new(dialect, &labels(), true, choice());
        let frame = frames.frame();
        let mut outbox = Outbox::new(&frame);
        if !text.is_empty() {
            frames.write(Event::Text { text, tokens: 2, scores: &[] }, &mut outbox);
        }
        frames.write(Event::End { end, usage }, &mut outbox);
        let mut out = outbox.take(usize::MAX).open(&frame);
        let last = Last { dialect, labels: labels(), include_usage: true, choices_each: 1 };
        last.write(&[(end.clone(), usage)], &mut out);
        let text = String::from_utf8(out).expect("text");
        assert!(text.ends_with("\n\n"));
        text.trim_end().split("\n\n").map(|e| e.strip_prefix("data: ").expect("data").to_owned()).collect()
    }

    #[test]
    fn a_chat_is_role_text_finish_usage_done() {
        let usage = Usage { prompt: 3, cached: Some(1), completion: 2 };
        let hard = "a\"b\\c\n\u{1F600}\u{1}";
        let events = events(Dialect::Chat, hard, &End::Length, usage);
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
        let events = events(Dialect::Text, "", &End::Teardown, Usage::default());
        let error: Value = serde_json::from_str(&events[0]).expect("JSON");
        assert_eq!(error["error"]["code"], "draining");
        assert_eq!(events[1..], ["[DONE]".to_owned()]);
    }

    #[test]
    fn a_prompt_counts_once_however_many_choices_it_has() {
        let usage = |prompt, completion| Usage { prompt, cached: None, completion };
        let all = [usage(3, 1), usage(3, 2), usage(5, 1), usage(5, 1)];
        assert_eq!(
            usage_object(&all, 2),
            json!({"prompt_tokens": 8, "completion_tokens": 5, "total_tokens": 13})
        );
    }
}
