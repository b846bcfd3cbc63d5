//! `POST /v1/cancel/:task_id`: by the id of the answer, or by the client's own `x-request-id`.

use hyper::Response;
use serde_json::json;

use crate::api::{Api, Call};
use crate::http::{Body, respond};

/// Cancels; an id that is not running is answered the same way.
pub fn cancel(api: &Api, call: &Call) -> Response<Body> {
    api.roster.cancel(&call.tail);
    respond::json(200, &json!({"cancelled": call.tail}))
}
