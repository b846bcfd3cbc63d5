//! Guesses about the next tokens by looking into the text so far: what followed the last tokens where they came before.
//!
//! A guess costs a row. How many are worth it hangs on the load (measured on two cores: five rows cost a lone generation as much
//! as two tokens, sixteen of them nearly four) and on how often guesses hold. Knows nothing of the model.

use std::collections::HashMap;

use cascadia_batching::{Drafts, Id};

/// Share of guesses that must hold for the full number of them.
const GOOD: f32 = 0.5;
/// Below this share nothing is guessed for a while.
const POOR: f32 = 0.2;
/// Turns without guesses then.
const REST: u32 = 16;
/// Weight of the last step in the share.
const WEIGHT: f32 = 0.25;
/// Positions that are looked through, from the end: a bound on the time of a plan.
const REACH: usize = 16_384;

/// See the file.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// Most guesses in a step.
    most: usize,
    /// Longest run of tokens that is looked for.
    ngram: usize,
    habits: HashMap<u64, Habit>,
}

/// How guesses went for one generation.
#[derive(Debug, Clone, Copy)]
struct Habit {
    share: f32,
    rest: u32,
}

impl Lookup {
    pub(crate) fn new(most: usize, ngram: usize) -> Lookup {
        Lookup { most, ngram: ngram.max(1), habits: HashMap::new() }
    }

    /// Of so many guesses so many held.
    pub(crate) fn learn(&mut self, task: u64, guessed: u32, held: u32) {
        if guessed == 0 {
            return;
        }
        let habit = self.habits.entry(task).or_insert(Habit { share: GOOD, rest: 0 });
        habit.share += WEIGHT * (held as f32 / guessed as f32 - habit.share);
        if habit.share < POOR {
            // Then one more try with few.
            *habit = Habit { share: POOR, rest: REST };
        }
    }

    /// The generation is over.
    pub(crate) fn forget(&mut self, task: u64) {
        self.habits.remove(&task);
    }

    /// Guesses that are worth their rows for a generation among so many.
    fn worth(&mut self, task: u64, decoding: usize) -> usize {
        let most = match decoding {
            0..=2 => self.most,
            3..=4 => self.most.min(2),
            5..=7 => self.most.min(1),
            _ => 0,
        };
        let Some(habit) = self.habits.get_mut(&task) else { return most };
        if habit.rest > 0 {
            habit.rest -= 1;
            return 0;
        }
        if habit.share < GOOD { most.min(1) } else { most }
    }
}

impl Drafts for Lookup {
    fn propose(&mut self, id: Id, tokens: &[u32], most: usize, decoding: usize, out: &mut Vec<u32>) {
        let count = self.worth(id.0, decoding).min(most);
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
    fn there_are_fewer_guesses_beside_others_and_none_in_a_crowd() {
        let text = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3];
        let mut lookup = Lookup::new(4, 3);
        let at = |lookup: &mut Lookup, decoding| guesses(lookup, &text, 9, decoding).len();
        let counts: Vec<usize> = [1, 2, 3, 4, 5, 7, 8, 100].map(|n| at(&mut lookup, n)).into();
        assert_eq!(counts, [4, 4, 2, 2, 1, 1, 0, 0]);
        assert_eq!(guesses(&mut lookup, &text, 3, 1), [4, 5, 6], "no more than there is room for");
    }

    #[test]
    fn guesses_that_do_not_hold_become_fewer_and_then_rest() {
        let text = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3];
        let mut lookup = Lookup::new(4, 3);
        lookup.learn(1, 4, 0);
        assert_eq!(guesses(&mut lookup, &text, 9, 1).len(), 1);
        for _ in 0..8 {
            lookup.learn(1, 1, 0);
        }
        let resting: Vec<usize> = (0..=REST).map(|_| guesses(&mut lookup, &text, 9, 1).len()).collect();
        assert_eq!(resting[REST as usize], 1, "then once more");
        assert!(resting[..REST as usize].iter().all(|&n| n == 0), "{resting:?}");
        for _ in 0..8 {
            lookup.learn(1, 1, 1);
        }
        assert_eq!(guesses(&mut lookup, &text, 9, 1).len(), 4, "they hold again");
        lookup.forget(1);
        assert!(lookup.habits.is_empty());
    }
}
