//! `POST /v1/cancel/:task_id`: by the id of the answer, or by the client's own `x-request-id`.

use hyper::Response;
use serde_json::json;

use crate::api::{Api, Call};
use crate::http::{Body, respond};

/// Cancels; an id that is not running is answered the same way.
pub fn cancel(api: &Api, call: &Call) -> Response<Body> {
    // The answer's own id cannot be guessed; one that a client chose is its own.
    api.roster.cancel(&call.tail);
    api.roster.cancel(&call.caller.scoped(&call.tail));
    respond::json(200, &json!({"cancelled": call.tail}))
}
