//! What a test hears from an engine: every chunk, checked as it comes, and pushes that should not have been.
//!
//! The sink's context lives for ever: a plugin that pushes when it must not is found out, and not a crash of the test.
#![expect(unsafe_code, reason = "the callback that plugins call")]

use core::ffi::c_void;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::ThreadId;

use cascadia_plugin_api::abi::chunk as wire;
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::engine::{SINK_GO_ON, SINK_STOP, Sink};
use cascadia_plugin_api::abi::prim::Array;
use parking_lot::Mutex;

use crate::plugins::services;

/// What a fault is about, so that one test names it and the others pass over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    Logprobs,
    Counts,
    Times,
    Shape,
}

/// All that came for one task.
#[derive(Debug, Clone, Default)]
pub(super) struct Answer {
    pub(super) asked_ns: u64,
    pub(super) prompt: usize,
    pub(super) tokens: Vec<u32>,
    pub(super) bytes: Vec<u8>,
    pub(super) logprobs: usize,
    pub(super) prompt_logprobs: usize,
    /// `finish` of each last chunk; exactly one is right.
    pub(super) finishes: Vec<u32>,
    /// Chunks after the first finish.
    pub(super) after: usize,
    pub(super) chunks: usize,
    pub(super) prompt_tokens: Option<u32>,
    /// The stop token that the end names.
    pub(super) stop_token: Option<u32>,
    pub(super) error: Option<(u32, String)>,
    pub(super) faults: Vec<(About, String)>,
}

impl Answer {
    pub(super) fn is_over(&self) -> bool {
        !self.finishes.is_empty()
    }

    /// The first fault about that.
    pub(super) fn fault(&self, about: About) -> Result<(), String> {
        self.faults.iter().find(|(a, _)| *a == about).map_or(Ok(()), |(_, text)| Err(text.clone()))
    }
}

/// What was heard so far.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) answers: BTreeMap<u64, Answer>,
    /// Chunks for tasks that were never given, or refused: the first, and how many.
    pub(super) strangers: Option<(u64, usize)>,
    /// Pushes outside of a step or from another thread: the first in words, and how many.
    pub(super) stray: Option<(&'static str, usize)>,
    /// Pushes in all; moves with every sign of life.
    pub(super) pushes: u64,
    /// Pushes in this step after the sink said stop.
    pub(super) after_stop: usize,
    said_stop: bool,
    inside: Option<ThreadId>,
}

/// The ear of one engine.
#[derive(Default)]
pub(super) struct Ear {
    heard: Mutex<Heard>,
    stop: Mutex<bool>,
}

impl Ear {
    pub(super) fn new() -> &'static Ear {
        Box::leak(Box::default())
    }

    /// From now on the sink answers stop, or goes on.
    pub(super) fn say_stop(&self, stop: bool) {
        *self.stop.lock() = stop;
    }

    /// Looks at what was heard.
    pub(super) fn look<T>(&self, at: impl FnOnce(&Heard) -> T) -> T {
        at(&self.heard.lock())
    }

    /// A task is about to be submitted: its chunks may come before the call has returned.
    pub(super) fn expect(&self, task: u64, prompt: usize) {
        let answer = Answer { asked_ns: services::now_ns(), prompt, ..Answer::default() };
        self.heard.lock().answers.insert(task, answer);
    }

    /// The task was refused: no chunk may come for it.
    pub(super) fn refuse(&self, task: u64) {
        let mut heard = self.heard.lock();
        if let Some(answer) = heard.answers.remove(&task)
            && answer.chunks > 0
        {
            heard.strangers.get_or_insert((task, 0)).1 += answer.chunks;
        }
    }

    /// The sink for one step on this thread, until [`Ear::leave`].
    pub(super) fn enter(&'static self) -> Sink {
        let mut heard = self.heard.lock();
        heard.inside = Some(std::thread::current().id());
        (heard.said_stop, heard.after_stop) = (false, 0);
        Sink { ctx: std::ptr::from_ref(self).cast_mut().cast(), push }
    }

    /// The step is over.
    pub(super) fn leave(&self) {
        self.heard.lock().inside = None;
    }
}

