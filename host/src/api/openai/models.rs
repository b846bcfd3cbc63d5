//! `GET /v1/models`.

use cascadia_plugin_api::ext::features;
use hyper::Response;
use serde_json::{Value, json};

use crate::api::Api;
use crate::http::{Body, respond};

/// What this API passes on. An engine may be able to do more.
const HONOURED: &[&str] = &[
    features::SAMPLING,
    features::MIN_P,
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
    let data: Vec<Value> = api
        .models
        .serving()
        .iter()
        .map(|m| {
            json!({
                "id": m.name,
                "object": "model",
                "created": m.created,
                "owned_by": "cascadia-host",
                "max_model_len": m.window(),
                "capabilities": m.card.features.iter().filter(|f| HONOURED.contains(&f.as_str())).collect::<Vec<_>>(),
            })
        })
        .collect();
    respond::json(200, &json!({"object": "list", "data": data}))
}
