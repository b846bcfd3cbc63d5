//! An answer from its prompts to its last byte: prepare, admit a generation per choice, and answer as a stream or as a
//! whole. A choice never crosses the boundary: the engine sees generations of one group.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::Response;
use tokio_util::sync::CancellationToken;

use super::encode::{self, Prompt, room};
use super::frames::{self, Choice, Dialect, Echo, Frames, Labels, Last};
use super::params::Params;
use super::unary::{self, Beside, Collect, Ended};
use crate::api::guard::{RequestId, random_hex};
use crate::api::keys::Caller;
use crate::api::{Api, Refusal};
use crate::error::{ApiError, Code};
use crate::generate::{Assembler, Consumer, End, Request};
use crate::http::room::Held;
use crate::http::stream::Stream;
use crate::http::{Body, respond};
use crate::lifecycle::Stage;
use crate::models::Model;
use crate::sched::admit::Refused;
use crate::sched::flight::Mode;
use crate::sched::flood::GATHER;
use crate::sched::roster::Ticket;
use crate::sched::{Flight, Generation};

/// A head waits this long for the first token, so that an early failure can still be a real status.
const HEAD_WAITS: Duration = Duration::from_secs(1);
/// Largest collected answer, all choices together.
const MAX_ANSWER: usize = 64 << 20;

/// A request that was read and checked.
pub(super) struct Plan {
    /// The model.
    pub(super) model: Arc<Model>,
    /// What is asked of it.
    pub(super) params: Params,
    /// What to generate from, each on its own.
    pub(super) prompts: Vec<Prompt>,
    /// How to write the answer.
    pub(super) dialect: Dialect,
}

/// Whose request it is.
pub(super) struct Who {
    /// The request's id.
    pub(super) id: RequestId,
    /// The caller, who alone may cancel by an id of its own.
    pub(super) caller: Caller,
    /// Ends the client's connection.
    pub(super) connection: CancellationToken,
}

/// A choice that is about to begin.
struct Begun {
    flight: Arc<Flight>,
    request: Request,
    choice: Choice,
    beside: Arc<parking_lot::Mutex<Beside>>,
}

/// Runs a plan; `held` is the room that its request takes until it is made into tokens.
pub(super) async fn run(
    api: &Arc<Api>,
    mut plan: Plan,
    held: Held,
    who: &Who,
) -> Result<Response<Body>, Refusal> {
    if api.lifecycle.stage() == Stage::Draining {
        return Err(ApiError::new(Code::Draining, "the host is shutting down; try another").into());
    }
    let prompts = std::mem::take(&mut plan.prompts);
    places(&plan, prompts.len())?;
    let continues = !matches!(prompts.first(), Some(Prompt::Chat { .. }));
    let echoes: Vec<Option<String>> = prompts
        .iter()
        .map(|prompt| match prompt {
            Prompt::Text(text) if plan.params.echo => Some(text.clone()),
            _ => None,
        })
        .collect();
    let prompts = encode::all(api, &plan.model, prompts, held).await?;
    let labels = Arc::new(Labels {
        id: format!("{}{}", plan.dialect.prefix(), random_hex()),
        created: crate::models::unix_now(),
        model: plan.model.name.clone(),
        fingerprint: plan.model.fingerprint.clone(),
    });
    let mut begun = Vec::new();
    for (tokens, echo) in prompts.into_iter().zip(echoes) {
        let room = room(&plan.model, tokens.len())?;
        plan.params.fits(room, api.config().server.strict_max_tokens)?;
        for _ in 0..plan.params.choices {
            let choice = choice(&plan, begun.len(), echo.as_deref(), &tokens);
            begun.push(begin(api, &plan, &labels, who, continues, room, tokens.clone(), choice));
        }
    }
    if let Some(first) = begun.first().map(|b| b.flight.task) {
        begun.iter_mut().for_each(|b| b.request.group = first);
    }
    let flights: Vec<_> = begun.iter().map(|b| Arc::clone(&b.flight)).collect();
    let tickets = tickets(api, who, &labels, &flights, &plan.model)?;
    let (mut generations, mut parts) = (Vec::new(), Vec::new());
    for Begun { flight, request, choice, beside } in begun {
        generations.push(Generation::admit(
            Arc::clone(&flight),
            Arc::clone(&plan.model.worker),
            who.id.text().to_owned(),
        ));
        parts.push((choice, beside));
        if flights.len() == 1 {
            enter(&plan.model, &flight, request).await;
        } else {
            // Each waits for its own slot; a first that runs must not wait for the last that queues.
            let model = Arc::clone(&plan.model);
            api.lifecycle.tasks.spawn(async move { enter(&model, &flight, request).await });
        }
    }
    if plan.params.stream {
        let (flood, Plan { params, dialect, .. }) = (plan.model.worker.flood().is_on(), plan);
        let Params { include_usage, choices: choices_each, .. } = params;
        let last = Last { dialect, labels, include_usage, choices_each };
        stream(generations, last, tickets, flood).await
    } else {
        let answer = whole(generations, parts).await?;
        Ok(respond::json(200, &unary::object(plan.dialect, &labels, &answer, plan.params.choices)))
    }
}

