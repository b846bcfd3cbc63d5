//! A piece of a generation as an engine delivered it, borrowed for the moment.

/// What kind of failure it is, for what a client is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The engine's own queue is full.
    QueueFull,
    /// The prompt does not fit the window.
    PromptTooLong,
    /// Values that the engine cannot take.
    Refused,
    /// The model is not there.
    NotFound,
    /// The engine, or a part of it, is not there.
    Unavailable,
    /// Anything else: a fault of the engine.
    Fault,
}

/// How an engine says that it failed on a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What kind it is.
    pub kind: Kind,
    /// Name of the code, for logs and for `code` in an error frame.
    pub code: &'static str,
    /// One line.
    pub message: String,
    /// A JSON object, or empty.
    pub details: String,
}

impl Failure {
    /// A failure that the host itself found.
    pub fn fault(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { kind: Kind::Fault, code, message: message.into(), details: String::new() }
    }
}

/// What the engine says about the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// An end token or a stop token.
    Stop,
    /// The token limit or the window.
    Length,
    /// It was cancelled.
    Cancelled,
    /// It failed.
    Error(Failure),
}

/// Log-probabilities of a piece's tokens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Logprobs<'a> {
    /// One per token of the piece, or none at all.
    pub chosen: &'a [f32],
    /// Alternatives, `k` per token, most likely first.
    pub top_ids: &'a [u32],
    /// Their log-probabilities.
    pub top: &'a [f32],
    /// Alternatives per token.
    pub k: usize,
}

/// A piece. Five words, for the case that is nearly every one: tokens and nothing else.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// New token ids.
    pub tokens: &'a [u32],
    /// Their bytes, when the engine detokenizes; else empty.
    pub bytes: &'a [u8],
    /// What only some pieces have.
    pub more: &'a More<'a>,
}

impl Piece<'_> {
    /// Whether it is tokens and nothing else, as far as that was known where it was made.
    pub fn is_plain(&self) -> bool {
        std::ptr::eq(self.more, More::NONE)
    }
}

/// What only some pieces have.
#[derive(Debug, Clone)]
pub struct More<'a> {
    /// Prompt tokens as the engine counts them.
    pub prompt_tokens: Option<u32>,
    /// Of these, from a prefix cache.
    pub cached_tokens: Option<u32>,
    /// Log-probabilities of the tokens, where they were asked for.
    pub logprobs: Logprobs<'a>,
    /// Log-probability of each prompt token, the first not a number; in one piece, once.
    pub prompt_logprobs: &'a [f32],
    /// Set on the last piece.
    pub finish: Option<Finish>,
}

impl More<'_> {
    /// Nothing of it.
    pub const NONE: &'static More<'static> = &NONE;
}

/// One for all, so that it is known by its place.
static NONE: More<'static> = More {
    prompt_tokens: None,
    cached_tokens: None,
    logprobs: Logprobs { chosen: &[], top_ids: &[], top: &[], k: 0 },
    prompt_logprobs: &[],
    finish: None,
};
