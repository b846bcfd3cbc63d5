//! The routes and what answers them: wire types in, wire types out; between them only `generate` types.

pub mod admin;
pub mod cors;
pub mod guard;
pub mod health;
pub mod keys;
pub mod openai;
pub mod routes;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Response;

use crate::config::schema::is_loopback;
use crate::config::{Config, Live};
use crate::error::ApiError;
use crate::fleet::desk::Desk;
use crate::http::room::{Held, Room};
use crate::http::server::{Answer, Connection, Service};
use crate::http::{Body, Upload, gzip, respond};
use crate::lifecycle::Lifecycle;
use crate::models::Models;
use crate::sched::{Roster, Unread};
use crate::telemetry::metrics::Metrics;
use guard::{HttpGuard, RequestId};
use keys::{Caller, Keys};

/// What every handler works with.
pub struct Api {
    /// The configuration that holds now.
    pub live: Arc<Live>,
    /// Where models are loaded and let go.
    pub fleet: Desk,
    /// What is served.
    pub models: Arc<Models>,
    /// What runs.
    pub roster: Arc<Roster>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Where the host is in its life.
    pub lifecycle: Arc<Lifecycle>,
    /// Who may use it.
    pub keys: Keys,
    /// Whether the listener is on loopback, where the Host header must be too.
    pub loopback: bool,
    /// Turns for preparing long prompts: a few at a time, so that many clients cannot take all cores and memory.
    pub preparing: Arc<tokio::sync::Semaphore>,
    /// Memory for bodies.
    pub room: Arc<Room>,
    /// Memory for what clients have not read.
    pub unread: Arc<Unread>,
}

/// Long prompts that are prepared at once.
pub const PREPARED_AT_ONCE: usize = 2;

impl Api {
    /// The configuration that holds now.
    pub fn config(&self) -> Arc<Config> {
        self.live.get()
    }

    /// Largest body and largest rendered prompt, in bytes.
    pub fn max_body(&self) -> u64 {
        self.config().server.max_body_mb << 20
    }

    /// Memory for one more body.
    pub fn place(&self) -> Held {
        self.room.place(self.config().server.max_bodies() << 20)
    }

    /// How long a body may take to come.
    pub fn body_timeout(&self) -> Duration {
        self.config().server.body_timeout.0
    }
}

/// A request on its way to its handler.
pub struct Call {
    /// Method, headers and body.
    pub request: hyper::Request<Upload>,
    /// The connection it came by.
    pub connection: Connection,
    /// Its id.
    pub id: RequestId,
    /// Who asks.
    pub caller: Caller,
    /// The part of the path that the route's template leaves open.
    pub tail: String,
}

/// Why a request was not answered with a success.
#[derive(Debug)]
pub enum Refusal {
    /// Found before admission: books its rejection here.
    Early(ApiError),
    /// Found after admission: the generation has booked it.
    Booked(ApiError),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Refusal {
        Refusal::Early(error)
    }
}

/// The service of this API.
pub fn service(api: Arc<Api>) -> Service {
    Arc::new(move |request, connection| {
        let api = Arc::clone(&api);
        let answer: Answer = Box::pin(async move { answer(&api, request, connection).await });
        answer
    })
}

async fn answer(api: &Arc<Api>, request: hyper::Request<Upload>, connection: Connection) -> Response<Body> {
    let found = routes::find(request.method(), request.uri().path());
    // Counts in its drop, so that a client that leaves early is counted too.
    let guard = HttpGuard::new(Arc::clone(&api.metrics), found.label(), Instant::now());
    let id = RequestId::of(request.headers());
    let is_head = request.method() == hyper::Method::HEAD;
    let packed = gzip::is_wanted(request.headers());
    let origin = cors::allowed(&api.config().server.cors_origins, request.headers());
    let host = guard::host_given(request.version(), request.headers());
    let mut response = match host.and_then(|()| guard::host_allowed(api, request.uri(), request.headers())) {
        Err(error) => respond::error(&error),
        Ok(()) => dispatch(api, found, request, connection, &id).await,
    };
    cors::mark(&mut response, origin);
    if let Ok(value) = hyper::header::HeaderValue::from_str(id.text()) {
        response.headers_mut().insert(respond::REQUEST_ID, value);
    }
    if is_head {
        *response.body_mut() = Body::empty();
    }
    if packed {
        gzip::deflate(&mut response);
    }
    if !response.body().is_stream() {
        let value = hyper::header::HeaderValue::from(guard.millis());
        response.headers_mut().insert(respond::PROCESSING, value);
    }
    guard.answered(response.status().as_u16());
    response
}

async fn dispatch(
    api: &Arc<Api>,
    found: routes::Found,
    request: hyper::Request<Upload>,
    connection: Connection,
    id: &RequestId,
) -> Response<Body> {
    use routes::{Found, Handler};
    let (route, tail) = match found {
        Found::Route(route, tail) => (route, tail),
        Found::WrongMethod(route) if request.method() == hyper::Method::OPTIONS => {
            return cors::preflight(&route.allow(), request.headers());
        }
        Found::WrongMethod(route) => {
            return respond::method_not_allowed(&route.allow(), &route.wrong_method(request.method()));
        }
        Found::Nothing => return respond::error(&routes::unknown(request.uri().path())),
    };
    let (auth, local) = (api.config().server.metrics_auth, is_loopback(connection.peer.ip()));
    let caller = match api.keys.check(route.access, auth, request.headers(), local) {
        Ok(caller) => caller,
        Err(error) => {
            tracing::debug!(request = id.text(), code = error.code.name(), "request refused");
            return respond::error(&error);
        }
    };
    let call = Call { request, connection, id: id.clone(), caller, tail };
    let answered = match route.handler {
        Handler::Chat => Box::pin(openai::chat::answer(api, call)).await,
        Handler::Completions => Box::pin(openai::completions::answer(api, call)).await,
        Handler::Models => Ok(openai::models::list(api)),
        Handler::Model => openai::models::one(api, &call.tail),
        Handler::Tokenize => Box::pin(openai::tokens::tokenize(api, call)).await,
        Handler::Detokenize => Box::pin(openai::tokens::detokenize(api, call)).await,
        Handler::Cancel => Ok(openai::cancel::cancel(api, &call)),
        Handler::Live => Ok(health::live()),
        Handler::Ready => Ok(health::ready(api)),
        Handler::Metrics => Ok(health::metrics(api)),
        Handler::AdminList | Handler::AdminLoad | Handler::AdminUnload => {
            Box::pin(admin::answer(api, route.handler, call)).await
        }
    };
    match answered {
        Ok(response) => response,
        Err(Refusal::Booked(error)) => respond::error(&error),
        Err(Refusal::Early(error)) => {
            if let Some(reason) = error.code.reason() {
                api.metrics.reject(reason);
            }
            tracing::debug!(
                request = id.text(),
                code = error.code.name(),
                error = error.message,
                "request refused"
            );
            respond::error(&error)
        }
    }
}
