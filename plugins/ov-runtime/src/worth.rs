//! How many guesses are worth their cost, for a generation among so many.
//!
//! With k guesses of which each holds with a chance p, a step gives 1 + p + ... + p^k tokens. It costs what the model's step with
//! k + 1 rows for each costs, and what guessing costs. Both are measured while they run, so that load, threads and machine
//! are in them. k is what makes a token cheapest; 0 where no guess does.
//!
//! What must hold: over time, guesses cost at most [`INCOME`] of the time more than they save. A purse sees to it: it
//! gets that share of all time and what guesses save, it pays what they cost, and once it is empty nothing is guessed until it has
//! filled again. Knows neither models nor texts.

use std::time::Duration;

use crate::costs::Costs;

/// Chance that a guess holds, as long as nobody knows.
const UNKNOWN: f32 = 0.7;
/// Weight of one guess in a chance.
const WEIGHT: f32 = 0.125;
/// A turn in which nothing is guessed moves a chance so far back to what nobody knows: in the end it is tried again.
const FORGETS: f32 = 1.0 / 256.0;
/// Share of the time that may be lost.
const INCOME: f64 = 0.01;
/// Most in the purse, and what it begins with, in plain steps of one generation.
const FULL: f64 = 32.0;
/// A token must become so much cheaper before guessing begins; it goes on until it is not cheaper at all.
const BEGIN: f64 = 0.95;
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
    /// Turns with guesses since the last one without.
    guessed: u32,
    /// Chances of generations that ended, for those that begin.
    usual: f32,
}

/// How guesses went for one generation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Habit {
    /// Chance that a guess holds.
    share: f32,
    /// Whether the last turn had guesses.
    on: bool,
    /// Seconds that were spent on reading its text, and not yet saved.
    debt: f64,
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
            guessed: 0,
            usual: UNKNOWN,
        }
    }

    /// Most guesses for one generation.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// One that begins.
    pub(crate) fn habit(&self) -> Habit {
        Habit { share: self.usual, on: false, debt: 0.0 }
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
        FULL * self.model.of(1).unwrap_or(0.001)
    }

    /// Guesses for a generation among so many that decode. `lag`: tokens of its text that the draft model has yet to read
    /// beyond what every turn brings; `room`: tokens that may still come.
    pub(crate) fn count(&self, habit: &mut Habit, decoding: usize, lag: usize, room: usize) -> usize {
        let most = self.most.min(room);
        if self.policy == Policy::Always || most == 0 {
            return most;
        }
        let best = self.best(habit, decoding, most);
        let (count, gain) = best.unwrap_or((0, 0.0));
        let reading = if lag == 0 { 0.0 } else { self.draft.as_ref().and_then(|d| d.of(lag)).unwrap_or(0.0) };
        let pays = gain * room.min(SERVES) as f64 > reading && reading <= self.purse - self.lent;
        habit.on = count > 0 && (lag == 0 || pays);
        if habit.on {
            return count;
        }
        habit.share += FORGETS * (UNKNOWN.max(self.usual) - habit.share);
        0
    }

    /// The number of guesses that makes a token cheapest, and the seconds that it then saves for each token.
    fn best(&self, habit: &Habit, decoding: usize, most: usize) -> Option<(usize, f64)> {
        let n = decoding.max(1);
        let plain = self.model.of(n)?;
        let (first, further) = match &self.draft {
            // After guesses that all held, two tokens are to be read.
            Some(draft) => (draft.of(n + n / 2).unwrap_or(0.0), draft.of(n).unwrap_or(0.0)),
            None => (0.0, 0.0),
        };
        let enough = plain * if habit.on { 1.0 } else { BEGIN };
        let (mut chance, mut tokens) = (1.0, 1.0);
        let mut best = None::<(usize, f64)>;
        for k in 1..=most {
            chance *= f64::from(habit.share);
            tokens += chance;
            let step = self.model.of(n * (k + 1))? + first + further * (k - 1) as f64;
            let price = step / tokens;
            if price < enough && best.is_none_or(|(_, least)| price < least) {
                best = Some((k, price));
            }
        }
        best.map(|(k, price)| (k, (plain - price) / n as f64))
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
            habit.share += WEIGHT * (share - habit.share);
        }
    }

    /// A generation is over, or gave way.
    pub(crate) fn end(&mut self, habit: &Habit) {
        self.usual += WEIGHT * (habit.share - self.usual);
        self.purse -= habit.debt;
        self.lent = (self.lent - habit.debt).max(0.0);
    }

    /// Settles a turn. `debtors` are those that guessed.
    pub(crate) fn settle<'a>(&mut self, turn: &Turn, debtors: impl Iterator<Item = &'a mut Habit>) {
        let (infer, draft) = (turn.infer.as_secs_f64(), turn.draft.as_secs_f64());
        self.purse += INCOME * (infer + draft);
        let n = turn.decoding;
        if turn.guesses > 0 || draft > 0.0 {
            self.guessed += 1;
            let now =
                if turn.rows == n + turn.guesses { Some(infer) } else { self.model.of(n + turn.guesses) };
            if let (Some(plain), Some(now)) = (self.model.of(n), now) {
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
        self.purse = self.purse.min(self.full());
        // Chunks of prompts are priced otherwise.
        if turn.rows == n + turn.guesses && n > 0 {
            self.model.learn(turn.rows, turn.infer);
        }
    }
}

#[cfg(test)]
mod tests;
