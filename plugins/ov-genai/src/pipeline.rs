//! A model behind OpenVINO GenAI's continuous batching: token ids in, token ids out, in plain Rust.
//!
//! Invariants: each token is given out once; a finished [`Progress`] is the last word on its request and comes
//! with the last of its tokens. One thread owns a pipeline and its requests: adding may touch the scheduler's prefix
//! cache, so it must not run beside [`Pipeline::step`].
//! Knows nothing of text, plugins or where libraries are.

use std::sync::Arc;

use crate::ffi::Shim;
use crate::ffi::paged::{self, Metrics};
use crate::ffi::value::Value;
use fault::{Error, c_path, c_string};
use sampling::Sampling;
use setup::{Cache, Opening, Options, Proposer};

pub(crate) mod embedder;
pub(crate) mod fault;
pub(crate) mod sampling;
pub(crate) mod setup;
pub(crate) mod stateful;

#[cfg(test)]
mod live;
#[cfg(test)]
mod tests;

/// A model, open.
pub(crate) struct Pipeline {
    inner: paged::Pipeline,
    // The library's name of the next request. Two alive with one name make every later step fail (measured), so
    // they are given here.
    next: u64,
}

impl Pipeline {
    /// Loads the model; takes seconds.
    ///
    /// # Errors
    /// What the library says of the path, the device or a property; or that the library's version is unknown.
    pub(crate) fn open(shim: &Arc<Shim>, options: &Options) -> Result<Self, Error> {
        let fault = |reason| options.fault(reason);
        let Opening { path, device, mut properties } = options.opening()?;
        if options.proposer == Proposer::Prompt {
            properties.push((c"prompt_lookup".to_owned(), Value::Bool(true)));
        }
        let (blocks, gigabytes) = match options.scheduler.cache {
            Cache::Grow => (0, 0),
            Cache::Blocks(blocks) => (blocks, 0),
            Cache::Gigabytes(gigabytes) => (0, gigabytes),
        };
        let scheduler = paged::Scheduler {
            max_num_batched_tokens: options.scheduler.max_batched_tokens,
            num_kv_blocks: blocks,
            cache_size: gigabytes,
            max_num_seqs: options.scheduler.max_requests,
            dynamic_split_fuse: options.scheduler.split_prompts.into(),
            enable_prefix_caching: options.scheduler.prefix_caching.into(),
        };
        let draft = match &options.proposer {
            Proposer::Model { path, device } => Some((c_path(path)?, c_string("draft device", device)?)),
            Proposer::Nobody | Proposer::Prompt => None,
        };
        let draft = draft.as_ref().map(|(path, device)| (path.as_c_str(), device.as_c_str()));
        paged::Pipeline::open(shim, &path, &device, &scheduler, &properties, draft, options.allow_untested)
            .map(|inner| Self { inner, next: 0 })
            .map_err(fault)
    }

    /// Queues a request; the next [`Self::step`] may begin it.
    ///
    /// # Errors
    /// When the settings contradict each other or the prompt is empty.
    pub(crate) fn add(&mut self, prompt: &[u32], sampling: &Sampling) -> Result<Request, Error> {
        if prompt.is_empty() {
            return Err(Error::Add { reason: "the prompt is empty".to_owned() });
        }
        let ids: Vec<i64> = prompt.iter().copied().map(i64::from).collect();
        let inner =
            self.inner.add(self.next, &ids, &sampling.entries()?).map_err(|reason| Error::Add { reason })?;
        self.next += 1;
        Ok(Request { inner })
    }

    /// Whether it has a vocabulary, without which it keeps to no grammar.
    ///
    /// # Errors
    /// When the library throws.
    pub(crate) fn has_vocabulary(&mut self) -> Result<bool, Error> {
        self.inner.has_vocabulary().map_err(|reason| Error::Step { reason })
    }

    /// Runs one inference for all requests that fit.
    ///
    /// # Errors
    /// When the inference fails; no request will then go on.
    pub(crate) fn step(&mut self) -> Result<(), Error> {
        self.inner.step().map_err(|reason| Error::Step { reason })
    }

    /// Whether a step would do anything.
    ///
    /// # Errors
    /// When the library throws.
    #[cfg(test)]
    pub(crate) fn busy(&mut self) -> Result<bool, Error> {
        self.inner.busy().map_err(|reason| Error::Step { reason })
    }

    /// The library's numbers of the last step; costs nothing.
    ///
    /// # Errors
    /// When the library throws.
    pub(crate) fn metrics(&mut self) -> Result<Metrics, Error> {
        self.inner.metrics().map_err(|reason| Error::Step { reason })
    }
}

/// A request of a pipeline. Dropping it cancels it; it may outlive its pipeline and then gives nothing more.
pub(crate) struct Request {
    inner: paged::Request,
}

impl Request {
    /// Appends the tokens that came since the last call; the stop id that ended a request is the last of them.
    ///
    /// # Errors
    /// When the library throws.
    pub(crate) fn poll(&mut self, into: &mut Vec<Token>) -> Result<Progress, Error> {
        // A step gives one token, or a few with prompt lookup: one call as a rule.
        let (mut ids, mut logprobs) = ([0; 16], [0.0; 16]);
        loop {
            let got = self.inner.poll(&mut ids, &mut logprobs).map_err(|reason| Error::Step { reason })?;
            for (&id, &logprob) in ids.iter().zip(&logprobs).take(got.count) {
                into.push(Token { id: u32::try_from(id).map_err(|_| Error::Token { id })?, logprob });
            }
            if got.left == 0 {
                return Ok(progress(got.status, got.reason));
            }
        }
    }

    /// Ends it; the pipeline frees its part of the cache in the next step. No token comes after.
    ///
    /// # Errors
    /// When the library throws.
    pub(crate) fn cancel(&mut self) -> Result<(), Error> {
        self.inner.cancel().map_err(|reason| Error::Step { reason })
    }
}

/// A chosen token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Token {
    pub(crate) id: u32,
    /// 0 unless asked for.
    pub(crate) logprob: f32,
}

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Running,
    /// A stop id came, it is the last token.
    Stop,
    /// `max_tokens` came.
    Length,
    Cancelled,
    /// The cache is too small for it even alone.
    OutOfCache,
}

fn progress(status: i32, reason: i32) -> Progress {
    match (status, reason) {
        (0, _) => Progress::Running,
        (2, _) => Progress::OutOfCache,
        (3, _) => Progress::Cancelled,
        (_, 2) => Progress::Length,
        _ => Progress::Stop,
    }
}
