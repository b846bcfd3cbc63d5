//! What a task plays: items of tokens, delays, errors and ends, parsed from JSON.
//!
//! Holds: a script is at most [`MAX_ITEMS`] long after its repeats are written out; token ids are the same in every run.
//! Knows nothing of tasks or time.

use std::sync::Arc;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::Error;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::code::Code;

/// Most items of a script; a typing error in a `repeat` must not eat the machine.
pub(crate) const MAX_ITEMS: usize = 1 << 20;
/// Ids of byte tokens are below; those of text tokens begin here.
pub(crate) const FIRST_ID: u32 = 256;
/// Ids of text tokens are this many.
pub(crate) const TEXT_IDS: u32 = 50_000;
/// Id of the one special token, the last of the vocabulary.
pub(crate) const SPECIAL: u32 = FIRST_ID + TEXT_IDS;

/// One token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// Its id.
    pub(crate) id: u32,
    /// Its bytes; `None` leaves them to the host.
    pub(crate) bytes: Option<Vec<u8>>,
}

impl Token {
    /// A token of these bytes, its id a stable hash of them (FNV-1a).
    pub(crate) fn of(bytes: impl Into<Vec<u8>>) -> Token {
        let bytes = bytes.into();
        let hash = bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
        let id = FIRST_ID + u32::try_from(hash % u64::from(TEXT_IDS)).unwrap_or(0);
        Token { id, bytes: Some(bytes) }
    }
}

/// How a generation ends of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum End {
    /// An end token came.
    Stop,
    /// The tokens are used up.
    Length,
    /// Somebody cancelled: a fault when nobody did.
    Cancelled,
}

/// One thing that a task does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// Tokens that come in one chunk.
    Tokens(Vec<Token>),
    /// Milliseconds before the next item.
    Delay(u64),
    /// The task fails.
    Error(Error),
    /// The task ends.
    Finish(End),
}

/// A parsed script; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Script(pub(crate) Arc<[Item]>);

impl Script {
    /// A script from its JSON text.
    pub(crate) fn parse(text: &str) -> Result<Script, String> {
        let value: Value = serde_json::from_str(text).map_err(|e| format!("script is not JSON: {e}"))?;
        Script::try_from(value)
    }

    /// Milliseconds of all delays, and the number of the other items.
    pub(crate) fn length(&self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(ms, n), item| match item {
            Item::Delay(d) => (ms.saturating_add(*d), n),
            _ => (ms, n + 1),
        })
    }
}

impl TryFrom<Value> for Script {
    type Error = String;

    fn try_from(value: Value) -> Result<Script, String> {
        let Value::Array(items) = value else {
            return Err(format!("script must be an array, got {value}"));
        };
        let mut out = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            parse_item(&format!("script[{i}]"), item, &mut out)?;
        }
        Ok(Script(out.into()))
    }
}

/// Appends what `value` says; `at` is its place, for the message.
fn parse_item(at: &str, value: &Value, out: &mut Vec<Item>) -> Result<(), String> {
    match value {
        Value::String(text) => out.push(Item::Tokens(vec![Token::of(text.as_bytes())])),
        Value::Array(parts) => {
            let mut tokens = Vec::with_capacity(parts.len());
            for (i, part) in parts.iter().enumerate() {
                let mut inner = Vec::new();
                parse_item(&format!("{at}[{i}]"), part, &mut inner)?;
                match inner.pop() {
                    Some(Item::Tokens(more)) if inner.is_empty() => tokens.extend(more),
                    _ => return Err(format!("{at}[{i}]: only text, hex and ids can share a chunk")),
                }
            }
            out.push(Item::Tokens(tokens));
        }
        Value::Object(object) => parse_object(at, object, out)?,
        other => return Err(format!("{at}: an item is a text, an array or an object, got {other}")),
    }
    if out.len() > MAX_ITEMS {
        return Err(format!("{at}: more than {MAX_ITEMS} items"));
    }
    Ok(())
}

fn parse_object(at: &str, object: &Map<String, Value>, out: &mut Vec<Item>) -> Result<(), String> {
    const KINDS: [(&str, &[&str]); 6] = [
        ("hex", &[]),
        ("ids", &["text"]),
        ("delay_ms", &[]),
        ("error", &["code", "details"]),
        ("finish", &[]),
        ("repeat", &["item"]),
    ];
    let found = KINDS.iter().find_map(|(kind, beside)| Some((*kind, *beside, object.get(*kind)?)));
    let Some((kind, beside, value)) = found else {
        return Err(format!("{at}: an object has one of hex, ids, delay_ms, error, finish, repeat"));
    };
    if let Some(other) = object.keys().find(|k| *k != kind && !beside.contains(&k.as_str())) {
        return Err(format!("{at}: {other} does not go with {kind}"));
    }
    let number = || value.as_u64().ok_or_else(|| format!("{at}.{kind}: a whole number, got {value}"));
    match kind {
        "hex" => {
            let bytes = value.as_str().and_then(unhex);
            let bytes = bytes.ok_or_else(|| format!("{at}.hex: pairs of hexadecimal digits, got {value}"))?;
            out.push(Item::Tokens(vec![Token::of(bytes)]));
        }
        "ids" => out.push(Item::Tokens(parse_ids(at, value, object.get("text"))?)),
        "delay_ms" => out.push(Item::Delay(number()?)),
        "error" => out.push(Item::Error(parse_error(at, value, object)?)),
        "finish" => {
            let end = End::deserialize(value).map_err(|e| format!("{at}.finish: {e}"))?;
            out.push(Item::Finish(end));
        }
        _ => {
            let times = number()?;
            let item = object.get("item").ok_or_else(|| format!("{at}: repeat needs an item"))?;
            let mut once = Vec::new();
            parse_item(&format!("{at}.item"), item, &mut once)?;
            let times = usize::try_from(times).unwrap_or(usize::MAX);
            if times.saturating_mul(once.len()) > MAX_ITEMS {
                return Err(format!("{at}.repeat: more than {MAX_ITEMS} items"));
            }
            for _ in 0..times {
                out.extend_from_slice(&once);
            }
        }
    }
    Ok(())
}

/// Tokens of these ids. A text comes with the first of them: the host cuts bytes, not tokens.
fn parse_ids(at: &str, ids: &Value, text: Option<&Value>) -> Result<Vec<Token>, String> {
    let ids = Vec::<u32>::deserialize(ids).map_err(|e| format!("{at}.ids: {e}"))?;
    if ids.is_empty() {
        return Err(format!("{at}.ids: at least one"));
    }
    let Some(text) = text else {
        return Ok(ids.into_iter().map(|id| Token { id, bytes: None }).collect());
    };
    let text = text.as_str().ok_or_else(|| format!("{at}.text: a text, got {text}"))?;
    let with = |(i, id)| Token { id, bytes: Some(if i == 0 { text.into() } else { Vec::new() }) };
    Ok(ids.into_iter().enumerate().map(with).collect())
}

fn parse_error(at: &str, message: &Value, object: &Map<String, Value>) -> Result<Error, String> {
    let message = message.as_str().ok_or_else(|| format!("{at}.error: a text, got {message}"))?;
    let code = match object.get("code") {
        Some(value) => Code::deserialize(value).map_err(|e| format!("{at}.code: {e}"))?.0,
        None => code::BACKEND,
    };
    let details = object.get("details").map_or_else(String::new, Value::to_string);
    Ok(Error { code, message: message.into(), details })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|d| d.len().is_multiple_of(2))?;
    digits.chunks_exact(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()).collect()
}

#[cfg(test)]
mod tests;
