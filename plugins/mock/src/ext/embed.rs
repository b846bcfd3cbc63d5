//! `cascadia.embeddings/1`: vectors that depend on the tokens and on nothing else. One input a step, so that a batch can
//! be cancelled in its middle.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{
    Chunk, EmbedInfo, EmbedInput, EmbedOut, EmbedTask, Embedding, Embeddings, Error, Finish, Pooling, Result,
    Sink,
};
use parking_lot::Mutex;

use super::adapters::Style;
use super::kv_log::mix;
use crate::engine::Mock;

/// Dimensions of a whole vector.
const DIMENSIONS: u32 = 64;
/// Most inputs of a task.
const MAX_INPUTS: usize = 2048;

/// The batches at hand.
#[derive(Default)]
pub(crate) struct Desk {
    out: OnceLock<EmbedOut>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    jobs: VecDeque<Job>,
    closed: bool,
}

struct Job {
    task: EmbedTask,
    style: Option<Arc<Style>>,
    done: usize,
    tokens: u32,
    cancelled: bool,
}

/// What a piece of work came to.
struct Done {
    task: u64,
    vector: Option<(u32, u32, Vec<f32>)>,
    /// The task is over: its tokens, and whether it was cancelled.
    over: Option<(u32, bool)>,
}

impl Desk {
    /// Batches that are not over.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.inner.lock().jobs.len()).unwrap_or(u32::MAX)
    }

    /// Ends a batch at the next step.
    pub(crate) fn cancel(&self, task: u64) {
        if let Some(job) = self.inner.lock().jobs.iter_mut().find(|job| job.task.id == task) {
            job.cancelled = true;
        }
    }

    /// Ends all batches at the next step, and takes no more.
    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        inner.jobs.iter_mut().for_each(|job| job.cancelled = true);
    }

    /// Embeds one input; whether there are more.
    pub(crate) fn work(&self, broken: &str, sink: &mut Sink) -> bool {
        let Some(done) = self.next(broken) else { return false };
        if let (Some((index, tokens, vector)), Some(out)) = (&done.vector, self.out.get()) {
            out.take(&[Embedding { task: done.task, index: *index, tokens: *tokens, vector }]);
        }
        if let Some((tokens, cancelled)) = done.over {
            let finish = if cancelled { Finish::Cancelled } else { Finish::Stop };
            sink.push(&[Chunk { task: done.task, finish, prompt_tokens: Some(tokens), ..Chunk::default() }]);
        }
        self.len() > 0
    }

    fn next(&self, broken: &str) -> Option<Done> {
        let mut inner = self.inner.lock();
        let job = inner.jobs.front_mut()?;
        let task = job.task.id;
        if job.cancelled {
            let tokens = job.tokens;
            inner.jobs.pop_front();
            return Some(Done { task, vector: None, over: Some((tokens, true)) });
        }
        let input = &job.task.inputs[job.done];
        let mut tokens = tokens(input);
        if let Some(style) = &job.style {
            tokens.iter_mut().for_each(|id| *id = style.id(*id));
        }
        let mut vector = embed(&tokens, &job.task);
        if broken == "embed-short" {
            vector.pop();
        }
        let counted = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
        let index = u32::try_from(job.done).unwrap_or(u32::MAX);
        (job.done, job.tokens) = (job.done + 1, job.tokens.saturating_add(counted));
        let last = job.done == job.task.inputs.len();
        let over = last.then_some((job.tokens, false));
        if last {
            inner.jobs.pop_front();
        }
        let missing = broken == "embed-missing" && last;
        Some(Done { task, vector: (!missing).then_some((index, counted, vector)), over })
    }
}

impl Embeddings for Mock {
    fn info(&self) -> EmbedInfo {
        EmbedInfo {
            dimensions: DIMENSIONS,
            can_shorten: true,
            max_inputs: MAX_INPUTS as u32,
            max_tokens: u32::try_from(self.options.context_length).unwrap_or(u32::MAX),
            pooling: Pooling::Mean,
        }
    }

    fn attach(&self, out: EmbedOut) -> Result<()> {
        self.desk.out.set(out).map_err(|_| Error::config("there is a place for vectors already"))
    }

