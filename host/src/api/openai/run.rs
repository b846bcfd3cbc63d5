//! One generation from its prompt to its answer: prepare, admit, submit, and answer as a stream or as a whole.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use hyper::Response;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::frames::{self, Dialect, Frames, Labels};
use super::params::Params;
use super::unary::{self, Collect};
use crate::api::guard::{RequestId, random_hex};
use crate::api::{Api, Refusal};
use crate::error::{ApiError, Code};
use crate::generate::{Assembler, Consumer, End, Request};
use crate::http::stream::Stream;
use crate::http::{Body, respond};
use crate::lifecycle::Stage;
use crate::models::Model;
use crate::prompt::template::{ChatOptions, TemplateError};
use crate::sched::admit::Refused;
use crate::sched::flight::Mode;
use crate::sched::roster::Ticket;
use crate::sched::{Flight, Generation};

/// A head waits this long for the first token, so that an early failure can still be a real status.
const HEAD_WAITS: Duration = Duration::from_secs(1);
/// Largest collected answer.
const MAX_ANSWER: usize = 64 << 20;
/// Prompts up to this size are rendered and tokenized in place; longer ones leave the runtime's thread.
const INLINE_PROMPT: usize = 4 << 10;

/// Texts above this are measured against the window before they are tokenized.
const LONG_TEXT: usize = 64 << 10;

/// What to generate from.
#[derive(Debug)]
pub(super) enum Prompt {
    /// Messages, for the model's template.
    Chat {
        /// The messages.
        messages: Vec<Value>,
        /// How to render them.
        options: ChatOptions,
    },
    /// A text as it is.
    Text(String),
    /// Token ids as they are.
    Tokens(Vec<u32>),
}

/// A request that was read and checked.
pub(super) struct Plan {
    /// The model.
    pub(super) model: Arc<Model>,
    /// What is asked of it.
    pub(super) params: Params,
    /// What to generate from.
    pub(super) prompt: Prompt,
    /// How to write the answer.
    pub(super) dialect: Dialect,
}

/// Runs a plan. `connection` ends the client's connection.
pub(super) async fn run(
    api: &Arc<Api>,
    plan: Plan,
    id: &RequestId,
    connection: CancellationToken,
) -> Result<Response<Body>, Refusal> {
    if api.lifecycle.stage() == Stage::Draining {
        return Err(ApiError::new(Code::Draining, "the host is shutting down; try another").into());
    }
    let Plan { model, params, prompt, dialect } = plan;
    let continues = !matches!(prompt, Prompt::Chat { .. });
    let tokens = encode(api, &model, prompt).await?;
    let room = room(&model, tokens.len())?;
    let labels = Labels {
        id: format!("{}{}", dialect.prefix(), random_hex()),
        created: crate::models::unix_now(),
        model: model.name.clone(),
        fingerprint: model.fingerprint.clone(),
    };
    let mut stop_tokens = params.stop_tokens.clone();
    if !params.ignore_eos {
        stop_tokens.extend_from_slice(model.text.eos_ids());
    }
    let (mode, consumer): (_, Box<dyn Consumer>) = if params.stream {
        let limits = &api.config.limits;
        let (limit, patience) = (limits.stream_buffer_kb << 10, limits.slow_client_timeout.0);
        (
            Mode::Stream { limit, patience },
            Box::new(Frames::new(dialect, labels.clone(), params.include_usage)),
        )
    } else {
        (Mode::Collect { limit: MAX_ANSWER }, Box::new(Collect))
    };
    let prompt_tokens = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
    let assembler = Assembler::new(model.detokenizer(continues), params.stops.clone(), prompt_tokens);
    let flight = Arc::new(Flight::new(model.worker.task_id(), mode, assembler, consumer, connection));
    let request = Request {
        id: id.text.clone(),
        model: model.name.clone(),
        tokens,
        max_tokens: params.max_tokens.map_or(room, |n| n.min(room)),
        min_tokens: params.min_tokens,
        ignore_eos: params.ignore_eos,
        stop_tokens,
        stops: params.stops,
        sampling: params.sampling,
    };
    let tickets = tickets(api, id, &labels, &flight, &model)?;
    let generation = Generation::admit(Arc::clone(&flight), Arc::clone(&model.worker), id.text.clone());
    match admit(&model, &flight).await {
        Ok(Some(permit)) => model.worker.submit(Arc::clone(&flight), request, permit),
        // It was ended while it waited.
        Ok(None) => {}
        Err(error) => {
            flight.end(End::Rejected(error));
        }
    }
    if params.stream { stream(generation, tickets).await } else { whole(generation, dialect, &labels).await }
}

/// A slot; none when the generation was ended while it waited for one.
async fn admit(model: &Model, flight: &Flight) -> Result<Option<crate::sched::Permit>, ApiError> {
    let gate = model.worker.gate();
    let entered = tokio::select! {
        entered = gate.enter() => entered,
        () = poll_fn(|cx| flight.poll_end(cx)) => return Ok(None),
    };
    entered.map(Some).map_err(|refused| match refused {
        Refused::Full => {
            let message = format!(
                "{} runs {} generations and {} wait; try again, or raise --max-concurrent or --max-queued",
                model.name,
                gate.slots(),
                gate.places()
            );
            ApiError::new(Code::Capacity, message)
        }
        Refused::TooLong => ApiError::new(
            Code::Capacity,
            format!("no slot of {} came free within {:?}", model.name, gate.timeout()),
        ),
        Refused::Closed => ApiError::new(Code::EngineUnavailable, format!("{} is down", model.name)),
    })
}