/// Refuses a request that could not even run alone: it would be told to try again for ever.
fn places(plan: &Plan, prompts: usize) -> Result<(), ApiError> {
    let (gate, choices) = (plan.model.worker.gate(), plan.params.choices);
    let (slots, queued) = (gate.slots(), gate.places());
    let wanted = prompts.saturating_mul(choices);
    if wanted <= slots.saturating_add(queued) {
        return Ok(());
    }
    let message = format!(
        "prompts times choices ({prompts} x {choices}) is {wanted} generations, and {} runs {slots} at once while {queued} more \
         may wait; ask for fewer, or raise --max-concurrent or --max-queued",
        plan.model.name
    );
    Err(ApiError::new(Code::MultiPrompt, message).param("n"))
}

fn choice(plan: &Plan, index: usize, echo: Option<&str>, tokens: &[u32]) -> Choice {
    let text = &plan.model.text;
    let echo = plan.params.echo.then(|| {
        let detokenized = || {
            let bytes = tokens.iter().flat_map(|id| text.token_piece(*id).unwrap_or_default());
            String::from_utf8_lossy(&bytes.copied().collect::<Vec<u8>>()).into_owned()
        };
        Echo { text: echo.map_or_else(detokenized, str::to_owned), tokens: tokens.to_vec() }
    });
    Choice { index, echo, logprobs: plan.params.logprobs.map(|_| Arc::clone(text)) }
}

#[expect(clippy::too_many_arguments, reason = "what makes a choice, each of another kind")]
fn begin(
    api: &Api,
    plan: &Plan,
    labels: &Arc<Labels>,
    who: &Who,
    continues: bool,
    room: u32,
    tokens: Vec<u32>,
    choice: Choice,
) -> Begun {
    let Plan { model, params, dialect, .. } = plan;
    let mut stop_tokens = params.stop_tokens.clone();
    if !params.ignore_eos {
        stop_tokens.extend_from_slice(model.text.eos_ids());
    }
    let beside = Arc::default();
    let (mode, consumer): (_, Box<dyn Consumer>) = if params.stream {
        let config = api.config();
        let limits = &config.limits;
        let (limit, patience) = (limits.stream_buffer_kb << 10, limits.slow_client_timeout.0);
        let frames = Frames::new(*dialect, labels, params.include_usage, choice.clone());
        let (unread, most) = (Arc::clone(&api.unread), limits.max_unread_mb << 20);
        let (flood, framing) = (model.worker.flood(), Box::new(frames.frame()));
        (Mode::Stream { limit, patience, unread, most, flood, framing }, Box::new(frames))
    } else {
        let limit = MAX_ANSWER / params.choices.max(1);
        (Mode::Collect { limit }, Box::new(Collect(Arc::clone(&beside))))
    };
    let prompt_tokens = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
    let assembler = Assembler::new(model.detokenizer(continues), params.stops.clone(), prompt_tokens);
    let assembler = if params.max_tokens == Some(0) { assembler.mute() } else { assembler };
    let task = model.worker.task_id();
    let flight = Arc::new(Flight::new(task, mode, assembler, consumer, who.connection.clone()));
    let mut sampling = params.sampling.clone();
    // Choices of one seed differ, and are the same again when asked again.
    sampling.seed = sampling.seed.map(|seed| seed.wrapping_add(choice.index as u64));
    let request = Request {
        id: who.id.text().to_owned(),
        group: task,
        model: model.name.clone(),
        tokens,
        // Scoring a prompt takes a token, which nobody sees.
        max_tokens: params.max_tokens.map_or(room, |n| n.clamp(1, room)),
        min_tokens: params.min_tokens,
        ignore_eos: params.ignore_eos,
        stop_tokens,
        stops: params.stops.clone(),
        sampling,
        logit_bias: params.logit_bias.clone(),
        allowed: params.allowed.clone(),
        logprobs: params.logprobs,
        prompt_logprobs: params.echo && params.logprobs.is_some(),
    };
    Begun { flight, request, choice, beside }
}

