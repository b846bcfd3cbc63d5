//! Every error code of the API: its status, its type, its name, and which rejection it books.

use crate::telemetry::labels::Reason;

/// The `type` of an error body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The client's request is at fault; repeating it will not help.
    InvalidRequest,
    /// The host or an engine failed.
    Server,
    /// Who asks may not.
    Authentication,
    /// Not now: overloaded, loading, draining.
    Unavailable,
}

impl Kind {
    /// The word in the body.
    pub fn name(self) -> &'static str {
        match self {
            Kind::InvalidRequest => "invalid_request_error",
            Kind::Server => "server_error",
            Kind::Authentication => "authentication_error",
            Kind::Unavailable => "service_unavailable",
        }
    }
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal, $status:literal, $kind:ident, $reason:expr;)*) => {
        /// A code of the API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[doc = $doc])* $variant,)* }

        impl Code {
            /// All of them, for the reference and its test.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The `code` in the body.
            pub fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }

            /// What it means, for the reference.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$variant => concat!($($doc),*),)* }
            }

            /// The HTTP status.
            pub fn status(self) -> u16 {
                match self { $(Code::$variant => $status,)* }
            }

            /// The `type` in the body.
            pub fn kind(self) -> Kind {
                match self { $(Code::$variant => Kind::$kind,)* }
            }

            /// What `cascadia_api_rejected_total` books for it when a request ends with it before it ran.
            pub fn reason(self) -> Option<Reason> {
                match self { $(Code::$variant => $reason,)* }
            }
        }
    };
}

codes! {
    /// The body is not JSON, or not an object.
    InvalidJson = "invalid_json", 400, InvalidRequest, None;
    /// A field has the wrong type or a value out of range, or is missing.
    InvalidValue = "invalid_value", 400, InvalidRequest, None;
    /// The engine or this host cannot do what a field asks for.
    UnsupportedParameter = "unsupported_parameter", 400, InvalidRequest, None;
    /// A field that nobody knows, where the configuration refuses such.
    UnknownParameter = "unknown_parameter", 400, InvalidRequest, None;
    /// There is nothing to answer.
    EmptyPrompt = "empty_prompt", 400, InvalidRequest, Some(Reason::EmptyPrompt);
    /// More prompts or choices than one request may have, or than the host could run and let wait at once.
    MultiPrompt = "multi_prompt", 400, InvalidRequest, Some(Reason::MultiPrompt);
    /// The model's chat template refused the messages.
    TemplateError = "template_error", 400, InvalidRequest, None;
    /// The engine refused the request's values.
    EngineRefused = "engine_refused", 400, InvalidRequest, Some(Reason::InvalidRequest);
    /// A key is needed, and none or a wrong one was shown.
    InvalidApiKey = "invalid_api_key", 401, Authentication, None;
    /// The route is for administrators.
    AdminOnly = "admin_only", 403, Authentication, None;
    /// The Host header names a host that this listener does not answer for.
    HostNotAllowed = "host_not_allowed", 403, InvalidRequest, None;
    /// No such model.
    ModelNotFound = "model_not_found", 404, InvalidRequest, Some(Reason::InvalidRequest);
    /// No such path.
    UnknownRoute = "unknown_route", 404, InvalidRequest, None;
    /// The path exists, the method does not.
    MethodNotAllowed = "method_not_allowed", 405, InvalidRequest, None;
    /// The client took too long to send its body.
    RequestTimeout = "request_timeout", 408, InvalidRequest, None;
    /// A running request has the same id.
    DuplicateRequest = "duplicate_request", 409, InvalidRequest, None;
    /// A model of that name is there already.
    ModelExists = "model_exists", 409, InvalidRequest, None;
    /// The body is over the limit.
    BodyTooLarge = "body_too_large", 413, InvalidRequest, None;
    /// The rendered prompt is over the body limit.
    PromptTooLarge = "prompt_too_large", 413, InvalidRequest, Some(Reason::PromptTooLarge);
    /// The prompt does not fit the engine's window.
    ContextLengthExceeded = "context_length_exceeded", 413, InvalidRequest, Some(Reason::PromptOverWindow);
    /// The body is of a type that is not JSON.
    UnsupportedMediaType = "unsupported_media_type", 415, InvalidRequest, None;
    /// The engine failed.
    EngineError = "engine_error", 500, Server, Some(Reason::EngineError);
    /// A model that was asked for did not come up.
    LoadFailed = "load_failed", 500, Server, None;
    /// The host failed; a fault of ours.
    Internal = "internal", 500, Server, None;
    /// All slots and all queue places are taken, the queue's deadline passed, or other requests' bodies leave no memory.
    Capacity = "capacity", 503, Unavailable, Some(Reason::Capacity);
    /// The engine is not loaded, has failed, or a peer cannot be reached.
    EngineUnavailable = "engine_unavailable", 503, Unavailable, Some(Reason::EngineUnavailable);
    /// The host is shutting down.
    Draining = "draining", 503, Unavailable, Some(Reason::EngineUnavailable);
}
