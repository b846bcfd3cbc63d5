//! `/admin/v1/models`: what the fleet has, loading a model, letting one go. For the operator, not for clients.
//!
//! An admin call is no generation: none books a rejection.

use std::time::Duration;

use hyper::Response;
use hyper::header::{HeaderName, ORIGIN};
use serde_json::{Value, json};

use super::keys::Caller;
use super::routes::Handler;
use super::{Api, Call, Refusal, guard};
use crate::config::schema::Model;
use crate::config::units::Span;
use crate::error::{ApiError, Code};
use crate::fleet::wish::{Listed, Refused};
use crate::http::{Body, read, respond};
use crate::lifecycle::Stage;

/// Most bytes of a wish.
const MAX_BODY: u64 = 1 << 20;
/// How long `?wait=true` waits when it does not say.
const WAIT: Duration = Duration::from_secs(300);
/// How long it may wait at most.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Answers an admin route.
pub async fn answer(api: &Api, handler: Handler, call: Call) -> Result<Response<Body>, Refusal> {
    let answered = match admin_allowed(api, &call) {
        Err(error) => Err(error),
        Ok(()) => match handler {
            Handler::AdminLoad => load(api, call).await,
            Handler::AdminUnload => unload(api, &call).await,
            _ => list(api).await,
        },
    };
    answered.map_err(Refusal::Booked)
}

/// Whether the caller may use the admin routes, besides what its key says: one that shows none must be on this machine,
/// and neither a web page nor behind a proxy, since those lend a loopback address to anybody. A page whose name was bound
/// to this machine shows it in its Host header.
pub fn admin_allowed(api: &Api, call: &Call) -> Result<(), ApiError> {
    const FORWARDED: [HeaderName; 2] =
        [HeaderName::from_static("x-forwarded-for"), HeaderName::from_static("forwarded")];
    if call.caller != Caller::default() {
        return Ok(());
    }
    let headers = call.request.headers();
    guard::host_known(api, call.request.uri(), headers)?;
    let whom = if headers.contains_key(ORIGIN) {
        "programs, not web pages"
    } else if FORWARDED.iter().any(|name| headers.contains_key(name)) {
        "callers on this machine, not what comes through a proxy"
    } else {
        return Ok(());
    };
    let message = format!("without a key admin routes answer {whom}; give the host --admin-keys");
    Err(ApiError::new(Code::AdminOnly, message))
}

async fn list(api: &Api) -> Result<Response<Body>, ApiError> {
    let models = api.fleet.list().await.map_err(refused)?;
    Ok(respond::json(200, &json!({"models": models})))
}

async fn load(api: &Api, call: Call) -> Result<Response<Body>, ApiError> {
    if api.lifecycle.stage() == Stage::Draining {
        return Err(stopping());
    }
    let wait = Wait::of(call.request.uri().query())?;
    let (parts, body) = call.request.into_parts();
    read::require_json(&parts.headers)?;
    let (body, held) = read::body(&parts.headers, body, MAX_BODY, api.body_timeout(), api.place()).await?;
    let wish = wish(&body)?;
    drop((body, held));
    let loading = api.fleet.load(wish).await.map_err(refused)?;
    tracing::info!(model = loading.listed.name, request = call.id.text(), "load was asked for");
    let Some(patience) = wait.0 else { return Ok(respond::json(202, &json!(loading.listed))) };
    let name = &loading.listed.name;
    match tokio::time::timeout(patience, loading.up).await {
        Ok(Ok(Ok(()))) => {
            let now = find(api, name).await?.unwrap_or(Value::Null);
            Ok(respond::json(200, &now))
        }
        Ok(Ok(Err(reason))) => {
            let message = format!("{name} did not come up and is tried again until it is unloaded: {reason}");
            Err(ApiError::new(Code::LoadFailed, message))
        }
        Ok(Err(_)) if api.lifecycle.stage() == Stage::Draining => Err(stopping()),
        Ok(Err(_)) => Err(ApiError::new(Code::LoadFailed, format!("{name} was unloaded before it was up"))),
        // It goes on loading.
        Err(_) => Ok(respond::json(202, &json!(loading.listed))),
    }
}

/// The body of a load: the keys of a model in the configuration, and no others.
fn wish(body: &[u8]) -> Result<Model, ApiError> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|e| ApiError::new(Code::InvalidJson, format!("the body is not JSON: {e}")))?;
    if !value.is_object() {
        return Err(ApiError::new(Code::InvalidJson, "the body is not a JSON object"));
    }
    let odd = value["options"]
        .as_object()
        .into_iter()
        .flatten()
        .find(|(_, v)| !(v.is_string() || v.is_number() || v.is_boolean()));
    if let Some((name, _)) = odd {
        let message = format!("option {name} is neither text nor a number nor a boolean");
        return Err(ApiError::new(Code::InvalidValue, message).param("options"));
    }
    let model: Model =
        serde_json::from_value(value).map_err(|e| ApiError::new(Code::InvalidValue, e.to_string()))?;
    match model.name.as_deref().and_then(crate::config::schema::bad_name) {
        Some(problem) => Err(ApiError::new(Code::InvalidValue, problem).param("name")),
        None => Ok(model),
    }
}