/// Waits for a slot and hands the generation to its worker.
async fn enter(model: &Model, flight: &Arc<Flight>, request: Request) {
    match admit(model, flight).await {
        Ok(Some(permit)) => model.worker.submit_together(Arc::clone(flight), request, permit).await,
        // It was ended while it waited.
        Ok(None) => {}
        Err(error) => {
            flight.end(End::Rejected(error));
        }
    }
}

/// A slot; none when the generation was ended while it waited for one.
async fn admit(model: &Model, flight: &Flight) -> Result<Option<crate::sched::Permit>, ApiError> {
    let gate = model.worker.gate();
    let entered = tokio::select! {
        entered = gate.enter() => entered,
        () = poll_fn(|cx| flight.poll_given_up(cx)) => return Ok(None),
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

/// Puts the request on the roster under its answer's id, and under the ids that its client chose.
fn tickets(
    api: &Arc<Api>,
    who: &Who,
    labels: &Labels,
    flights: &[Arc<Flight>],
    model: &Model,
) -> Result<Vec<Ticket>, ApiError> {
    let chosen = who.id.chosen().map(|(place, id)| (place, id, who.caller.scoped(id)));
    std::iter::once(("id", labels.id.as_str(), labels.id.clone()))
        .chain(chosen)
        .map(|(place, id, name)| {
            api.roster.enter(&name, flights, &model.worker).ok_or_else(|| {
                let message = format!("a request with {place} {id:?} is running; choose another or wait");
                ApiError::new(Code::DuplicateRequest, message).param(place)
            })
        })
        .collect()
}

async fn stream(
    generations: Vec<Generation>,
    last: Last,
    tickets: Vec<Ticket>,
    flood: bool,
) -> Result<Response<Body>, Refusal> {
    let all = &generations;
    let any = |patient| {
        poll_fn(move |cx| {
            let ready = all.iter().any(|g| g.flight().poll_first(cx, patient).is_ready());
            if ready { Poll::Ready(()) } else { Poll::Pending }
        })
    };
    // A whole answer may be there in a moment, which then is sent at once.
    let whole = flood && tokio::time::timeout(GATHER, any(true)).await.is_ok();
    let early = !whole && tokio::time::timeout(HEAD_WAITS, any(false)).await.is_err();
    if !early && !generations.iter().any(|g| g.flight().has_tokens()) {
        let failed =
            generations.iter().find_map(|g| g.flight().outcome().end.as_ref().and_then(frames::failure));
        if let Some(error) = failed {
            // Dropping the generations books them.
            return Err(Refusal::Booked(error));
        }
    }
    Ok(respond::stream(Stream::new(generations, Box::new(last), tickets, early)))
}

async fn whole(
    mut generations: Vec<Generation>,
    parts: Vec<(Choice, Arc<parking_lot::Mutex<Beside>>)>,
) -> Result<Vec<Ended>, Refusal> {
    // The first failure is the answer's; the others are given up with it.
    poll_fn(|cx| {
        let mut open = false;
        for generation in &generations {
            match generation.flight().poll_end(cx) {
                Poll::Pending => open = true,
                Poll::Ready(()) => {
                    let end = generation.flight().outcome().end;
                    if end.as_ref().is_some_and(|end| !end.is_answer()) {
                        return Poll::Ready(());
                    }
                }
            }
        }
        if open { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let mut choices = Vec::new();
    let failed = generations.iter().find_map(|g| g.flight().outcome().end.as_ref().and_then(frames::failure));
    if let Some(error) = failed {
        generations.iter().for_each(|g| g.cancel(crate::generate::Cause::Sibling));
        return Err(Refusal::Booked(error));
    }
    for (generation, (choice, beside)) in generations.iter_mut().zip(parts) {
        let outcome = generation.flight().outcome();
        let Some(end) = outcome.end else {
            return Err(Refusal::Booked(ApiError::new(Code::Internal, "a generation ended without an end")));
        };
        let (bytes, stamps) = generation.flight().take_collected();
        generation.hand_over_collected(&stamps, end.clone());
        let text = String::from_utf8_lossy(&bytes).into_owned();
        choices.push(Ended { choice, text, beside, end, usage: outcome.usage });
    }
    Ok(choices)
}
