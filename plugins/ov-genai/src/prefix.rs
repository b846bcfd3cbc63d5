//! What the library's prefix cache holds, counted by its rules, as it does not tell: a generation keeps the whole blocks
//! of its tokens, a later one takes those that it begins with, and the longest untouched go first when room is needed.
//!
//! Measured on 2026.4.1 by counting steps of one token. The library now and then takes a part of a block too, and lets
//! generations that run beside each other share; neither is counted, so a number is the least that was taken.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Tokens of a block on OpenVINO's CPU device.
pub(crate) const BLOCK: usize = 32;

/// Blocks by the text up to their end.
#[derive(Debug, Default)]
pub(crate) struct Prefix {
    known: HashMap<u64, Known>,
    /// Those that no generation uses, longest untouched first.
    idle: BTreeMap<u64, u64>,
    clock: u64,
}

#[derive(Debug)]
struct Known {
    touched: u64,
    users: u32,
}

/// The blocks that a running generation took.
#[derive(Debug, Default)]
pub(crate) struct Taken(Vec<u64>);

impl Prefix {
    /// A generation with this prompt begins; answers the tokens that it need not compute. At least one is computed.
    pub(crate) fn begin(&mut self, prompt: &[u32]) -> (usize, Taken) {
        let mut taken = Vec::new();
        for key in keys(prompt) {
            let Some(known) = self.known.get_mut(&key) else { break };
            self.clock += 1;
            self.idle.remove(&known.touched);
            (known.touched, known.users) = (self.clock, known.users + 1);
            taken.push(key);
        }
        let tokens = (taken.len() * BLOCK).min(prompt.len().saturating_sub(1));
        (tokens, Taken(taken))
    }

    /// It ended; `computed` are the tokens that went through the model.
    pub(crate) fn end(&mut self, computed: &[u32], taken: Taken) {
        for key in &taken.0 {
            if let Some(known) = self.known.get_mut(key) {
                known.users = known.users.saturating_sub(1);
                if known.users == 0 {
                    self.idle.insert(known.touched, *key);
                }
            }
        }
        // The block that is not full takes room as well; nothing begins with it.
        let rest = computed.chunks(BLOCK).next_back().filter(|part| part.len() < BLOCK);
        let partial = rest.map(|_| fold(computed.len() as u64, computed));
        // What was not taken was computed, and stands in the place of what was known of it.
        for key in keys(computed).skip(taken.0.len()).chain(partial) {
            self.clock += 1;
            let known = self.known.entry(key).or_insert(Known { touched: self.clock, users: 0 });
            if known.users == 0 {
                self.idle.remove(&known.touched);
                known.touched = self.clock;
                self.idle.insert(self.clock, key);
            }
        }
    }

    /// Only so many blocks are not in use now.
    pub(crate) fn fit(&mut self, free: usize) {
        while self.idle.len() > free {
            let Some((_, key)) = self.idle.pop_first() else { return };
            self.known.remove(&key);
        }
    }

    /// Tokens kept for later generations.
    pub(crate) fn tokens(&self) -> u64 {
        (self.idle.len() * BLOCK) as u64
    }
}

/// A key for each whole block: of all tokens up to its end.
fn keys(tokens: &[u32]) -> impl Iterator<Item = u64> {
    tokens.chunks_exact(BLOCK).scan(0, |before, block| {
        *before = fold(*before, block);
        Some(*before)
    })
}

fn fold(before: u64, block: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (before, block).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seed: u32, tokens: u32) -> Vec<u32> {
        (0..tokens).map(|n| seed * 1000 + n).collect()
    }

    fn run(prefix: &mut Prefix, prompt: &[u32]) -> usize {
        let (cached, taken) = prefix.begin(prompt);
        prefix.end(prompt, taken);
        cached
    }

    #[test]
    fn whole_blocks_of_an_earlier_text_are_cached_and_one_token_is_computed() {
        let mut prefix = Prefix::default();
        let first = text(1, 70);
        assert_eq!(run(&mut prefix, &first), 0);
        assert_eq!(run(&mut prefix, &first), 64);
        assert_eq!(run(&mut prefix, &first[..64]), 63);
        assert_eq!(run(&mut prefix, &first[..40]), 32);
        assert_eq!(run(&mut prefix, &first[..31]), 0);
        let other = [&first[..33], &text(2, 40)[..]].concat();
        assert_eq!(run(&mut prefix, &other), 32);
    }

    #[test]
    fn the_longest_untouched_go_first_and_none_that_runs() {
        let mut prefix = Prefix::default();
        let texts: Vec<_> = (0..4).map(|n| text(n, 64)).collect();
        for each in &texts[..3] {
            run(&mut prefix, each);
        }
        let (_, taken) = prefix.begin(&texts[0]);
        prefix.fit(2);
        assert_eq!(prefix.tokens(), 64);
        assert_eq!(prefix.begin(&texts[1]).0, 0, "the second was untouched longest");
        prefix.end(&texts[0], taken);
        prefix.fit(2);
        assert_eq!(run(&mut prefix, &texts[0]), 63, "touched last");
        assert_eq!(prefix.begin(&texts[2]).0, 0);
        prefix.fit(0);
        assert_eq!((prefix.tokens(), prefix.begin(&texts[0]).0), (0, 0));
    }
}
