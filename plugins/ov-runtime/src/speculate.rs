//! Guesses about the next tokens by looking into the text so far: what followed the last tokens where they came before.
//!
//! A guess costs a row of the model's step and nothing else; `worth` says how many that pays for. What comes next is looked up
//! in every turn, also where none of it is put before the model: the token that the model says next tells whether it was right, so that
//! the chance of a guess is known before the first one is paid for. Knows nothing of the model.

use std::collections::HashMap;

use cascadia_batching::{Decoding, Drafts, Id, Scheduler};

use crate::worth::{Habit, Offer, Worth};

/// Positions that are looked through, from the end: a bound on the time of a plan.
const REACH: usize = 16_384;

/// See the file.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// Longest run of tokens that is looked for.
    ngram: usize,
    known: HashMap<u64, Known>,
    pub(crate) worth: Worth,
    /// Of a turn, kept for their room.
    ids: Vec<u64>,
    offers: Vec<Offer>,
}

/// A generation as the lookup knows it.
#[derive(Debug)]
struct Known {
    habit: Habit,
    /// What may come next: where, and which tokens.
    at: usize,
    next: Vec<u32>,
    /// So many of these are guessed in this turn.
    count: usize,
}

impl Lookup {
    pub(crate) fn new(ngram: usize, worth: Worth) -> Lookup {
        let (known, ids, offers) = (HashMap::new(), Vec::new(), Vec::new());
        Lookup { ngram: ngram.max(1), known, worth, ids, offers }
    }

    /// A turn begins: looks up what may come, and shares out how much of it is guessed.
    pub(crate) fn ahead(&mut self, scheduler: &Scheduler) {
        let open = self.worth.opens();
        self.ids.clear();
        self.offers.clear();
        for Decoding { id, tokens, room } in scheduler.decoding() {
            let known = self.known.entry(id.0).or_insert_with(|| Known {
                habit: self.worth.habit(),
                at: 0,
                next: Vec::new(),
                count: 0,
            });
            if let (Some(foretold), Some(came)) = (known.next.first(), tokens.get(known.at)) {
                self.worth.learn(&mut known.habit, 1, (foretold == came).into());
            }
            known.at = tokens.len();
            known.next.clear();
            known.next.extend(followed(tokens, self.ngram).iter().take(self.worth.most()));
            known.count = 0;
            self.ids.push(id.0);
            self.offers.push(Offer { habit: known.habit, room, most: known.next.len(), lag: 0, count: 0 });
        }
        if !open {
            return;
        }
        self.worth.allot(&mut self.offers, self.ids.len());
        for (id, offer) in self.ids.iter().zip(&self.offers) {
            if let Some(known) = self.known.get_mut(id) {
                known.count = offer.count;
            }
        }
    }

    /// Of so many guesses so many held.
    pub(crate) fn learn(&mut self, task: u64, guesses: u32, held: u32) {
        let Some(known) = self.known.get_mut(&task).filter(|_| guesses > 0) else { return };
        self.worth.learn(&mut known.habit, guesses, held);
        // It has been told.
        known.next.clear();
    }

    /// The generation is over.
    pub(crate) fn forget(&mut self, task: u64) {
        if let Some(known) = self.known.remove(&task) {
            self.worth.end(&known.habit);
        }
    }
}

impl Drafts for Lookup {
    fn propose(&mut self, id: Id, tokens: &[u32], most: usize, out: &mut Vec<u32>) {
        if let Some(known) = self.known.get(&id.0).filter(|known| known.at == tokens.len()) {
            out.extend(known.next.iter().take(known.count.min(most)));
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
    use std::sync::Arc;
    use std::time::Duration;

    use cascadia_batching::{Entry, Limits, NoDrafts, Outcome};

    use super::*;
    use crate::worth::Policy;

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

    /// One generation with this text that decodes, and room for so many tokens.
    fn decoding(text: &[u32], room: usize) -> Scheduler {
        let mut scheduler = Scheduler::new(Limits { blocks: 100, ..Limits::default() }).unwrap();
        let tokens = text[..text.len() - 1].to_vec();
        let entry = Entry {
            id: Id(1),
            generated_from: tokens.len(),
            tokens,
            most: text.len() + room,
            scope: Arc::default(),
            priority: 0,
            deadline_ns: 0,
            score: false,
        };
        scheduler.add(entry, 0).unwrap();
        scheduler.plan(0, &mut NoDrafts).unwrap();
        scheduler.commit(&[Outcome::Token { token: text[text.len() - 1], accepted: 0 }]).unwrap();
        scheduler
    }

    fn guesses(lookup: &mut Lookup, text: &[u32], room: usize) -> Vec<u32> {
        let mut out = Vec::new();
        lookup.ahead(&decoding(text, room));
        lookup.propose(Id(1), text, room, &mut out);
        out
    }

    #[test]
    fn no_more_is_guessed_than_there_is_room_for_and_nothing_of_a_generation_is_kept() {
        let text = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3];
        let mut lookup = Lookup::new(3, Worth::new(Policy::Always, 4, false));
        assert_eq!(guesses(&mut lookup, &text, 10), [4, 5, 6, 7]);
        assert_eq!(guesses(&mut lookup, &text, 4), [4, 5, 6]);
        assert_eq!(lookup.known.len(), 1);
        lookup.forget(1);
        assert!(lookup.known.is_empty());
    }

    #[test]
    fn what_would_have_held_tells_the_chance_before_anything_is_guessed() {
        // A row more is as dear as a token, so nothing is ever guessed.
        let mut worth = Worth::new(Policy::Adaptive, 4, false);
        for rows in 1..9 {
            worth.model.learn(rows, Duration::from_millis(10 * rows as u64));
        }
        let mut lookup = Lookup::new(3, worth);
        let round: Vec<u32> = (1..5).cycle().take(40).collect();
        let habit = |lookup: &Lookup| lookup.known[&1].habit;
        let mut before = Vec::new();
        for length in 8..30 {
            assert_eq!(guesses(&mut lookup, &round[..length], 50), [0; 0]);
            before.push(habit(&lookup));
        }
        let (first, last) = (before[0], before[before.len() - 1]);
        assert!(last.share > 0.9 && first.share < 0.6, "{before:?}");
        // Another token than the one foretold, and the same text again says nothing new.
        let odd = [&round[..29], &[77]].concat();
        guesses(&mut lookup, &odd, 50);
        assert!(habit(&lookup).share < last.share);
        let after = habit(&lookup);
        guesses(&mut lookup, &odd, 50);
        assert_eq!(habit(&lookup), after);
    }

    #[test]
    fn what_a_step_checked_is_counted_once() {
        let text = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3];
        let mut lookup = Lookup::new(3, Worth::new(Policy::Always, 4, false));
        assert_eq!(guesses(&mut lookup, &text, 10), [4, 5, 6, 7]);
        lookup.learn(1, 4, 2);
        let after = lookup.known[&1].habit;
        // The next turn sees the tokens that held, and one more.
        guesses(&mut lookup, &[&text[..], &[4, 5, 99]].concat(), 10);
        assert_eq!(lookup.known[&1].habit, after);
        // Where the scheduler had no room for them, what came tells.
        assert_eq!(guesses(&mut lookup, &text, 10), [4, 5, 6, 7]);
        lookup.learn(1, 0, 0);
        guesses(&mut lookup, &[&text[..], &[4]].concat(), 10);
        assert!(lookup.known[&1].habit.share > after.share);
    }
}