async fn unload(api: &Api, call: &Call) -> Result<Response<Body>, ApiError> {
    let wait = Wait::of(call.request.uri().query())?;
    let name = decode(&call.tail).ok_or_else(|| {
        ApiError::new(Code::InvalidValue, "the name is not percent-encoded UTF-8").param("name")
    })?;
    let unloading = api.fleet.unload(name.clone()).await.map_err(refused)?;
    tracing::info!(model = name, request = call.id.text(), "unload was asked for");
    let answer = |status, state| Ok(respond::json(status, &json!({"name": name, "state": state})));
    match (wait.0, unloading.closed) {
        (_, None) => answer(200, "unloaded"),
        (None, Some(_)) => answer(202, "draining"),
        (Some(patience), Some(closed)) => match tokio::time::timeout(patience, closed).await {
            Ok(Ok(())) => answer(200, "unloaded"),
            Ok(Err(_)) => Err(stopping()),
            Err(_) => answer(202, "draining"),
        },
    }
}

async fn find(api: &Api, name: &str) -> Result<Option<Value>, ApiError> {
    let models = api.fleet.list().await.map_err(refused)?;
    let is = |m: &&Listed| m.name == name && m.state != "draining";
    Ok(models.iter().find(is).map(|m| json!(m)))
}

fn stopping() -> ApiError {
    ApiError::new(Code::Draining, "the host is stopping")
}

fn refused(refused: Refused) -> ApiError {
    match refused {
        Refused::Unavailable(why) => ApiError::new(Code::EngineUnavailable, why),
        Refused::NoModel(message) => ApiError::new(Code::ModelNotFound, message).param("name"),
        Refused::Taken(message) => ApiError::new(Code::ModelExists, message).param("name"),
        Refused::Engine(message) => ApiError::new(Code::InvalidValue, message).param("engine"),
        Refused::Wrong(message) => ApiError::new(Code::InvalidValue, message),
    }
}

/// How long to wait for the end: `?wait=true&timeout=60s`.
#[derive(Debug, PartialEq)]
struct Wait(Option<Duration>);

impl Wait {
    fn of(query: Option<&str>) -> Result<Wait, ApiError> {
        let bad = |message: String, param: &str| Err(ApiError::new(Code::InvalidValue, message).param(param));
        let (mut wait, mut patience) = (false, WAIT);
        for (name, value) in query.unwrap_or_default().split('&').filter(|p| !p.is_empty()).map(pair) {
            match (name, value) {
                ("wait", "" | "true" | "1") => wait = true,
                ("wait", "false" | "0") => wait = false,
                ("wait", other) => return bad(format!("wait is {other:?}, not true or false"), "wait"),
                ("timeout", text) => match text.parse::<Span>() {
                    Ok(span) if span.0 <= LONGEST_WAIT => patience = span.0,
                    Ok(span) => return bad(format!("timeout {span} is over {LONGEST_WAIT:?}"), "timeout"),
                    Err(problem) => return bad(problem, "timeout"),
                },
                (other, _) => {
                    return bad(format!("there is no parameter {other:?}; there are wait, timeout"), other);
                }
            }
        }
        Ok(Wait(wait.then_some(patience)))
    }
}

fn pair(text: &str) -> (&str, &str) {
    text.split_once('=').unwrap_or((text, ""))
}

/// Undoes percent-encoding: names of models may have slashes.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let decoded = match byte {
            b'%' => {
                let hex = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&hex).ok().filter(|h| !h.starts_with('+'))?, 16)
                    .ok()?
            }
            plain => plain,
        };
        bytes.push(decoded);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_decoded() {
        assert_eq!(decode("org%2Fmodel-7b").as_deref(), Some("org/model-7b"));
        assert_eq!(decode("caf%C3%A9").as_deref(), Some("café"));
        for bad in ["%", "%2", "%zz", "%+1", "%ff"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn waits_are_bounded_and_other_parameters_refused() {
        let of = |query| Wait::of(Some(query)).map_err(|e| e.param.unwrap_or_default());
        assert_eq!(of(""), Ok(Wait(None)));
        assert_eq!(of("wait=true"), Ok(Wait(Some(WAIT))));
        assert_eq!(of("timeout=5s&wait"), Ok(Wait(Some(Duration::from_secs(5)))));
        assert_eq!(of("wait=soon"), Err("wait".to_owned()));
        assert_eq!(of("timeout=2h&wait=true"), Err("timeout".to_owned()));
        assert_eq!(of("force=true"), Err("force".to_owned()));
    }

    #[test]
    fn a_wish_has_the_keys_of_a_model_and_no_others() {
        let model = wish(br#"{"name":"a","path":"/m","options":{"slots":2,"cb":true}}"#).expect("valid");
        assert_eq!(model.options["slots"].as_integer(), Some(2));
        for (body, code) in [
            (&b"["[..], Code::InvalidJson),
            (b"[]", Code::InvalidJson),
            (br#"{"nmae":"a"}"#, Code::InvalidValue),
            (br#"{"name":"a b"}"#, Code::InvalidValue),
            (br#"{"name":7}"#, Code::InvalidValue),
            (br#"{"options":{"a":[1]}}"#, Code::InvalidValue),
        ] {
            assert_eq!(wish(body).expect_err("refused").code, code, "{}", String::from_utf8_lossy(body));
        }
    }
}
