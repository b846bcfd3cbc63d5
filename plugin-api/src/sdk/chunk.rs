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
    /// Whether it is tokens, perhaps with their bytes, and nothing else.
    #[inline]
    fn is_plain(&self) -> bool {
        let beside = self.logprobs.len() | self.top.0.len() | self.top.1.len() | self.prompt_logprobs.len();
        let counts = [self.prompt_tokens, self.cached_tokens, self.stop_token];
        let none = beside == 0 && self.top.2 == 0 && !self.nan_seen && self.finish == Finish::No;
        none && counts.iter().all(Option::is_none)
    }

    /// Writes over the one before, where both are plain: most of its three hundred bytes are as they should be.
    #[inline]
    fn write_over(&self, before: &mut wire::Chunk) {
        before.task = self.task;
        before.tokens = Array::new(self.tokens);
        before.bytes = Str::new(self.bytes);
        before.timestamp_ns = self.timestamp_ns;
    }

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
    batch: Batch,
    stopped: bool,
    /// Tasks whose finish was pushed; kept where someone wants to know.
    pub(super) ended: Option<Vec<u64>>,
}

/// What is pushed, in memory that is kept.
struct Batch {
    /// Those of this push first, then what is left of others.
    chunks: Vec<wire::Chunk>,
    /// So many belong to this push.
    used: usize,
    /// The first so many are plain.
    plain: usize,
}

impl Batch {
    const EMPTY: Batch = Batch { chunks: Vec::new(), used: 0, plain: 0 };

    #[inline]
    fn add(&mut self, chunk: &Chunk<'_>) {
        let (at, plain) = (self.used, chunk.is_plain());
        self.used += 1;
        if plain && at < self.plain {
            return chunk.write_over(&mut self.chunks[at]);
        }
        match self.chunks.get_mut(at) {
            Some(place) => *place = chunk.wire(),
            None => self.chunks.push(chunk.wire()),
        }
        if !plain {
            self.plain = self.plain.min(at);
        } else if self.plain == at {
            self.plain += 1;
        }
    }
}

thread_local! {
    /// The batch of this thread's last sink: as many chunks follow in each step, and a block of memory a step costs more than
    /// what is written into it.
    static SPARE: Cell<Batch> = const { Cell::new(Batch::EMPTY) };
}

/// Chunks that a thread keeps room for between steps.
const SPARE_CHUNKS: usize = 4096;

impl Drop for Sink {
    fn drop(&mut self) {
        let batch = std::mem::replace(&mut self.batch, Batch::EMPTY);
        if batch.chunks.capacity() <= SPARE_CHUNKS {
            // A thread that is ending keeps nothing.
            let _kept = SPARE.try_with(|spare| spare.set(batch));
        }
    }
}

impl Sink {
    pub(super) fn new(inner: abi::engine::Sink) -> Sink {
        let batch = SPARE.try_with(|spare| spare.replace(Batch::EMPTY)).unwrap_or(Batch::EMPTY);
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
        self.batch.used = 0;
        for chunk in chunks {
            if let (Some(ended), true) = (self.ended.as_mut(), chunk.finish != Finish::No) {
                ended.push(chunk.task);
            }
            self.batch.add(&chunk);
        }
        let batch = &self.batch.chunks[..self.batch.used];
        if !self.stopped && !batch.is_empty() {
            // SAFETY: the host lends the callback for this step; the chunks of this push and what they view live through the call.
            let answer = unsafe { (self.inner.push)(self.inner.ctx, Array::new(batch)) };
            self.stopped = answer == abi::engine::SINK_STOP;
        }
        if self.stopped { Flow::Stop } else { Flow::GoOn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a chunk says.
    fn said(chunk: &wire::Chunk) -> (Vec<(usize, usize)>, Vec<u32>, [u64; 2]) {
        let array = |array: Array| (array.ptr as usize, array.len * array.stride);
        let text = |text: Str| (text.ptr as usize, text.len);
        let arrays = [chunk.tokens, chunk.logprobs, chunk.top_ids, chunk.top_logprobs, chunk.prompt_logprobs];
        let texts = [chunk.bytes, chunk.error_message, chunk.error_details];
        let numbers = [chunk.finish, chunk.flags, chunk.top_k, chunk.error, chunk.prompt_tokens];
        let more = [chunk.cached_tokens, chunk.stop_token, chunk.reserved];
        (
            arrays.map(array).into_iter().chain(texts.map(text)).collect(),
            [&numbers[..], &more].concat(),
            [chunk.task, chunk.timestamp_ns],
        )
    }

    #[test]
    fn what_lay_there_before_shows_in_no_chunk() {
        let error = Error::unsupported("it");
        let plain = Chunk { task: 1, tokens: &[1], bytes: b"a", ..Chunk::default() };
        let rest = [
            Chunk { task: 2, tokens: &[2, 3], timestamp_ns: 9, ..Chunk::default() },
            Chunk { logprobs: &[0.5], top: (&[1], &[0.5], 1), ..plain },
            Chunk { prompt_logprobs: &[0.5], prompt_tokens: Some(0), cached_tokens: Some(7), ..plain },
            Chunk { finish: Finish::Error(&error), ..plain },
            Chunk { stop_token: Some(0), finish: Finish::Stop, nan_seen: true, ..plain },
        ];
        let mut batch = Batch::EMPTY;
        for seed in 0_usize..500 {
            batch.used = 0;
            let pushed: Vec<_> = (0..seed % 7)
                .map(|at| *rest.get(seed.wrapping_mul(31).wrapping_add(at * at) % 11).unwrap_or(&plain))
                .collect();
            pushed.iter().for_each(|chunk| batch.add(chunk));
            let lies: Vec<_> = batch.chunks[..batch.used].iter().map(said).collect();
            let meant: Vec<_> = pushed.iter().map(|chunk| said(&chunk.wire())).collect();
            assert_eq!(lies, meant, "{seed}");
        }
    }
}
