//! A prefix cache that only counts: which part of a prompt an earlier one has begun with.

use std::collections::VecDeque;

use crate::ext::kv_log::SharedLog;

/// A prompt that is kept, and what it may be shared with.
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    salt: String,
    adapter: String,
    prompt: Vec<u32>,
}

/// The last prompts, newest at the back.
#[derive(Debug)]
pub(crate) struct Cache {
    prompts: VecDeque<Kept>,
    most: usize,
    tokens: u64,
    log: SharedLog,
}

impl Cache {
    /// A cache of `most` prompts; 0 = off. What it holds is written into `log`.
    pub(crate) fn new(most: usize, log: SharedLog) -> Cache {
        Cache { prompts: VecDeque::new(), most, tokens: 0, log }
    }

    /// Tokens held.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// How many of the prompt's tokens are known under this salt and adapter, all but the last at most: that one must be
    /// computed. Then keeps the prompt. `None` when the cache is off.
    pub(crate) fn take(&mut self, salt: &str, adapter: &str, prompt: &[u32], now: u64) -> Option<u32> {
        if self.most == 0 {
            return None;
        }
        let shared = |known: &[u32]| known.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let alike = |kept: &&Kept| kept.salt == salt && kept.adapter == adapter;
        let known = self.prompts.iter().filter(alike).map(|kept| shared(&kept.prompt)).max();
        let known = known.unwrap_or(0).min(prompt.len().saturating_sub(1));
        let new = Kept { salt: salt.to_owned(), adapter: adapter.to_owned(), prompt: prompt.to_vec() };
        let mut log = self.log.lock();
        match self.prompts.iter().position(|kept| *kept == new) {
            Some(at) => drop(self.prompts.remove(at)),
            None => log.keep(salt, adapter, prompt, now),
        }
        self.prompts.push_back(new);
        if self.prompts.len() > self.most
            && let Some(old) = self.prompts.pop_front()
        {
            log.release(&old.salt, &old.adapter, &old.prompt, now);
        }
        self.tokens = self.prompts.iter().map(|kept| kept.prompt.len() as u64).sum();
        Some(u32::try_from(known).unwrap_or(u32::MAX))
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self, now: u64) {
        self.prompts.clear();
        self.tokens = 0;
        self.log.lock().clear(now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::ext::kv_log::Log;
    use crate::options::Options;

    fn cache(most: usize) -> Cache {
        Cache::new(most, Arc::new(Mutex::new(Log::new(&Options::default()))))
    }

    #[test]
    fn a_later_prompt_is_known_as_far_as_it_is_the_same() {
        let mut cache = cache(2);
        assert_eq!(cache.take("", "", &[1, 2, 3], 1), Some(0));
        assert_eq!(cache.take("", "", &[1, 2, 3], 1), Some(2));
        assert_eq!(cache.take("", "", &[1, 2, 9], 1), Some(2));
        assert_eq!(cache.take("salt", "", &[1, 2, 9], 1), Some(0));
        assert_eq!(cache.tokens(), 6, "the oldest of three is gone");
        assert_eq!(cache.take("salt", "upper", &[1, 2, 9], 1), Some(0));
        cache.clear(1);
        assert_eq!((cache.tokens(), cache.take("salt", "upper", &[1], 1)), (0, Some(0)));
    }

    #[test]
    fn a_cache_of_no_prompts_is_off() {
        assert_eq!(cache(0).take("", "", &[1], 1), None);
    }
}
