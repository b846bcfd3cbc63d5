//! Entries for fuzzing: what a client sends as a body, and what it gets as a stream.

use std::sync::Arc;

use serde_json::Value;

use super::completions;
use super::fields::Fields;
use super::frames::{Choice, Dialect, Echo, Frames, Labels, Last};
use super::messages;
use super::params::Params;
use crate::error::ApiError;
use crate::generate::{Consumer, End, Event, Outbox, Usage};
use crate::http::stream::Tail;
use crate::models::Offer;

/// Most choices of a request; what `limits.max_choices` is.
const CHOICES: usize = 128;

/// Reads a body as both endpoints do, for a model that can do all; its messages when it is a chat.
pub fn body(bytes: &[u8], offer: Offer<'_>) -> Option<Vec<Value>> {
    let read = |dialect: Dialect| -> Result<Option<Vec<Value>>, ApiError> {
        let mut fields = Fields::parse(bytes)?;
        fields.string("model")?;
        let (messages, prompts) = match dialect {
            Dialect::Chat => (Some(messages::read(fields.take("messages"))?), 1),
            Dialect::Text => (None, completions::prompts(fields.take("prompt"))?.len()),
        };
        let params = Params::read(&mut fields, offer, dialect, prompts, CHOICES)?;
        check(&params, prompts);
        fields.object("chat_template_kwargs")?;
        Ok(messages)
    };
    let [chat, text] = [Dialect::Chat, Dialect::Text].map(read);
    for error in [chat.as_ref().err(), text.as_ref().err()].into_iter().flatten() {
        assert!(!error.message.is_empty() && error.message.len() < 1000, "{error:?}");
    }
    chat.ok().flatten()
}

/// What is promised of parameters that were accepted.
fn check(params: &Params, prompts: usize) {
    assert!(params.choices >= 1 && params.choices * prompts <= CHOICES, "{params:?}");
    assert!(
        params.stops.len() <= 16 && params.stops.iter().all(|s| (1..=4096).contains(&s.len())),
        "{params:?}"
    );
    let s = &params.sampling;
    let all = [
        s.temperature,
        s.top_p,
        s.min_p,
        s.typical_p,
        s.repetition_penalty,
        s.frequency_penalty,
        s.presence_penalty,
    ];
    assert!(all.iter().all(|n| n.is_finite()), "{params:?}");
    assert!(params.logit_bias.iter().all(|b| b.bias.is_finite() && b.bias.abs() <= 100.0), "{params:?}");
}

/// The bytes of a stream of one choice with these texts that ends so.
pub fn frames(chat: bool, include_usage: bool, echo: Option<&str>, texts: &[String], end: &End) -> Vec<u8> {
    let dialect = if chat { Dialect::Chat } else { Dialect::Text };
    let labels = Labels {
        id: format!("{}1", dialect.prefix()),
        created: 7,
        // Hostile on purpose: a served name is whatever the operator says.
        model: "m\"\u{2}\n".to_owned(),
        fingerprint: "fp".to_owned(),
    };
    let echo = echo.map(|text| Echo { text: text.to_owned(), tokens: Vec::new() });
    let choice = Choice { index: 0, echo, logprobs: None };
    let labels = Arc::new(labels);
    let mut frames = Frames::new(dialect, &labels, include_usage, choice);
    let frame = frames.frame();
    let mut outbox = Outbox::new(&frame);
    for text in texts {
        frames.write(Event::Text { text, tokens: 1, scores: &[] }, &mut outbox);
    }
    let usage = Usage { prompt: 3, cached: None, completion: u32::try_from(texts.len()).unwrap_or(u32::MAX) };
    frames.write(Event::End { end, usage }, &mut outbox);
    let mut out = outbox.take(usize::MAX).open(&frame);
    Last { dialect, labels, include_usage, choices_each: 1 }.write(&[(end.clone(), usage)], &mut out);
    out
}