unsafe extern "C" fn push(ctx: *mut c_void, chunks: Array) -> u32 {
    let answer = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the context is an ear, and ears live for ever.
        let ear = unsafe { &*ctx.cast::<Ear>() };
        let mut heard = ear.heard.lock();
        heard.pushes += 1;
        let stray = match heard.inside {
            None => Some("outside of step"),
            Some(thread) if thread != std::thread::current().id() => Some("from another thread than step's"),
            Some(_) => None,
        };
        if let Some(how) = stray {
            heard.stray.get_or_insert((how, 0)).1 += 1;
        }
        if heard.said_stop {
            heard.after_stop += 1;
        }
        // SAFETY: the plugin lends the array for the call; an all-zero chunk is valid.
        for chunk in unsafe { chunks.iter::<wire::Chunk>() } {
            match heard.answers.get_mut(&chunk.task) {
                Some(answer) => take(answer, &chunk),
                None => heard.strangers.get_or_insert((chunk.task, 0)).1 += 1,
            }
        }
        heard.said_stop = *ear.stop.lock();
        if heard.said_stop { SINK_STOP } else { SINK_GO_ON }
    }));
    answer.unwrap_or(SINK_STOP)
}

fn take(answer: &mut Answer, chunk: &wire::Chunk) {
    // SAFETY: what the chunk views is lent for the push that is running.
    let (tokens, bytes, logprobs) =
        unsafe { (chunk.tokens.scalars::<u32>(), chunk.bytes.bytes(), chunk.logprobs.scalars::<f32>()) };
    answer.chunks += 1;
    if answer.is_over() {
        answer.after += 1;
    }
    if answer.faults.len() < 16 {
        answer.faults.extend(faults(answer, chunk, &tokens, &logprobs));
    }
    if chunk.flags & wire::HAS_PROMPT_TOKENS != 0 {
        answer.prompt_tokens = Some(chunk.prompt_tokens);
    }
    if chunk.flags & wire::HAS_STOP_TOKEN != 0 {
        answer.stop_token = Some(chunk.stop_token);
    }
    answer.tokens.extend_from_slice(&tokens);
    answer.bytes.extend_from_slice(bytes);
    answer.logprobs += logprobs.len();
    answer.prompt_logprobs += chunk.prompt_logprobs.len;
    if chunk.finish != wire::FINISH_NONE {
        answer.finishes.push(chunk.finish);
    }
    if chunk.finish == wire::FINISH_ERROR {
        // SAFETY: as above.
        let message = unsafe { chunk.error_message.text() };
        answer.error = Some((chunk.error, message.into_owned()));
    }
}

fn faults(answer: &Answer, chunk: &wire::Chunk, tokens: &[u32], logprobs: &[f32]) -> Vec<(About, String)> {
    let mut faults = Vec::new();
    let mut fault = |about, text: String| faults.push((about, text));
    if !logprobs.is_empty() && logprobs.len() != tokens.len() {
        let (n, m) = (logprobs.len(), tokens.len());
        fault(About::Logprobs, format!("a chunk of {m} tokens has {n} log-probabilities"));
    }
    // Infinity below is a probability of zero, and true of a token that a rule forced.
    if let Some(bad) = logprobs.iter().find(|p| p.is_nan() || **p > 1e-3) {
        fault(About::Logprobs, format!("a log-probability is {bad}"));
    }
    let (k, ids, ps) = (chunk.top_k as usize, chunk.top_ids.len, chunk.top_logprobs.len);
    if ids != k * tokens.len() || ps != ids {
        let text = format!(
            "top_k is {k} for {} tokens, and there are {ids} ids with {ps} log-probabilities",
            tokens.len()
        );
        fault(About::Logprobs, text);
    }
    let counted = (chunk.flags & wire::HAS_PROMPT_TOKENS != 0).then_some(chunk.prompt_tokens as usize);
    if let Some(n) = counted
        && n != answer.prompt
    {
        fault(About::Counts, format!("the prompt has {} tokens, the engine counted {n}", answer.prompt));
    }
    if chunk.flags & wire::HAS_CACHED_TOKENS != 0 && chunk.cached_tokens as usize > answer.prompt {
        let n = chunk.cached_tokens;
        fault(About::Counts, format!("the prompt has {} tokens, {n} came from the cache", answer.prompt));
    }
    let now = services::now_ns();
    if chunk.timestamp_ns != 0 && !(answer.asked_ns..=now).contains(&chunk.timestamp_ns) {
        let text = format!(
            "a chunk has time {}; its task came at {}, the chunk at {now}",
            chunk.timestamp_ns, answer.asked_ns
        );
        fault(About::Times, text);
    }
    match chunk.finish {
        wire::FINISH_NONE | wire::FINISH_STOP | wire::FINISH_LENGTH | wire::FINISH_CANCELLED => {}
        wire::FINISH_ERROR if chunk.error != code::OK => {}
        wire::FINISH_ERROR => fault(About::Shape, "an error finish has no code".to_owned()),
        other => fault(About::Shape, format!("a chunk's finish is {other}, which means nothing")),
    }
    faults
}