    fn submit(&self, task: EmbedTask) -> Result<()> {
        let window = usize::try_from(self.options.context_length).unwrap_or(usize::MAX);
        match () {
            () if self.desk.out.get().is_none() => return Err(Error::unsupported("place for vectors yet")),
            () if task.inputs.is_empty() || task.inputs.len() > MAX_INPUTS => {
                let n = task.inputs.len();
                return Err(Error::config(format!("{n} inputs; a task has 1 to {MAX_INPUTS}")));
            }
            () if task.dimensions > DIMENSIONS => {
                let n = task.dimensions;
                return Err(Error::config(format!("dimensions is {n}; vectors have {DIMENSIONS}")));
            }
            () => {}
        }
        if let Pooling::Unknown(n) = task.pooling {
            return Err(Error::config(format!("pooling is {n}; the mock has mean, first and last")));
        }
        if let Some(long) = task.inputs.iter().map(|input| tokens(input).len()).find(|n| *n > window) {
            return Err(Error::prompt_too_long(long, window));
        }
        let style = self.shelf.find(&task.adapter)?;
        let mut inner = self.desk.inner.lock();
        if inner.closed {
            return Err(Error::new(code::CLOSED, "the engine is closed"));
        }
        if inner.jobs.len() >= self.options.slots + self.options.max_waiting {
            return Err(Error::queue_full(inner.jobs.len()));
        }
        // Behind those of its priority; the one at work goes on.
        let behind = inner.jobs.iter().skip(1).position(|job| job.task.priority < task.priority);
        let place = behind.map_or(inner.jobs.len(), |at| at + 1);
        inner.jobs.insert(place, Job { task, style, done: 0, tokens: 0, cancelled: false });
        drop(inner);
        self.own.ring();
        Ok(())
    }
}

/// Its ids, or the bytes of its text.
fn tokens(input: &EmbedInput) -> Vec<u32> {
    if input.tokens.is_empty() { input.text.bytes().map(u32::from).collect() } else { input.tokens.clone() }
}

fn embed(tokens: &[u32], task: &EmbedTask) -> Vec<f32> {
    let pooled = match task.pooling {
        Pooling::First => tokens.get(..1),
        Pooling::Last => tokens.get(tokens.len().saturating_sub(1)..),
        Pooling::Default | Pooling::Mean | Pooling::Unknown(_) => Some(tokens),
    };
    let pooled = pooled.unwrap_or_default();
    let dimensions = if task.dimensions == 0 { DIMENSIONS } else { task.dimensions };
    let mut vector: Vec<f32> = (0..dimensions)
        .map(|at| pooled.iter().map(|id| component(*id, at)).sum::<f32>() / pooled.len().max(1) as f32)
        .collect();
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if task.normalize && length > 0.0 {
        vector.iter_mut().for_each(|x| *x /= length);
    }
    vector
}

/// A number between -0.5 and 0.5 for a token's place `at`.
fn component(id: u32, at: u32) -> f32 {
    let bytes = id.to_le_bytes().into_iter().chain(at.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, mix);
    ((hash >> 40) & 0xffff) as f32 / 65_536.0 - 0.5
}

#[cfg(test)]
mod tests {
    use cascadia_plugin_api::sdk::TraceContext;

    use super::*;

    fn task(pooling: Pooling, dimensions: u32, normalize: bool) -> EmbedTask {
        EmbedTask {
            id: 1,
            request_id: String::new(),
            trace: TraceContext::default(),
            inputs: Vec::new(),
            pooling,
            dimensions,
            normalize,
            priority: 0,
            deadline_ns: None,
            adapter: String::new(),
            options: Vec::new(),
        }
    }

    #[test]
    fn a_vector_depends_on_what_is_pooled() {
        let tokens = [1, 2, 3];
        let embed = |pooling| embed(&tokens, &task(pooling, 0, false));
        assert_eq!(embed(Pooling::Default), embed(Pooling::Mean));
        assert_eq!(embed(Pooling::First), super::embed(&[1], &task(Pooling::Mean, 0, false)));
        assert_eq!(embed(Pooling::Last), super::embed(&[3], &task(Pooling::Mean, 0, false)));
        assert_ne!(embed(Pooling::First), embed(Pooling::Last));
        assert_eq!(embed(Pooling::Mean).len(), DIMENSIONS as usize);
    }

    #[test]
    fn a_short_vector_is_the_beginning_of_a_long_one() {
        let long = embed(&[7, 8], &task(Pooling::Mean, 0, false));
        let short = embed(&[7, 8], &task(Pooling::Mean, 5, false));
        assert_eq!(short, long[..5]);
        let unit = embed(&[7, 8], &task(Pooling::Mean, 5, true));
        assert!((unit.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
        assert!(embed(&[], &task(Pooling::Last, 3, true)).iter().all(|x| *x == 0.0));
    }
}
