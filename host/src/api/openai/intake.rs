//! The beginning of every generation request: its body, its fields, its model.

use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;

use super::fields::Fields;
use crate::api::{Api, Refusal};
use crate::http::read;
use crate::models::Model;

/// Reads the body within its bounds; answers its fields, without the model's name, and the model.
pub(super) async fn intake(api: &Api, request: Request<Incoming>) -> Result<(Fields, Arc<Model>), Refusal> {
    let (parts, body) = request.into_parts();
    read::require_json(&parts.headers)?;
    let body = read::body(&parts.headers, body, api.max_body(), api.body_timeout()).await?;
    let mut fields = Fields::parse(&body)?;
    let model = api.models.resolve(fields.string("model")?.as_deref())?;
    Ok((fields, model))
}
