//! The closed label sets. Every value exists at zero from the start, so that `rate()` sees the first increment.

macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every value.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The value with that text.
            pub fn of(name: &str) -> Option<$name> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }

            /// The label's text.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

label! {
    /// Why a request was rejected before generation started.
    Reason {
        /// Slots and queue are full, or the wait took too long.
        Capacity = "capacity",
        /// Nothing to answer.
        EmptyPrompt = "empty_prompt",
        /// More prompts or choices than allowed.
        MultiPrompt = "multi_prompt",
        /// The rendered prompt is over the size limit.
        PromptTooLarge = "prompt_too_large",
        /// The prompt does not fit the engine's window.
        PromptOverWindow = "prompt_over_window",
        /// The engine is not there.
        EngineUnavailable = "engine_unavailable",
        /// The engine failed to accept the request.
        EngineError = "engine_error",
        /// Bad configuration, rejected shard, or unknown model.
        InvalidRequest = "invalid_request",
    }
}

label! {
    /// How an admitted generation ended.
    FinishReason {
        /// The model ended, or a stop string matched.
        Stop = "stop",
        /// The token limit or the window was reached.
        Length = "length",
        /// The client went away or cancelled.
        Cancelled = "cancelled",
        /// The engine failed.
        Error = "error",
        /// The host shut down.
        Teardown = "teardown",
    }
}

label! {
    /// Kind of a frame between pipeline stages.
    FrameKind {
        /// Activations.
        Tensor = "tensor",
        /// Control messages.
        Raw = "raw",
    }
}

label! {
    /// Which way a frame goes, seen from here.
    Direction {
        /// To the peer.
        Sent = "sent",
        /// From the peer.
        Received = "received",
    }
}

label! {
    /// Who began a link.
    Side {
        /// This host opened it.
        Opened = "opened",
        /// A peer came to a listener here.
        Accepted = "accepted",
    }
}

label! {
    /// What went wrong with a link.
    LinkError {
        /// The other side was refused, or refused us, before there was a link.
        Rejected = "rejected",
        /// The connection was lost.
        Lost = "lost",
        /// The peer closed inside a frame.
        Cut = "cut",
        /// A frame had begun and did not go on.
        Stalled = "stalled",
        /// What the peer sent is no frame.
        Protocol = "protocol",
        /// The peer announced a frame over the limit.
        Oversize = "oversize",
    }
}

label! {
    /// How a plugin broke the boundary's rules without harm to others.
    Protocol {
        /// A chunk for a task that the engine does not have.
        UnknownTask = "unknown_task",
        /// Tokens that neither the engine nor the tokenizer has text for.
        UnknownToken = "unknown_token",
        /// A chunk that the host could not process.
        BadChunk = "bad_chunk",
        /// A push while no step of the engine ran.
        PushOutsideStep = "push_outside_step",
        /// A push from another thread than the one that runs step.
        PushOtherThread = "push_other_thread",
        /// A push or a service that named a worker which never was.
        UnknownWorker = "unknown_worker",
        /// A service that named a worker whose engine was destroyed.
        ServiceAfterDestroy = "service_after_destroy",
    }
}

label! {
    /// How a client's connection ended.
    ConnectionEnd {
        /// Nothing was owed: after the last answer, or without a request.
        Closed = "closed",
        /// The client went, or stopped answering pings, while a request was under way.
        ClientLeft = "client_left",
        /// The head of its first request did not come in time.
        NoRequest = "no_request",
        /// It was used, and no further request came in time.
        Idle = "idle",
        /// The host ended it: its client did not read, or the host stopped.
        Cut = "cut",
        /// What came is no HTTP.
        Malformed = "malformed",
        /// There was no agreement on TLS.
        Tls = "tls",
        /// Anything else; the log at debug says what.
        Error = "error",
    }
}

label! {
    /// The step of loading that failed.
    LoadStage {
        /// Finding the file.
        Find = "find",
        /// Reading the file's structure.
        Precheck = "precheck",
        /// Reading the manifest.
        Manifest = "manifest",
        /// Checking the options.
        Options = "options",
        /// Opening the library.
        Open = "open",
        /// Finding and reading the entry.
        Entry = "entry",
        /// Comparing layouts.
        Proof = "proof",
        /// The plugin's own start.
        Init = "init",
        /// Building the engine.
        Build = "build",
        /// Warming the engine up.
        Warmup = "warmup",
        /// Its first answer.
        Canary = "canary",
    }
}

label! {
    /// Why an engine was replaced.
    Restart {
        /// It failed.
        Failed = "failed",
        /// It made no progress.
        Stalled = "stalled",
        /// A newer plugin took over.
        Upgraded = "upgraded",
    }
}
