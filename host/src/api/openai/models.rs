//! `GET /v1/models`.

use hyper::Response;
use serde_json::{Value, json};

use crate::api::Api;
use crate::http::{Body, respond};

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
                "capabilities": m.card.features,
            })
        })
        .collect();
    respond::json(200, &json!({"object": "list", "data": data}))
}
