//! `POST /v1/chat/completions`.

use std::sync::Arc;

use hyper::Response;

use super::encode::Prompt;
use super::frames::Dialect;
use super::intake::{intake, name};
use super::messages;
use super::params::Params;
use super::refused;
use super::run::{self, Plan, Who};
use crate::api::{Api, Call, Refusal};
use crate::http::Body;
use crate::prompt::template::ChatOptions;

/// Answers a chat.
pub async fn answer(api: &Arc<Api>, call: Call) -> Result<Response<Body>, Refusal> {
    let (mut fields, model, held) = intake(api, call.request).await?;
    name(&call.id, &mut fields)?;
    let who = Who { id: call.id, caller: call.caller, connection: call.connection.token };
    let messages = messages::read(fields.take("messages"))?;
    let params = Params::read(&mut fields, model.offer(), Dialect::Chat, 1, api.config().limits.max_choices)?;
    let mut options = ChatOptions::new(i64::try_from(crate::models::unix_now()).unwrap_or(0));
    options.max_bytes = usize::try_from(api.max_body()).unwrap_or(usize::MAX);
    if let Some(extra) = fields.object("chat_template_kwargs")? {
        options.extra = extra;
    }
    refused::rest(api, fields)?;
    let plan =
        Plan { model, params, prompts: vec![Prompt::Chat { messages, options }], dialect: Dialect::Chat };
    run::run(api, plan, held, &who).await
}
