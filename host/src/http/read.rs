//! Reads a request's body: bounded, with a deadline, refused by its stated length before a byte is read.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};

use super::gzip;
use crate::error::{ApiError, Code};

/// Packed bodies above this are inflated off the runtime's thread.
const INLINE: usize = 16 << 10;

/// The whole body as it was before it was packed, at most `limit` bytes, within `timeout`.
pub async fn body(
    headers: &HeaderMap,
    body: Incoming,
    limit: u64,
    timeout: Duration,
) -> Result<Bytes, ApiError> {
    let bytes = plain(body, limit, timeout).await?;
    match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        Some(b"gzip" | b"x-gzip") => {
            let inflated = if bytes.len() <= INLINE {
                gzip::inflate(&bytes, limit)
            } else {
                let unpack = move || gzip::inflate(&bytes, limit);
                tokio::task::spawn_blocking(unpack).await.unwrap_or_else(|e| Err(std::io::Error::other(e)))
            };
            let fault = |e| format!("the body is not gzip as its header says: {e}");
            let inflated = inflated.map_err(|e| ApiError::new(Code::InvalidJson, fault(e)))?;
            inflated.ok_or_else(|| too_large(limit))
        }
        _ => Ok(bytes),
    }
}

/// What is told about a body over the limit.
fn too_large(limit: u64) -> ApiError {
    let mib = limit >> 20;
    ApiError::new(
        Code::BodyTooLarge,
        format!("the body is over {mib} MiB; raise --api-max-body-mb or send less"),
    )
}

async fn plain(body: Incoming, limit: u64, timeout: Duration) -> Result<Bytes, ApiError> {
    use hyper::body::Body;
    let too_large = || too_large(limit);
    if body.size_hint().lower() > limit {
        return Err(too_large());
    }
    let limited = Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX));
    match tokio::time::timeout(timeout, limited.collect()).await {
        Err(_) => {
            Err(ApiError::new(Code::RequestTimeout, format!("the body did not come within {timeout:?}")))
        }
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(e)) if e.downcast_ref::<LengthLimitError>().is_some() => Err(too_large()),
        Ok(Err(e)) => Err(ApiError::new(Code::InvalidJson, format!("the body could not be read: {e}"))),
    }
}

/// Refuses a body that says it is something else than plain JSON.
pub fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let unsupported = |what: &str, value: &str| {
        let value: String = value.chars().take(100).collect();
        Err(ApiError::new(
            Code::UnsupportedMediaType,
            format!("{what} is {value:?}; send application/json, plain or with gzip"),
        ))
    };
    if let Some(value) = headers.get(CONTENT_TYPE) {
        let text = value.to_str().unwrap_or_default();
        let media = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if media != "application/json" && !media.ends_with("+json") {
            return unsupported("content-type", text);
        }
    }
    match headers.get(CONTENT_ENCODING).map(|v| v.to_str().unwrap_or_default()) {
        None | Some("identity" | "" | "gzip" | "x-gzip") => Ok(()),
        Some(other) => unsupported("content-encoding", other),
    }
}
