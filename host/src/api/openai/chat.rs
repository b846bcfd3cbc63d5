//! `POST /v1/chat/completions`.

use std::sync::Arc;

use hyper::Response;

use super::fields::Fields;
use super::frames::Dialect;
use super::messages;
use super::params::Params;
use super::run::{self, Plan, Prompt};
use crate::api::{Api, Call, Refusal};
use crate::http::{Body, read};
use crate::prompt::template::ChatOptions;

/// Answers a chat.
pub async fn answer(api: &Arc<Api>, call: Call) -> Result<Response<Body>, Refusal> {
    let (parts, body) = call.request.into_parts();
    read::require_json(&parts.headers)?;
    let body = read::body(body, api.max_body(), api.body_timeout()).await?;
    let mut fields = Fields::parse(&body)?;
    let model = api.models.resolve(fields.string("model")?.as_deref())?;
    let messages = messages::read(fields.take("messages"))?;
    let params = Params::read(&mut fields, &model, api.config.limits.max_choices)?;
    let mut options = ChatOptions::new(i64::try_from(crate::models::unix_now()).unwrap_or(0));
    options.max_bytes = usize::try_from(api.max_body()).unwrap_or(usize::MAX);
    if let Some(extra) = fields.object("chat_template_kwargs")? {
        options.extra = extra.into_map();
    }
    let plan = Plan { model, params, prompt: Prompt::Chat { messages, options }, dialect: Dialect::Chat };
    run::run(api, plan, &call.id, call.connection.token).await
}
