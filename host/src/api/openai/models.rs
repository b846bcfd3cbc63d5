//! `GET /v1/models` and `GET /v1/models/:model`.

use cascadia_plugin_api::ext::features;
use hyper::Response;
use serde_json::{Value, json};

use crate::api::{Api, Refusal};
use crate::http::{Body, respond};
use crate::models::Model;

/// What this API passes on. An engine may be able to do more.
const HONOURED: &[&str] = &[
    features::SAMPLING,
    features::MIN_P,
    features::TYPICAL_P,
    features::PENALTIES,
    features::REPETITION_PENALTY,
    features::SEED,
    features::MIN_TOKENS,
    features::IGNORE_EOS,
    features::LOGPROBS,
    features::TOP_LOGPROBS,
    features::PROMPT_LOGPROBS,
    features::LOGIT_BIAS,
    features::TOKEN_LISTS,
];

/// The models that are up.
pub fn list(api: &Api) -> Response<Body> {
    let data: Vec<Value> = api.models.serving().iter().map(|model| object(model)).collect();
    respond::json(200, &json!({"object": "list", "data": data}))
}

/// One model; its name may have slashes, written as they are or escaped.
pub fn one(api: &Api, name: &str) -> Result<Response<Body>, Refusal> {
    let name = unescape(name);
    api.models
        .resolve(Some(&name))
        .map(|model| respond::json(200, &object(&model)))
        // Looking for a model is not asking it.
        .map_err(Refusal::Booked)
}

fn object(model: &Model) -> Value {
    let features: Vec<_> = model.card.features.iter().filter(|f| HONOURED.contains(&f.as_str())).collect();
    json!({
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "cascadia-host",
        "max_model_len": model.window(),
        "capabilities": features,
    })
}

/// `%2F` and its like; what is no escape stays.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let hex = more.get(..2).and_then(|h| std::str::from_utf8(h).ok());
        let byte = hex.filter(|_| *first == b'%').and_then(|h| u8::from_str_radix(h, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &more[2..] } else { more };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn escapes_are_read_and_what_is_none_stays() {
        for (text, expected) in
            [("a%2Fb", "a/b"), ("a/b", "a/b"), ("100%", "100%"), ("%zz%41", "%zzA"), ("%", "%")]
        {
            assert_eq!(super::unescape(text), expected);
        }
    }
}
