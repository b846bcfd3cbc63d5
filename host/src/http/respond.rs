//! Answers on the wire: JSON, and the one error body for plain answers and for streams.

use bytes::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::Body;
use super::stream::Stream;
use crate::error::{ApiError, Kind};

/// Carries the request's id in both directions.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Tells a client how long a whole answer took, in milliseconds.
pub const PROCESSING: HeaderName = HeaderName::from_static("openai-processing-ms");
const ACCEL: HeaderName = HeaderName::from_static("x-accel-buffering");

/// An answer with that status and JSON body.
pub fn json(status: u16, value: &Value) -> Response<Body> {
    full(status, "application/json", value.to_string())
}

/// An answer with that status, type and body.
pub fn full(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::Full(body.into()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// An answer without a body.
pub fn empty(status: u16) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// An event stream.
pub fn stream(stream: Stream) -> Response<Body> {
    let mut response = Response::new(Body::from(stream));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Tells nginx and its kin not to collect the stream.
    headers.insert(ACCEL, HeaderValue::from_static("no"));
    response
}

/// The error as an answer.
pub fn error(error: &ApiError) -> Response<Body> {
    let mut response = json(error.code.status(), &error_body(error));
    if error.code.kind() == Kind::Unavailable {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(error.after.unwrap_or(1)));
    }
    if error.code.status() == 401 {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// The error of a method that the path does not have.
pub fn method_not_allowed(allowed: &str, problem: &ApiError) -> Response<Body> {
    let mut response = error(problem);
    if let Ok(value) = HeaderValue::from_str(allowed) {
        response.headers_mut().insert(ALLOW, value);
    }
    response
}

/// The error as the body of an answer or of an event: all four keys, always.
pub fn error_body(error: &ApiError) -> Value {
    json!({"error": {
        "message": error.message,
        "type": error.code.kind().name(),
        "param": error.param,
        "code": error.code.name(),
    }})
}
