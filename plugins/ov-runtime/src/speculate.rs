//! Guesses about the next tokens by looking into the text so far: what followed the last tokens where they came before.
//!
//! A guess costs a row of the model's step and nothing else; `worth` says how many that pays for. Knows nothing of the model.

use std::collections::HashMap;

use cascadia_batching::{Drafts, Id};

use crate::worth::{Habit, Worth};

/// Positions that are looked through, from the end: a bound on the time of a plan.
const REACH: usize = 16_384;

/// See the file.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// Longest run of tokens that is looked for.
    ngram: usize,
    habits: HashMap<u64, Habit>,
    pub(crate) worth: Worth,
    /// Whether anything is guessed in this turn.
    open: bool,
}

impl Lookup {
    pub(crate) fn new(ngram: usize, worth: Worth) -> Lookup {
        Lookup { ngram: ngram.max(1), habits: HashMap::new(), worth, open: true }
    }

    /// A turn begins.
    pub(crate) fn ahead(&mut self) {
        self.open = self.worth.opens();
    }

    /// Of so many guesses so many held.
    pub(crate) fn learn(&mut self, task: u64, guesses: u32, held: u32) {
        if let Some(habit) = self.habits.get_mut(&task) {
            self.worth.learn(habit, guesses, held);
        }
    }

    /// The generation is over.
    pub(crate) fn forget(&mut self, task: u64) {
        if let Some(habit) = self.habits.remove(&task) {
            self.worth.end(&habit);
        }
    }
}

impl Drafts for Lookup {
    fn propose(&mut self, id: Id, tokens: &[u32], most: usize, decoding: usize, out: &mut Vec<u32>) {
        if !self.open {
            return;
        }
        let habit = self.habits.entry(id.0).or_insert_with(|| self.worth.habit());
        let count = self.worth.count(habit, decoding, 0, most);
        if count > 0 {
            out.extend(followed(tokens, self.ngram).iter().take(count));
        }
    }
}

/// What followed the last tokens where they came before: the longest run of at most `ngram` that did, the last time.
fn followed(tokens: &[u32], ngram: usize) -> &[u32] {
    let text = &tokens[tokens.len().saturating_sub(REACH)..];
    let Some((&last, before)) = text.split_last() else { return &[] };
    let (mut best, mut longest) = (&text[..0], 0);
    for at in (0..before.len()).rev().filter(|&at| before[at] == last) {
        // How many tokens up to `at` are those up to the end.
        let same = 1 + before[..at]
            .iter()
            .rev()
            .zip(before.iter().rev())
            .take(ngram - 1)
            .take_while(|(a, b)| a == b)
            .count();
        if same > longest {
            (best, longest) = (&text[at + 1..], same);
            if same == ngram {
                break;
            }
        }
    }
    // A single token says little.
    if longest < ngram.min(2) { &[] } else { best }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worth::Policy;

    fn guesses(lookup: &mut Lookup, tokens: &[u32], most: usize, decoding: usize) -> Vec<u32> {
        let mut out = Vec::new();
        lookup.propose(Id(1), tokens, most, decoding, &mut out);
        out
    }

    #[test]
    fn the_longest_run_that_came_before_says_what_comes() {
        assert_eq!(followed(&[1, 2, 3, 4, 9, 2, 3], 3), [4, 9, 2, 3]);
        // Of equal ones the last.
        assert_eq!(followed(&[2, 3, 4, 2, 3, 5, 2, 3], 2), [5, 2, 3]);
        // The longer one wins over a later one.
        assert_eq!(followed(&[1, 2, 3, 4, 9, 2, 3, 7, 1, 2, 3], 3)[0], 4);
        assert_eq!(followed(&[7, 7, 7, 7], 3), [7]);
        for none in [&[] as &[u32], &[1], &[1, 2], &[3, 1, 2, 1]] {
            assert_eq!(followed(none, 3), [] as [u32; 0], "{none:?}");
        }
    }

    #[test]
    fn no_more_is_guessed_than_there_is_room_for_and_nothing_of_a_generation_is_kept() {
        let text = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3];
        let mut lookup = Lookup::new(3, Worth::new(Policy::Always, 4, false));
        assert_eq!(guesses(&mut lookup, &text, 9, 1), [4, 5, 6, 7]);
        assert_eq!(guesses(&mut lookup, &text, 3, 1), [4, 5, 6]);
        assert_eq!(lookup.habits.len(), 1);
        lookup.forget(1);
        assert!(lookup.habits.is_empty());
    }
}
