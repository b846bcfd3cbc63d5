//! Reads a request's body: bounded, with a deadline, refused by its stated length before a byte is read. What it takes is
//! counted in the room that all bodies share.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};

use super::room::Held;
use super::{Upload, gzip};
use crate::error::{ApiError, Code};

/// Packed bodies above this are inflated off the runtime's thread.
const INLINE: usize = 16 << 10;

/// The whole body as it was before it was packed, at most `limit` bytes, within `timeout`. Its bytes are taken from the
/// shared room and belong to what is answered.
///
/// # Errors
/// Too large, too late, not readable, or no room for it now.
pub async fn body(
    headers: &HeaderMap,
    body: Upload,
    limit: u64,
    timeout: Duration,
    mut held: Held,
) -> Result<(Bytes, Held), ApiError> {
    let bytes = plain(body, limit, timeout, &mut held).await?;
    match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        Some(b"gzip" | b"x-gzip") if bytes.len() <= INLINE => inflated(&bytes, limit, held),
        Some(b"gzip" | b"x-gzip") => {
            let unpack = move || inflated(&bytes, limit, held);
            let done = tokio::task::spawn_blocking(unpack).await;
            done.unwrap_or_else(|_| Err(ApiError::new(Code::Internal, "the body could not be unpacked")))
        }
        _ => Ok((bytes, held)),
    }
}

/// What a packed body becomes, in its place.
fn inflated(packed: &[u8], limit: u64, mut held: Held) -> Result<(Bytes, Held), ApiError> {
    let (mut out, mut full) = (Vec::new(), None);
    let fits = gzip::inflate(packed, limit, &mut out, |more| match held.grow(more) {
        Ok(()) => true,
        Err(error) => {
            full = Some(error);
            false
        }
    });
    if let Some(error) = full {
        return Err(error);
    }
    let fault = |e| format!("the body is not gzip as its header says: {e}");
    if !fits.map_err(|e| ApiError::new(Code::InvalidJson, fault(e)))? {
        return Err(too_large(limit));
    }
    held.shrink(packed.len() as u64);
    Ok((Bytes::from(out), held))
}

/// What is told about a body over the limit.
fn too_large(limit: u64) -> ApiError {
    let mib = limit >> 20;
    ApiError::new(
        Code::BodyTooLarge,
        format!("the body is over {mib} MiB; raise --api-max-body-mb or send less"),
    )
}

async fn plain(body: Upload, limit: u64, timeout: Duration, held: &mut Held) -> Result<Bytes, ApiError> {
    use hyper::body::Body;
    let stated = body.size_hint().lower();
    if stated > limit {
        return Err(too_large(limit));
    }
    held.fits(stated)?;
    let late = || ApiError::new(Code::RequestTimeout, format!("the body did not come within {timeout:?}"));
    tokio::time::timeout(timeout, collect(body, limit, held)).await.map_err(|_| late())?
}

/// Most bodies come in one piece, and that is not copied.
async fn collect(mut body: Upload, limit: u64, held: &mut Held) -> Result<Bytes, ApiError> {
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let fault = |e| ApiError::new(Code::InvalidJson, format!("the body could not be read: {e}"));
        // Trailers say nothing that we ask for.
        let Ok(data) = frame.map_err(fault)?.into_data() else { continue };
        let total = first.len() + all.len() + data.len();
        if total as u64 > limit {
            return Err(too_large(limit));
        }
        held.grow(data.len() as u64)?;
        if total == data.len() {
            first = data;
            continue;
        }
        if all.is_empty() {
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { first } else { Bytes::from(all) })
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
