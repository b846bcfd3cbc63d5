//! Log-probabilities as the API has them, in both dialects.

use serde_json::{Value, json};

use crate::generate::Scored;
use crate::prompt::Text;

/// What stands for a log-probability that is no number, or none that JSON can hold.
const NONE: f32 = -9999.0;

fn number(logprob: f32) -> Value {
    json!(if logprob.is_finite() { logprob } else { NONE })
}

fn bytes_of(text: &Text, token: u32) -> &[u8] {
    text.token_piece(token).unwrap_or_default()
}

/// The bytes of an alternative. An engine that makes its text itself has said those of the token that it chose.
fn alternative<'a>(scored: &'a Scored, text: &'a Text, token: u32) -> &'a [u8] {
    if token == scored.token { &scored.bytes } else { bytes_of(text, token) }
}

fn word(text: &Text, token: u32) -> String {
    String::from_utf8_lossy(bytes_of(text, token)).into_owned()
}

/// The `logprobs` of a chat's choice.
pub(super) fn chat(scores: &[Scored], text: &Text) -> Value {
    let entry = |bytes: &[u8], logprob: f32| json!({"token": String::from_utf8_lossy(bytes), "logprob": number(logprob), "bytes": bytes});
    let content: Vec<Value> = scores
        .iter()
        .map(|scored| {
            let mut object = entry(&scored.bytes, scored.logprob);
            let alternatives = scored.top.iter();
            let top: Vec<Value> =
                alternatives.map(|(token, p)| entry(alternative(scored, text, *token), *p)).collect();
            object["top_logprobs"] = Value::Array(top);
            object
        })
        .collect();
    json!({"content": content, "refusal": null})
}

/// The `logprobs` of a completion's choice: of prompt tokens first, where they are echoed, then of generated ones.
/// `offset` is where the text begins, in characters of the whole answer, and moves on.
pub(super) fn completion(
    prompt: Option<(&[u32], &[f32])>,
    scores: &[Scored],
    text: &Text,
    offset: &mut usize,
) -> Value {
    let (mut tokens, mut values, mut tops, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut add = |word: String, value: Value, top: Value| {
        offsets.push(json!(*offset));
        *offset += word.chars().count();
        tokens.push(word);
        values.push(value);
        tops.push(top);
    };
    if let Some((ids, logprobs)) = prompt {
        for (at, id) in ids.iter().enumerate() {
            // The first has nothing before it that could make it likely.
            let logprob = logprobs.get(at).copied().filter(|p| at > 0 && !p.is_nan());
            let top = logprob.map_or(Value::Null, |p| json!({word(text, *id): number(p)}));
            add(word(text, *id), logprob.map_or(Value::Null, number), top);
        }
    }
    for scored in scores {
        let mut top = serde_json::Map::new();
        for (token, logprob) in &scored.top {
            let word = String::from_utf8_lossy(alternative(scored, text, *token)).into_owned();
            top.entry(word).or_insert_with(|| number(*logprob));
        }
        // The chosen one is told among the alternatives, also where it is none of the most likely.
        let own = String::from_utf8_lossy(&scored.bytes).into_owned();
        top.entry(own.clone()).or_insert_with(|| number(scored.logprob));
        add(own, number(scored.logprob), Value::Object(top));
    }
    json!({"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets})
}
