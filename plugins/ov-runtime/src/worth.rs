//! How many guesses are worth their cost, for the generations that decode together.
//!
//! What a step costs by its rows, and what guessing costs, is measured while they run, so that load, threads and machine
//! are in them; for each generation a chance is kept that a guess holds. `split` shares out what makes the wait for a token least.
//!
//! What must hold: over time, guesses cost at most [`INCOME`] of the time more than they save. A purse sees to it: it
//! gets that share of all time and what guesses save, it pays what they cost, and once it is empty nothing is guessed until it has
//! filled again. Knows neither models nor texts.

use std::time::Duration;

use crate::costs::{Costs, OUTLIER};

mod split;

use split::{Prices, Side, split};

/// Chance that a guess of a draft model holds, as long as nobody knows; only a try tells.
const UNKNOWN: f32 = 0.7;
/// The same of a guess that costs nothing to make, and whose chance shows without a try.
const UNSEEN: f32 = 0.5;
/// Weight of one guess in a chance.
const WEIGHT: f32 = 0.125;
/// What is thought before the first guess that costs nothing weighs as much as so many guesses.
const BEFORE: f32 = 2.0;
/// A turn in which a draft model is not asked moves a chance so far back to what nobody knows: in the end it is tried again.
const FORGETS: f32 = 1.0 / 256.0;
/// Share of the time that may be lost.
const INCOME: f64 = 0.01;
/// Most in the purse, and what it begins with, in plain steps of one generation: for guesses of a draft model, which must be tried
/// and whose texts must be read first, and for those that cost nothing to make.
const FULL: (f64, f64) = (32.0, 8.0);
/// Share by which the wait of those who guess must become shorter before guessing begins; it goes on until nothing is saved.
const BEGIN: f64 = 0.05;
/// So many turns with guesses, and one without, which tells what a plain step costs now.
const PLAIN: u32 = 32;
/// Tokens for which reading a text into the draft model is thought to serve, where its generation may have so many.
const SERVES: usize = 128;

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// What was measured.
    Adaptive,
    /// As many as there is room for, whatever they cost.
    Always,
}

/// See the file.
#[derive(Debug)]
pub(crate) struct Worth {
    policy: Policy,
    most: usize,
    /// Of the model.
    pub(crate) model: Costs,
    /// Of one guess for each; nothing where guesses are free.
    pub(crate) draft: Option<Costs>,
    /// Seconds.
    purse: f64,
    /// Of these, what was spent on reading texts and is neither saved nor written off yet.
    lent: f64,
    empty: bool,
    /// Whether anything was guessed in the last turn that was open for it.
    on: bool,
    /// Turns with guesses since the last one without.
    guessed: u32,
    /// Chances of generations that ended, for those that begin.
    usual: f32,
}

/// How guesses went for one generation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Habit {
    /// Chance that a guess holds.
    pub(crate) share: f32,
    /// Guesses that told it, up to those whose weight no longer changes.
    seen: u8,
    /// Seconds that were spent on reading its text, and not yet saved.
    debt: f64,
}

/// What a generation could take in a turn, and how much it gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Offer {
    pub(crate) habit: Habit,
    /// Tokens that may still come.
    pub(crate) room: usize,
    /// Guesses that there are.
    pub(crate) most: usize,
    /// Tokens of its text that the draft model has yet to read beyond what every turn brings.
    pub(crate) lag: usize,
    /// What [`Worth::allot`] says.
    pub(crate) count: usize,
}

/// What a turn cost and gave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Generations that decoded.
    pub(crate) decoding: usize,
    /// Rows of the model, guesses among them, guesses that held.
    pub(crate) rows: usize,
    pub(crate) guesses: usize,
    pub(crate) held: usize,
    /// Of the model.
    pub(crate) infer: Duration,
    /// Of guessing, without what [`Worth::lend`] was told.
    pub(crate) draft: Duration,
}

impl Worth {
    /// For at most so many guesses. `draft` says whether guesses cost anything.
    pub(crate) fn new(policy: Policy, most: usize, draft: bool) -> Worth {
        Worth {
            policy,
            most,
            model: Costs::default(),
            draft: draft.then(Costs::default),
            purse: f64::INFINITY,
            lent: 0.0,
            empty: false,
            on: false,
            guessed: 0,
            usual: if draft { UNKNOWN } else { UNSEEN },
        }
    }

    /// Most guesses for one generation.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// One that begins.
    pub(crate) fn habit(&self) -> Habit {
        Habit { share: self.usual, seen: 0, debt: 0.0 }
    }

    /// Whether anything may be guessed in the turn that comes.
    pub(crate) fn opens(&mut self) -> bool {
        if self.policy == Policy::Always {
            return true;
        }
        let full = self.full();
        self.purse = self.purse.min(full);
        self.empty = self.purse < 0.0 || (self.empty && self.purse < full / 2.0);
        if self.guessed >= PLAIN {
            self.guessed = 0;
            return false;
        }
        !self.empty
    }

    /// Most seconds in the purse; a model whose steps were never measured has fast ones.
    fn full(&self) -> f64 {
        let steps = if self.draft.is_some() { FULL.0 } else { FULL.1 };
        steps * self.model.of(1).unwrap_or(0.001)
    }

