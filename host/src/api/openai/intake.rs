//! The beginning of every generation request: its body, its fields, its model.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Request;

use super::fields::{Fields, wrong};
use crate::api::guard::{BODY_ID, RequestId};
use crate::api::{Api, Refusal};
use crate::error::{ApiError, Code};
use crate::http::room::Held;
use crate::http::{Upload, read};
use crate::models::Model;

/// Bodies up to this size are read in place; longer ones leave the runtime's thread, or every stream would wait for them.
const INLINE_BODY: usize = 64 << 10;

/// Reads the body within its bounds; answers its fields, without the model's name, the model, and the room that the body
/// takes: it is given back when what the body says was made into tokens.
pub(super) async fn intake(
    api: &Api,
    request: Request<Upload>,
) -> Result<(Fields, Arc<Model>, Held), Refusal> {
    let (parts, body) = request.into_parts();
    read::require_json(&parts.headers)?;
    let (body, held) =
        read::body(&parts.headers, body, api.max_body(), api.body_timeout(), api.place()).await?;
    let (mut fields, held) = parse(api, body, held).await?;
    let model = api.models.resolve(fields.string("model")?.as_deref())?;
    Ok((fields, model, held))
}

/// Takes the id that the body names for the request.
pub(super) fn name(id: &RequestId, fields: &mut Fields) -> Result<(), ApiError> {
    match fields.string(BODY_ID)? {
        Some(text) if !id.name(&text) => {
            Err(wrong(BODY_ID, "1 to 128 visible ASCII characters", &text.into()))
        }
        _ => Ok(()),
    }
}

async fn parse(api: &Api, body: Bytes, held: Held) -> Result<(Fields, Held), ApiError> {
    if body.len() <= INLINE_BODY {
        return Ok((Fields::parse(&body)?, held));
    }
    // Few at a time, as with prompts: they take memory too.
    let turn = Arc::clone(&api.preparing).acquire_owned().await;
    let read = tokio::task::spawn_blocking(move || {
        let fields = Fields::parse(&body);
        drop(turn);
        // The room goes with the work: a client that leaves does not end it.
        fields.map(|fields| (fields, held))
    });
    read.await.unwrap_or_else(|_| Err(ApiError::new(Code::Internal, "the body could not be read")))
}
