//! What a step pushes, in buffers that are kept from step to step.

use cascadia_plugin_api::sdk::{Chunk, Error, Finish};

use crate::script::End;

/// Whether more will follow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Ending {
    /// More will follow.
    #[default]
    No,
    /// The generation is over.
    End(End),
    /// The task failed.
    Error(Error),
}

/// One chunk, owned.
#[derive(Debug, Clone, Default)]
pub(crate) struct Delivery {
    pub(crate) task: u64,
    pub(crate) tokens: Vec<u32>,
    /// Bytes of the tokens; of those that left them to the host only ids below 256 have some.
    pub(crate) bytes: Vec<u8>,
    /// A token brought its own bytes: the host must take ours.
    pub(crate) detokenized: bool,
    pub(crate) logprobs: Vec<f32>,
    pub(crate) top_ids: Vec<u32>,
    pub(crate) top_logprobs: Vec<f32>,
    pub(crate) top_k: u32,
    pub(crate) prompt_logprobs: Vec<f32>,
    pub(crate) prompt_tokens: Option<u32>,
    pub(crate) cached_tokens: Option<u32>,
    pub(crate) stop_token: Option<u32>,
    pub(crate) ending: Ending,
    pub(crate) nan: bool,
    pub(crate) timestamp_ns: u64,
    /// It was laid as a word, so nothing but what a word has needs to be written anew for another.
    word: bool,
}

impl Delivery {
    /// Whether it is the task's last.
    pub(crate) fn ends(&self) -> bool {
        self.ending != Ending::No
    }

    /// Whether there is nothing to push.
    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty() && !self.ends()
    }

    /// The chunk of the boundary.
    pub(crate) fn chunk(&self) -> Chunk<'_> {
        Chunk {
            task: self.task,
            tokens: &self.tokens,
            bytes: if self.detokenized { &self.bytes } else { &[] },
            logprobs: &self.logprobs,
            top: (&self.top_ids, &self.top_logprobs, self.top_k),
            prompt_logprobs: &self.prompt_logprobs,
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            stop_token: self.stop_token,
            finish: match &self.ending {
                Ending::No => Finish::No,
                Ending::End(End::Stop) => Finish::Stop,
                Ending::End(End::Length) => Finish::Length,
                Ending::End(End::Cancelled) => Finish::Cancelled,
                Ending::Error(error) => Finish::Error(error),
            },
            nan_seen: self.nan,
            timestamp_ns: self.timestamp_ns,
        }
    }

    /// Empties it in place: its three hundred bytes stay where they are, and most of them are as they should be.
    fn reset(&mut self, task: u64, now: u64) {
        let Delivery {
            task: of,
            tokens,
            bytes,
            detokenized,
            logprobs,
            top_ids,
            top_logprobs,
            top_k,
            prompt_logprobs,
            prompt_tokens,
            cached_tokens,
            stop_token,
            ending,
            nan,
            timestamp_ns,
            word,
        } = self;
        (*of, *timestamp_ns) = (task, now);
        (*detokenized, *word, *nan, *top_k) = (false, false, false, 0);
        (*prompt_tokens, *cached_tokens, *stop_token) = (None, None, None);
        *ending = Ending::No;
        [tokens, top_ids].into_iter().for_each(Vec::clear);
        [logprobs, top_logprobs, prompt_logprobs].into_iter().for_each(Vec::clear);
        bytes.clear();
    }
}

/// The deliveries of one step.
#[derive(Debug, Default)]
pub(crate) struct Tray {
    all: Vec<Delivery>,
    used: usize,
}

impl Tray {
    /// An empty delivery for `task`.
    pub(crate) fn lay(&mut self, task: u64, now: u64) -> &mut Delivery {
        let new = self.place();
        new.reset(task, now);
        new
    }

    /// A delivery of one token that has its bytes, and of nothing else.
    pub(crate) fn word(&mut self, task: u64, now: u64, id: u32, bytes: &[u8]) {
        let new = self.place();
        if new.word {
            (new.task, new.timestamp_ns) = (task, now);
            new.tokens.clear();
            new.bytes.clear();
        } else {
            new.reset(task, now);
            (new.word, new.detokenized) = (true, true);
        }
        new.tokens.push(id);
        new.bytes.extend_from_slice(bytes);
    }

    fn place(&mut self) -> &mut Delivery {
        if self.used == self.all.len() {
            self.all.push(Delivery::default());
        }
        self.used += 1;
        &mut self.all[self.used - 1]
    }

    /// Takes the last one back.
    pub(crate) fn take_back(&mut self) {
        self.used = self.used.saturating_sub(1);
    }

    /// What is to be pushed.
    pub(crate) fn filled(&self) -> &[Delivery] {
        &self.all[..self.used]
    }

    /// Forgets what was pushed.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }
}
