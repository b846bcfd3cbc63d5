//! Where guesses come from, if any are made; what the loop tells all of them.

use std::time::Duration;

use cascadia_batching::{Drafts, Id, Part, Scheduler};

use crate::costs::Costs;
use crate::draft::Draft;
use crate::speculate::Lookup;
use crate::worth::{Turn, Worth};

/// See the file.
pub(crate) enum Guesses {
    No,
    Lookup(Box<Lookup>),
    Draft(Box<Draft>),
}

impl Guesses {
    fn worth(&mut self) -> Option<&mut Worth> {
        match self {
            Guesses::No => None,
            Guesses::Lookup(lookup) => Some(&mut lookup.worth),
            Guesses::Draft(draft) => Some(&mut draft.worth),
        }
    }

    /// Most guesses for a generation in a step; none where none are made.
    pub(crate) fn most(&mut self) -> Option<usize> {
        self.worth().map(|worth| worth.most())
    }

    /// What the model's inferences cost.
    pub(crate) fn measured(&mut self, costs: Costs) {
        if let Some(worth) = self.worth() {
            worth.model = costs;
        }
    }

    /// Before a plan; gives the time that it took.
    pub(crate) fn ahead(&mut self, scheduler: &Scheduler) -> Duration {
        match self {
            Guesses::No => Duration::ZERO,
            Guesses::Lookup(lookup) => {
                lookup.ahead(scheduler);
                Duration::ZERO
            }
            Guesses::Draft(draft) => {
                draft.ahead(scheduler);
                draft.took()
            }
        }
    }

    /// After a plan.
    pub(crate) fn keep(&mut self, parts: &[Part]) {
        if let Guesses::Draft(draft) = self {
            draft.keep(parts);
        }
    }

    /// Of so many guesses so many held.
    pub(crate) fn learn(&mut self, task: u64, guesses: u32, held: u32) {
        match self {
            Guesses::No => {}
            Guesses::Lookup(lookup) => lookup.learn(task, guesses, held),
            Guesses::Draft(draft) => draft.learn(task, guesses, held),
        }
    }

    /// The generation is over.
    pub(crate) fn forget(&mut self, task: u64) {
        match self {
            Guesses::No => {}
            Guesses::Lookup(lookup) => lookup.forget(task),
            Guesses::Draft(draft) => draft.forget(task),
        }
    }

    /// A step was computed.
    pub(crate) fn settle(&mut self, turn: Turn) {
        match self {
            Guesses::No => {}
            Guesses::Lookup(lookup) => lookup.worth.settle(&turn, std::iter::empty()),
            Guesses::Draft(draft) => draft.settle(turn),
        }
    }
}

impl Drafts for Guesses {
    fn propose(&mut self, id: Id, tokens: &[u32], most: usize, out: &mut Vec<u32>) {
        match self {
            Guesses::No => {}
            Guesses::Lookup(lookup) => lookup.propose(id, tokens, most, out),
            Guesses::Draft(draft) => draft.propose(id, tokens, most, out),
        }
    }
}
