//! What an engine pushes, and the sink it pushes into.
#![expect(unsafe_code, reason = "calls the host's push")]

use std::cell::Cell;

use super::Error;
use crate::abi;
use crate::abi::chunk as wire;
use crate::abi::prim::{Array, Str};

/// Whether more will follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Finish<'a> {
    /// More will follow.
    #[default]
    No,
    /// An end token or a stop token came.
    Stop,
    /// `max_tokens` or the window is used up.
    Length,
    /// Ended by cancel or close.
    Cancelled,
    /// The engine failed on this task.
    Error(&'a Error),
}

/// A piece of a generation. `..Chunk::default()` leaves out what the engine does not report.
#[derive(Debug, Clone, Copy, Default)]
pub struct Chunk<'a> {
    /// The task it belongs to.
    pub task: u64,
    /// New tokens, in order, without stop tokens.
    pub tokens: &'a [u32],
    /// Their bytes, when the engine detokenizes.
    pub bytes: &'a [u8],
    /// Log-probability of each token, or empty.
    pub logprobs: &'a [f32],
    /// Alternatives: `top_k` ids per token, most likely first, and their log-probabilities.
    pub top: (&'a [u32], &'a [f32], u32),
    /// Log-probability of each prompt token.
    pub prompt_logprobs: &'a [f32],
    /// Prompt tokens as the engine counts them.
    pub prompt_tokens: Option<u32>,
    /// Of these, taken from a prefix cache.
    pub cached_tokens: Option<u32>,
    /// The stop token that ended the generation.
    pub stop_token: Option<u32>,
    /// Whether this is the last chunk.
    pub finish: Finish<'a>,
    /// Logits held a not-a-number.
    pub nan_seen: bool,
    /// When the engine had the tokens; 0 = not reported.
    pub timestamp_ns: u64,
}

impl Chunk<'_> {
    #[inline]
    fn wire(&self) -> wire::Chunk {
        let (finish, error) = match self.finish {
            Finish::No => (wire::FINISH_NONE, None),
            Finish::Stop => (wire::FINISH_STOP, None),
            Finish::Length => (wire::FINISH_LENGTH, None),
            Finish::Cancelled => (wire::FINISH_CANCELLED, None),
            Finish::Error(e) => (wire::FINISH_ERROR, Some(e)),
        };
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        wire::Chunk {
            task: self.task,
            finish,
            flags: flag(self.nan_seen, wire::NAN_SEEN)
                | flag(self.prompt_tokens.is_some(), wire::HAS_PROMPT_TOKENS)
                | flag(self.cached_tokens.is_some(), wire::HAS_CACHED_TOKENS)
                | flag(self.stop_token.is_some(), wire::HAS_STOP_TOKEN),
            tokens: Array::new(self.tokens),
            bytes: Str::new(self.bytes),
            logprobs: Array::new(self.logprobs),
            top_ids: Array::new(self.top.0),
            top_logprobs: Array::new(self.top.1),
            top_k: self.top.2,
            error: error.map_or(0, |e| e.code),
            prompt_logprobs: Array::new(self.prompt_logprobs),
            prompt_tokens: self.prompt_tokens.unwrap_or(0),
            cached_tokens: self.cached_tokens.unwrap_or(0),
            stop_token: self.stop_token.unwrap_or(0),
            reserved: 0,
            error_message: error.map_or(Str::EMPTY, |e| Str::new(e.message.as_bytes())),
            error_details: error.map_or(Str::EMPTY, |e| Str::new(e.details.as_bytes())),
            timestamp_ns: self.timestamp_ns,
        }
    }
}

/// What the sink wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    GoOn,
    /// The host is closing: return from `step` at once.
    Stop,
}

/// The host's ear, valid inside one `step`.
pub struct Sink {
    inner: abi::engine::Sink,
    batch: Vec<wire::Chunk>,
    stopped: bool,
    /// Tasks whose finish was pushed; kept where someone wants to know.
    pub(super) ended: Option<Vec<u64>>,
}

thread_local! {
    /// The batch of this thread's last sink: as many chunks follow in each step, and a block of memory a step costs more than
    /// what is written into it.
    static SPARE: Cell<Vec<wire::Chunk>> = const { Cell::new(Vec::new()) };
}

/// Chunks that a thread keeps room for between steps.
const SPARE_CHUNKS: usize = 4096;

impl Drop for Sink {
    fn drop(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        if batch.capacity() <= SPARE_CHUNKS {
            // A thread that is ending keeps nothing.
            let _kept = SPARE.try_with(|spare| spare.set(batch));
        }
    }
}

impl Sink {
    pub(super) fn new(inner: abi::engine::Sink) -> Sink {
        let batch = SPARE.try_with(Cell::take).unwrap_or_default();
        Sink { inner, batch, stopped: false, ended: None }
    }

    /// The sink of the boundary, for an engine in another language behind this one. It may be pushed into from this
    /// thread until `step` returns.
    pub fn raw(&self) -> abi::engine::Sink {
        self.inner
    }

    /// Delivers a batch. One call for all tasks of a step is the cheap way.
    pub fn push(&mut self, chunks: &[Chunk<'_>]) -> Flow {
        self.push_each(chunks.iter().copied())
    }

    /// As [`Sink::push`], of chunks that are made one by one.
    pub fn push_each<'a>(&mut self, chunks: impl IntoIterator<Item = Chunk<'a>>) -> Flow {
        self.batch.clear();
        let ended = &mut self.ended;
        self.batch.extend(chunks.into_iter().map(|chunk| {
            if let (Some(ended), true) = (ended.as_mut(), chunk.finish != Finish::No) {
                ended.push(chunk.task);
            }
            chunk.wire()
        }));
        if !self.stopped && !self.batch.is_empty() {
            // SAFETY: the host lends the callback for this step; the chunks and what they view live through the call.
            let answer = unsafe { (self.inner.push)(self.inner.ctx, Array::new(&self.batch)) };
            self.stopped = answer == abi::engine::SINK_STOP;
        }
        if self.stopped { Flow::Stop } else { Flow::GoOn }
    }
}