/// Puts the request on the roster under its answer's id, and under its client's id where it chose one.
fn tickets(
    api: &Arc<Api>,
    id: &RequestId,
    labels: &Labels,
    flight: &Arc<Flight>,
    model: &Model,
) -> Result<Vec<Ticket>, ApiError> {
    let names = std::iter::once(&labels.id).chain(id.chosen.then_some(&id.text));
    names
        .map(|name| {
            api.roster.enter(name, flight, &model.worker).ok_or_else(|| {
                let message =
                    format!("a request with x-request-id {name:?} is running; choose another or wait");
                ApiError::new(Code::DuplicateRequest, message).param("x-request-id")
            })
        })
        .collect()
}

async fn stream(generation: Generation, tickets: Vec<Ticket>) -> Result<Response<Body>, Refusal> {
    let flight = Arc::clone(generation.flight());
    let first = tokio::time::timeout(HEAD_WAITS, poll_fn(|cx| flight.poll_first(cx))).await;
    let early = first.is_err();
    let outcome = flight.outcome();
    if let (false, false, Some(error)) =
        (early, flight.has_tokens(), outcome.end.as_ref().and_then(frames::failure))
    {
        // Dropping the generation books it.
        return Err(Refusal::Booked(error));
    }
    Ok(respond::stream(Stream::new(generation, tickets, early)))
}

async fn whole(
    mut generation: Generation,
    dialect: Dialect,
    labels: &Labels,
) -> Result<Response<Body>, Refusal> {
    let flight = Arc::clone(generation.flight());
    poll_fn(|cx| flight.poll_end(cx)).await;
    let outcome = flight.outcome();
    let Some(end) = outcome.end else {
        return Err(Refusal::Booked(ApiError::new(Code::Internal, "the generation ended without an end")));
    };
    if let Some(error) = frames::failure(&end) {
        return Err(Refusal::Booked(error));
    }
    let (bytes, stamps) = flight.take_collected();
    generation.hand_over_collected(&stamps, end.clone());
    let text = String::from_utf8_lossy(&bytes);
    Ok(respond::json(200, &unary::object(dialect, labels, &text, &end, outcome.usage)))
}

/// Tokens that may be generated, at least one.
fn room(model: &Model, prompt: usize) -> Result<u32, ApiError> {
    /// Without a known window an engine decides itself; this bounds what is asked of it.
    const UNKNOWN_WINDOW: u32 = 1 << 20;
    let window = model.window().unwrap_or(UNKNOWN_WINDOW);
    match u32::try_from(prompt).ok().and_then(|n| window.checked_sub(n)).filter(|n| *n > 0) {
        Some(room) => Ok(room),
        None => {
            let message = format!(
                "context of {} is {window} tokens, the prompt has {prompt} or more; shorten it, it needs room for an answer too",
                model.name
            );
            Err(ApiError::new(Code::ContextLengthExceeded, message))
        }
    }
}

/// Renders and tokenizes.
async fn encode(api: &Api, model: &Arc<Model>, prompt: Prompt) -> Result<Vec<u32>, ApiError> {
    let max_bytes = api.max_body();
    let size = match &prompt {
        Prompt::Chat { messages, .. } => {
            messages.iter().map(|m| m["content"].as_str().map_or(0, str::len)).sum()
        }
        Prompt::Text(text) => text.len(),
        Prompt::Tokens(_) => 0,
    };
    if size <= INLINE_PROMPT {
        return encode_now(model, prompt, max_bytes);
    }
    // A client that leaves while it waits for its turn costs nothing more; work that has begun keeps its turn to its end.
    let turn = Arc::clone(&api.preparing).acquire_owned().await;
    let model = Arc::clone(model);
    let prepare = move || {
        let tokens = encode_now(&model, prompt, max_bytes);
        drop(turn);
        tokens
    };
    let done = tokio::task::spawn_blocking(prepare).await;
    done.unwrap_or_else(|_| Err(ApiError::new(Code::Internal, "the prompt could not be prepared")))
}

fn encode_now(model: &Model, prompt: Prompt, max_bytes: u64) -> Result<Vec<u32>, ApiError> {
    let tokens = match prompt {
        Prompt::Tokens(tokens) => {
            let known = model.text.vocab_size();
            if let Some(id) = tokens.iter().find(|id| **id as usize >= known) {
                let message =
                    format!("prompt has token id {id}; the vocabulary of {} ends at {known}", model.name);
                return Err(ApiError::new(Code::InvalidValue, message).param("prompt"));
            }
            tokens
        }
        Prompt::Text(text) => tokenize(model, &text, true)?,
        Prompt::Chat { messages, options } => {
            let text =
                model.text.render_chat(&messages, &options).map_err(|e| template_error(&e, max_bytes))?;
            tokenize(model, &text, false)?
        }
    };
    if tokens.is_empty() {
        return Err(ApiError::new(Code::EmptyPrompt, "the prompt has no tokens"));
    }
    Ok(tokens)
}

fn tokenize(model: &Model, text: &str, raw: bool) -> Result<Vec<u32>, ApiError> {
    // What cannot fit is refused before the work of finding out how little it fits.
    if text.len() > LONG_TEXT {
        room(model, model.text.fewest_tokens(text.len()))?;
    }
    model.text.encode(text, raw).map_err(|e| ApiError::new(Code::Internal, e.to_string()))
}

fn template_error(error: &TemplateError, max_bytes: u64) -> ApiError {
    match error {
        TemplateError::TooLong { .. } => {
            let message =
                format!("the rendered prompt is over {} MiB; raise --api-max-body-mb", max_bytes >> 20);
            ApiError::new(Code::PromptTooLarge, message)
        }
        other => ApiError::new(Code::TemplateError, other.to_string()).param("messages"),
    }
}