    /// Shares guesses out among those of `decoding` generations that could take some.
    pub(crate) fn allot(&mut self, offers: &mut [Offer], decoding: usize) {
        for offer in offers.iter_mut() {
            offer.most = offer.most.min(self.most).min(offer.room);
            offer.count = offer.most;
        }
        if self.policy == Policy::Always {
            return;
        }
        let gains = self.split(offers, decoding, |_| true);
        let mut reads = 0;
        let mut pays = |offer: &Offer, gain: f64| {
            let after = reads + offer.lag;
            let reading = self.draft.as_ref().and_then(|draft| draft.of(after)).unwrap_or(0.0);
            let pays = gain * offer.room.min(SERVES) as f64 > reading && reading <= self.purse - self.lent;
            reads = if pays { after } else { reads };
            pays
        };
        // Whether what it brings pays for the reading of its text; what others read in this turn is not lent yet.
        let takes: Vec<bool> = offers
            .iter()
            .zip(gains)
            .map(|(offer, gain)| offer.count == 0 || offer.lag == 0 || pays(offer, gain))
            .collect();
        if takes.contains(&false) {
            self.split(offers, decoding, |at| takes[at]);
        }
        self.on = offers.iter().any(|offer| offer.count > 0);
        if self.draft.is_some() {
            if !self.on {
                // Else those that begin would never be tried again.
                self.usual += FORGETS * (UNKNOWN - self.usual);
            }
            let back = UNKNOWN.max(self.usual);
            for habit in offers.iter_mut().filter(|offer| offer.count == 0).map(|offer| &mut offer.habit) {
                habit.share += FORGETS * (back - habit.share);
            }
        }
    }

    /// Sets the counts of those who may; gives the seconds that each then saves with a token.
    fn split(&self, offers: &mut [Offer], decoding: usize, may: impl Fn(usize) -> bool) -> Vec<f64> {
        let side = |(at, offer): (usize, &Offer)| {
            Side::new(offer.habit.share.into(), if may(at) { offer.most } else { 0 })
        };
        let mut sides: Vec<Side> = offers.iter().enumerate().map(side).collect();
        let prices = Prices { model: &self.model, draft: self.draft.as_ref() };
        split(prices, decoding, if self.on { 0.0 } else { BEGIN }, &mut sides);
        for (offer, side) in offers.iter_mut().zip(&sides) {
            offer.count = side.count;
        }
        sides.iter().map(|side| side.gain).collect()
    }

    /// Reading a text into the draft model took so long; what its guesses save pays for it, and the purse the rest in the end.
    pub(crate) fn lend(&mut self, habit: &mut Habit, seconds: f64) {
        habit.debt += seconds;
        self.lent += seconds;
    }

    /// Of so many guesses so many held; all behind the first that did not were in vain and say nothing.
    pub(crate) fn learn(&mut self, habit: &mut Habit, guesses: u32, held: u32) {
        for n in 0..guesses.min(held + 1) {
            let share = if n < held { 1.0 } else { 0.0 };
            let first = 1.0 / (BEFORE + 1.0 + f32::from(habit.seen));
            let weight = if self.draft.is_none() { WEIGHT.max(first) } else { WEIGHT };
            habit.share += weight * (share - habit.share);
            habit.seen = habit.seen.saturating_add(1);
        }
    }

    /// A generation is over, or gave way.
    pub(crate) fn end(&mut self, habit: &Habit) {
        if habit.seen > 0 {
            self.usual += WEIGHT * (habit.share - self.usual);
        }
        self.purse = (self.purse - habit.debt).max(-self.full());
        self.lent = (self.lent - habit.debt).max(0.0);
    }

    /// Settles a turn. `debtors` are those that guessed.
    pub(crate) fn settle<'a>(&mut self, turn: &Turn, debtors: impl Iterator<Item = &'a mut Habit>) {
        let (infer, draft) = (turn.infer.as_secs_f64(), turn.draft.as_secs_f64());
        self.purse += INCOME * (infer + draft);
        let n = turn.decoding;
        if turn.guesses > 0 || draft > 0.0 {
            self.guessed += 1;
            if let (Some(plain), Some(price)) = (self.model.of(n), self.model.of(n + turn.guesses)) {
                // A step that the machine held up says nothing of guesses.
                let now = if turn.rows == n + turn.guesses { infer.min(OUTLIER * price) } else { price };
                let saved = plain * turn.held as f64 / n.max(1) as f64;
                let mut gain = saved - draft - (now - plain).max(0.0);
                for habit in debtors.filter(|habit| habit.debt > 0.0) {
                    let paid = gain.clamp(0.0, habit.debt);
                    habit.debt -= paid;
                    self.lent = (self.lent - paid).max(0.0);
                    gain -= paid;
                }
                self.purse += gain;
            }
        }
        self.purse = self.purse.clamp(-self.full(), self.full());
        // Chunks of prompts are priced otherwise.
        if turn.rows == n + turn.guesses && n > 0 {
            self.model.learn(turn.rows, turn.infer);
        }
    }
}

#[cfg(test)]
mod tests;
