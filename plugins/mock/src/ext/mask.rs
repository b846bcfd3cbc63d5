//! `cascadia.token-mask/1`: a task whose tokens the host allows.
//!
//! The words of the script are what the engine would say. Of each token the mask decides: it is taken where it may come,
//! else the smallest token that may. Drafts are the words that come next; a chosen token can be taken back once, for show.

use std::collections::VecDeque;

use cascadia_plugin_api::sdk::{Error, MaskFiller, MaskRequest, MaskRow, Masks, Result, TokenMask};

use crate::engine::Mock;
use crate::script::Token;

/// What a masked task would say, and what the host has been told.
#[derive(Debug, Default)]
pub(crate) struct Masked {
    upcoming: VecDeque<Token>,
    drafts: usize,
    take_back: bool,
    ignore: bool,
    stops: Vec<u32>,
    // What the next request says.
    taken: Vec<u32>,
    rollback: u32,
    proposed: Vec<u32>,
    phase: Phase,
    /// What was chosen; the run writes it.
    pub(crate) chosen: Choice,
}

/// What comes of a row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Choice {
    pub(crate) tokens: Vec<Token>,
    /// The end of the words, and the host lets them end.
    pub(crate) ends: bool,
    pub(crate) error: Option<Error>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    /// The next choice is final, or will be taken back first.
    #[default]
    Choose,
    /// A choice was told; the next request tells that it is withdrawn.
    Withdraw,
    /// It was withdrawn; the next choice is final.
    Again,
}

impl Masked {
    /// A task that would say `words`, asks for `drafts` tokens ahead, and takes each choice back once if told so.
    pub(crate) fn new(
        words: Vec<Token>,
        drafts: usize,
        take_back: bool,
        ignore: bool,
        stops: Vec<u32>,
    ) -> Masked {
        Masked { upcoming: words.into(), drafts, take_back, ignore, stops, ..Masked::default() }
    }

    /// What to ask for `task`.
    pub(crate) fn request(&mut self, task: u64) -> MaskRequest<'_> {
        self.proposed = self.upcoming.iter().take(self.drafts).map(|token| token.id).collect();
        MaskRequest { task, taken: &self.taken, drafts: &self.proposed, rollback: self.rollback }
    }

    /// Rows that the request takes.
    pub(crate) fn rows(&self) -> usize {
        1 + self.proposed.len()
    }

    /// Takes the answer: rows from `first` on.
    pub(crate) fn choose(&mut self, masks: &Masks, first: usize) {
        self.taken.clear();
        self.rollback = 0;
        self.chosen = Choice::default();
        if self.phase == Phase::Withdraw {
            self.phase = Phase::Again;
            self.rollback = 1;
            return;
        }
        let choice = self.pick(|row| masks.row(first + row));
        if self.take_back && self.phase == Phase::Choose && choice.tokens.len() == 1 {
            self.taken = vec![choice.tokens[0].id];
            self.phase = Phase::Withdraw;
            return;
        }
        self.phase = Phase::Choose;
        self.taken = choice.tokens.iter().map(|token| token.id).collect();
        self.upcoming.drain(..choice.tokens.len().min(self.upcoming.len()));
        self.chosen = choice;
    }

    /// The host gave no answer.
    pub(crate) fn fail(&mut self, error: Error) {
        self.chosen = Choice { error: Some(error), ..Choice::default() };
    }

    fn pick<'a>(&self, row: impl Fn(usize) -> MaskRow<'a>) -> Choice {
        let mut choice = Choice::default();
        // One word after another, as long as it is the draft whose row was asked for.
        for at in 0..=self.proposed.len() {
            let mask = if self.ignore { MaskRow::All } else { row(at) };
            let word = self.upcoming.get(at);
            match (mask, word) {
                (MaskRow::Unreached, _) => break,
                (MaskRow::DeadEnd, _) if at > 0 => break,
                (MaskRow::DeadEnd, _) => {
                    choice.error = Some(Error::config("no token of the vocabulary goes on from here"));
                    break;
                }
                (mask, Some(word)) if mask.allows(word.id) => choice.tokens.push(word.clone()),
                (mask, None) if self.may_end(mask) => {
                    choice.ends = at == 0;
                    break;
                }
                (mask, _) => {
                    choice.tokens.extend(mask.first().map(|id| Token { id, bytes: None }));
                    break;
                }
            }
        }
        choice
    }

    fn may_end(&self, mask: MaskRow<'_>) -> bool {
        self.stops.is_empty() || self.stops.iter().any(|stop| mask.allows(*stop))
    }
}

impl TokenMask for Mock {
    fn attach(&self, filler: MaskFiller) -> Result<()> {
        self.filler.set(filler).map_err(|_| Error::config("there is a filler already"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(drafts: usize, take_back: bool) -> Masked {
        let words = ["a", "b", "c"].map(|text| Token { id: u32::from(text.as_bytes()[0]), bytes: None });
        Masked::new(words.into(), drafts, take_back, false, vec![2])
    }

    fn ids(choice: &Choice) -> Vec<u32> {
        choice.tokens.iter().map(|token| token.id).collect()
    }

    #[test]
    fn words_are_taken_as_far_as_they_may_come() {
        let mut task = masked(2, false);
        assert_eq!(task.request(1).drafts, [97, 98]);
        let only_b = [0, 0, 0, 1 << 2];
        let rows = [MaskRow::All, MaskRow::Some(&only_b), MaskRow::All];
        assert_eq!(ids(&task.pick(|at| rows[at])), [97, 98, 99]);
        let rows = [MaskRow::Some(&only_b), MaskRow::Unreached, MaskRow::Unreached];
        assert_eq!(ids(&task.pick(|at| rows[at])), [98]);
        let rows = [MaskRow::All, MaskRow::DeadEnd, MaskRow::Unreached];
        assert_eq!(ids(&task.pick(|at| rows[at])), [97]);
        assert!(task.pick(|_| MaskRow::DeadEnd).error.is_some());
    }

    #[test]
    fn words_end_only_where_a_stop_token_may_come() {
        let task = Masked { stops: vec![2], ..Masked::default() };
        assert!(task.pick(|_| MaskRow::All).ends);
        assert!(task.pick(|_| MaskRow::Some(&[1 << 2])).ends);
        let forced = task.pick(|_| MaskRow::Some(&[1 << 5]));
        assert_eq!((forced.ends, ids(&forced)), (false, vec![5]));
    }

    #[test]
    fn a_choice_can_be_taken_back_once() {
        let (mut task, all) = (masked(0, true), Masks::default());
        let mut told = Vec::new();
        let mut said = Vec::new();
        for _ in 0..6 {
            let request = task.request(1);
            told.push((request.rollback, request.taken.to_vec()));
            task.choose(&all, 0);
            said.extend(ids(&task.chosen));
        }
        let none = Vec::new;
        let expected = [(0, none()), (0, vec![97]), (1, none()), (0, vec![97]), (0, vec![98]), (1, none())];
        assert_eq!(told, expected);
        assert_eq!(said, [97, 98]);
    }
}
