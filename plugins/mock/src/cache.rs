//! A prefix cache that only counts: which part of a prompt an earlier one has begun with.

use std::collections::VecDeque;

/// The last prompts, newest at the back.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    prompts: VecDeque<(String, Vec<u32>)>,
    most: usize,
    tokens: u64,
}

impl Cache {
    /// A cache of `most` prompts; 0 = off.
    pub(crate) fn new(most: usize) -> Cache {
        Cache { most, ..Cache::default() }
    }

    /// Tokens held.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// How many of the prompt's tokens are known under this salt, all but the last at most: that one must be computed.
    /// Then keeps the prompt. `None` when the cache is off.
    pub(crate) fn take(&mut self, salt: &str, prompt: &[u32]) -> Option<u32> {
        if self.most == 0 {
            return None;
        }
        let shared = |known: &[u32]| known.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let known = self.prompts.iter().filter(|(s, _)| s == salt).map(|(_, p)| shared(p)).max();
        let known = known.unwrap_or(0).min(prompt.len().saturating_sub(1));
        self.prompts.retain(|(s, p)| s != salt || p != prompt);
        self.prompts.push_back((salt.to_owned(), prompt.to_vec()));
        if self.prompts.len() > self.most {
            self.prompts.pop_front();
        }
        self.tokens = self.prompts.iter().map(|(_, p)| p.len() as u64).sum();
        Some(u32::try_from(known).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_prompt_is_known_as_far_as_it_is_the_same() {
        let mut cache = Cache::new(2);
        assert_eq!(cache.take("", &[1, 2, 3]), Some(0));
        assert_eq!(cache.take("", &[1, 2, 3]), Some(2));
        assert_eq!(cache.take("", &[1, 2, 9]), Some(2));
        assert_eq!(cache.take("salt", &[1, 2, 9]), Some(0));
        assert_eq!(cache.tokens(), 6, "the oldest of three is gone");
        assert_eq!(Cache::new(0).take("", &[1]), None);
    }
}
