//! A generation at work, and what it got in one step.

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Chunk, Error, Finish, Result, Task, now_ns};

use crate::pipeline::{Progress, Request, Token};
use crate::prefix::{Prefix, Taken};

/// A generation of the paged pipeline that has had no finish.
pub(super) struct Running {
    pub(super) request: Request,
    pub(super) answer: Answer,
    /// Prompt and answer, where somebody counts by them.
    pub(super) text: Vec<u32>,
    pub(super) keeps_text: bool,
    pub(super) taken: Taken,
    /// Tokens that the answer may have.
    pub(super) most: usize,
}

impl Running {
    /// What it computed is for later ones; of its last token that is nothing.
    pub(super) fn leave(self, prefix: Option<&mut Prefix>) {
        if let Some(prefix) = prefix {
            prefix.end(&self.text[..self.text.len().saturating_sub(1)], self.taken);
        }
    }

    pub(super) fn poll(&mut self, task: u64) -> Result<Option<News>> {
        let mut tokens: Vec<Token> = Vec::new();
        let progress = self.request.poll(&mut tokens).map_err(|e| Error::backend(e.to_string()))?;
        let error = (progress == Progress::OutOfCache).then(|| {
            Error::new(
                code::OUT_OF_MEMORY,
                "the KV cache is too small for this generation; raise cb-cache-size or shorten it",
            )
        });
        Ok(self.answer.news(task, tokens, progress, error))
    }
}

/// What was told of an answer so far, and what may be told of it.
pub(super) struct Answer {
    /// Tokens of the prompt, and those of them that were cached, where that is known.
    prompt: usize,
    cached: Option<usize>,
    /// Tokens given.
    pub(super) generated: usize,
    stops: Vec<u32>,
    logprobs: bool,
    reported: bool,
}

impl Answer {
    pub(super) fn to(task: &Task, cached: Option<usize>) -> Answer {
        Answer {
            prompt: task.tokens.len(),
            cached,
            generated: 0,
            stops: task.stop_tokens.clone(),
            logprobs: task.logprobs.is_some(),
            reported: false,
        }
    }

    /// None where there is nothing to tell.
    pub(super) fn news(
        &mut self,
        task: u64,
        mut tokens: Vec<Token>,
        progress: Progress,
        error: Option<Error>,
    ) -> Option<News> {
        let mut stop_token = None;
        if progress == Progress::Stop && tokens.last().is_some_and(|t| self.stops.contains(&t.id)) {
            // The boundary wants it named, not delivered.
            stop_token = tokens.pop().map(|t| t.id);
        }
        if tokens.is_empty() && progress == Progress::Running && error.is_none() {
            return None;
        }
        self.generated += tokens.len();
        let first = !std::mem::replace(&mut self.reported, true);
        let count = |n: usize| u32::try_from(n).ok().filter(|_| first);
        Some(News {
            task,
            logprobs: if self.logprobs { tokens.iter().map(|t| t.logprob).collect() } else { Vec::new() },
            tokens: tokens.iter().map(|t| t.id).collect(),
            prompt_tokens: count(self.prompt),
            cached_tokens: self.cached.and_then(count),
            stop_token,
            progress,
            error,
            at: now_ns(),
        })
    }
}

/// What one generation got in one step.
pub(super) struct News {
    pub(super) task: u64,
    pub(super) tokens: Vec<u32>,
    logprobs: Vec<f32>,
    prompt_tokens: Option<u32>,
    cached_tokens: Option<u32>,
    pub(super) stop_token: Option<u32>,
    progress: Progress,
    error: Option<Error>,
    at: u64,
}

impl News {
    pub(super) fn is_last(&self) -> bool {
        self.progress != Progress::Running || self.error.is_some()
    }

    pub(super) fn chunk(&self) -> Chunk<'_> {
        let finish = match (self.progress, &self.error) {
            (_, Some(error)) => Finish::Error(error),
            (Progress::Running, None) => Finish::No,
            (Progress::Length, None) => Finish::Length,
            (Progress::Cancelled, None) => Finish::Cancelled,
            (Progress::Stop | Progress::OutOfCache, None) => Finish::Stop,
        };
        Chunk {
            task: self.task,
            tokens: &self.tokens,
            logprobs: &self.logprobs,
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            stop_token: self.stop_token,
            finish,
            timestamp_ns: self.at,
            ..Chunk::default()
        }
    }
}
