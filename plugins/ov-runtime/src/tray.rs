//! What a turn brought for each generation, laid out for one push. Its room is used again and again.

use std::ops::Range;

use cascadia_plugin_api::sdk::{Chunk, Error, Finish};
use cascadia_sampling::Choice;

/// The news of one turn.
#[derive(Debug, Default)]
pub(crate) struct Tray {
    tokens: Vec<u32>,
    /// One for each token of a generation that wants them; others have none.
    logprobs: Vec<f32>,
    top_ids: Vec<u32>,
    top_logprobs: Vec<f32>,
    news: Vec<News>,
}

/// What one generation got.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) task: u64,
    tokens: Range<usize>,
    logprobs: Range<usize>,
    top: Range<usize>,
    /// Alternatives per token.
    top_k: u32,
    pub(crate) prompt_logprobs: Vec<f32>,
    pub(crate) prompt_tokens: Option<u32>,
    pub(crate) cached_tokens: Option<u32>,
    pub(crate) stop_token: Option<u32>,
    pub(crate) nan_seen: bool,
    pub(crate) end: End,
}

/// Whether and how a generation ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    No,
    Stop,
    Length,
    Error(Error),
}

impl Tray {
    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
        self.logprobs.clear();
        self.top_ids.clear();
        self.top_logprobs.clear();
        self.news.clear();
    }

    /// News of a task, without tokens so far.
    pub(crate) fn begin(&mut self, task: u64) -> &mut News {
        let (tokens, logprobs, top) = (self.tokens.len(), self.logprobs.len(), self.top_ids.len());
        self.news.push(News {
            task,
            tokens: tokens..tokens,
            logprobs: logprobs..logprobs,
            top: top..top,
            top_k: 0,
            prompt_logprobs: Vec::new(),
            prompt_tokens: None,
            cached_tokens: None,
            stop_token: None,
            nan_seen: false,
            end: End::No,
        });
        // PANIC: pushed above.
        self.news.last_mut().expect("there is one")
    }

    /// A token of the task that was begun last, with what its generation wants to know of it.
    pub(crate) fn token(&mut self, choice: &Choice) {
        let Some(news) = self.news.last_mut() else { return };
        self.tokens.push(choice.token);
        self.logprobs.extend(choice.logprob);
        for alternative in &choice.alternatives {
            self.top_ids.push(alternative.token);
            self.top_logprobs.push(alternative.logprob);
        }
        news.tokens.end = self.tokens.len();
        news.logprobs.end = self.logprobs.len();
        news.top.end = self.top_ids.len();
        news.top_k = u32::try_from(choice.alternatives.len()).unwrap_or(0);
    }

    /// The news that was begun last.
    pub(crate) fn last(&mut self) -> Option<&mut News> {
        self.news.last_mut()
    }

    pub(crate) fn news(&self) -> &[News] {
        &self.news
    }

    #[cfg(test)]
    pub(crate) fn tokens_of(&self, task: u64) -> Vec<u32> {
        let of = self.news.iter().filter(|news| news.task == task);
        of.flat_map(|news| self.tokens[news.tokens.clone()].to_vec()).collect()
    }

    /// All of it as the host takes it, stamped with one time.
    pub(crate) fn chunks(&self, at: u64) -> impl Iterator<Item = Chunk<'_>> {
        self.news.iter().map(move |news| Chunk {
            task: news.task,
            tokens: &self.tokens[news.tokens.clone()],
            logprobs: &self.logprobs[news.logprobs.clone()],
            top: (&self.top_ids[news.top.clone()], &self.top_logprobs[news.top.clone()], news.top_k),
            prompt_logprobs: &news.prompt_logprobs,
            prompt_tokens: news.prompt_tokens,
            cached_tokens: news.cached_tokens,
            stop_token: news.stop_token,
            nan_seen: news.nan_seen,
            finish: match &news.end {
                End::No => Finish::No,
                End::Stop => Finish::Stop,
                End::Length => Finish::Length,
                End::Error(error) => Finish::Error(error),
            },
            timestamp_ns: at,
            ..Chunk::default()
        })
    }
}
