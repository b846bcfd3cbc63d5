//! Guesses of a smaller model with the same vocabulary, which reads every text ahead of the model.
//!
//! Between two steps of the model: for each generation that decodes and whose guesses are worth their cost, the draft model reads
//! what it has not read of the text (all generations in one inference, long texts in chunks), then guesses its likeliest token,
//! and one more behind that, as often as is wanted, again for all at once. The next step checks the guesses.
//!
//! What must hold: it has a cache and blocks of its own, and a generation holds blocks of it only while it decodes; where there
//! is no room nothing is guessed; whatever fails here changes no text and ends no task. Keys and values of guesses that did not hold
//! are written over: going back is a number.

use std::collections::BTreeMap;
use std::time::Duration;

use cascadia_batching::{Batch, Decoding, Drafts, Id, Part, Scheduler};
use cascadia_plugin_api::sdk::{Level, log};

use crate::backend::Backend;
use crate::worth::{Habit, Offer, Turn, Worth};

mod pool;
mod rows;

use pool::Pool;

#[cfg(test)]
mod live;
#[cfg(test)]
mod tests;

/// So many failures one after the other, and the draft model is left alone.
const FAILURES: u32 = 3;

/// What the draft model was loaded with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Blocks of its cache.
    pub(crate) blocks: usize,
    /// Most tokens that it reads.
    pub(crate) window: usize,
    /// Most rows in an inference.
    pub(crate) rows: usize,
}

/// See the file.
pub(crate) struct Draft {
    backend: Box<dyn Backend>,
    sizes: Sizes,
    /// Positions in a block.
    block: usize,
    pool: Pool,
    known: BTreeMap<u64, Known>,
    pub(crate) worth: Worth,
    batch: Batch,
    failures: u32,
    /// What the last turn took, and that without the reading of long texts.
    took: Duration,
    spent: Duration,
}

/// A generation as the draft model knows it.
#[derive(Debug)]
struct Known {
    table: Vec<u32>,
    /// Positions of the text whose keys and values are in the blocks.
    computed: usize,
    /// Tokens of the text, and the guesses behind them.
    base: usize,
    guesses: Vec<u32>,
    habit: Habit,
}

/// What one generation gets in this turn.
#[derive(Debug, Clone, Copy)]
struct Ask<'a> {
    id: u64,
    tokens: &'a [u32],
    /// Guesses that are wanted.
    count: usize,
    /// Rows of the text in the first inference; all that are missing, or a chunk.
    rows: usize,
}

impl Known {
    /// Takes note of what became of the last guesses.
    fn follow(&mut self, tokens: &[u32]) {
        if !self.guesses.is_empty() {
            let held = self.guesses.iter().zip(tokens.get(self.base..).unwrap_or_default());
            let held = held.take_while(|(guess, token)| guess == token).count();
            // The last guess was told and never read.
            self.computed = self.base + held.min(self.guesses.len() - 1);
            self.guesses.clear();
        }
        // The last token's row is what the next guess comes from.
        self.computed = self.computed.min(tokens.len().saturating_sub(1));
    }
}

impl Draft {
    pub(crate) fn new(backend: Box<dyn Backend>, sizes: Sizes, worth: Worth) -> Draft {
        let block = backend.facts().block_tokens.max(1);
        Draft {
            backend,
            sizes,
            block,
            pool: Pool::new(sizes.blocks),
            known: BTreeMap::new(),
            worth,
            batch: Batch::default(),
            failures: 0,
            took: Duration::ZERO,
            spent: Duration::ZERO,
        }
    }

    pub(crate) fn backend(&mut self) -> &mut dyn Backend {
        &mut *self.backend
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Blocks that are held, and all there are.
    pub(crate) fn blocks(&self) -> (usize, usize) {
        (self.sizes.blocks - self.pool.free(), self.sizes.blocks)
    }

    /// What guessing took in the last turn.
    pub(crate) fn took(&self) -> Duration {
        self.took
    }

    /// Guesses for all that decode.
    pub(crate) fn ahead(&mut self, scheduler: &Scheduler) {
        (self.took, self.spent) = (Duration::ZERO, Duration::ZERO);
        for Decoding { id, tokens, .. } in scheduler.decoding() {
            if let Some(known) = self.known.get_mut(&id.0) {
                known.follow(tokens);
            }
        }
        if self.failures >= FAILURES || !self.worth.opens() {
            return;
        }
        let asks = self.asks(scheduler);
        if asks.is_empty() {
            return;
        }
        match self.guess(&asks) {
            Ok(()) => self.failures = 0,
            Err(reason) => self.fail(&reason),
        }
    }

    /// Who guesses how much. Texts of which little is missing come first, so that nobody's guesses wait for another's long text.
    fn asks<'a>(&mut self, scheduler: &'a Scheduler) -> Vec<Ask<'a>> {
        // What a turn in which all guesses hold leaves to read.
        let near = self.worth.most() + 2;
        let (mut asks, mut offers) = (Vec::new(), Vec::new());
        for Decoding { id, tokens, room } in scheduler.decoding() {
            // The last guess is never read.
            let room = room.min((self.sizes.window + 1).saturating_sub(tokens.len()));
            let known = self.known.get(&id.0);
            let rows = tokens.len() - known.map_or(0, |known| known.computed);
            let habit = known.map_or_else(|| self.worth.habit(), |known| known.habit);
            let lag = if rows > near { rows } else { 0 };
            offers.push(Offer { habit, room, most: room, lag, count: 0 });
            asks.push(Ask { id: id.0, tokens, count: 0, rows });
        }
        self.worth.allot(&mut offers, asks.len());
        for (ask, Offer { habit, count, .. }) in asks.iter_mut().zip(offers) {
            ask.count = count;
            if let Some(known) = self.known.get_mut(&ask.id) {
                known.habit = habit;
            } else if count > 0 {
                let new = Known { table: Vec::new(), computed: 0, base: 0, guesses: Vec::new(), habit };
                self.known.insert(ask.id, new);
            }
        }
        asks.retain(|ask| ask.count > 0);
        asks.sort_by_key(|ask| ask.rows);
        let mut left = self.sizes.rows;
        asks.retain_mut(|ask| {
            let missing = ask.rows;
            ask.rows = missing.min(left);
            if ask.rows == 0 {
                return false;
            }
            if ask.rows < missing {
                ask.count = 0;
            }
            let held = self.room(ask);
            left -= if held { ask.rows } else { 0 };
            held
        });
        asks
    }

    /// Gives a generation the blocks that its rows and guesses need, of these as many as there is room for.
    fn room(&mut self, ask: &mut Ask<'_>) -> bool {
        let Some(known) = self.known.get_mut(&ask.id) else { return false };
        let reads = known.computed + ask.rows;
        if !self.pool.grow(&mut known.table, reads.div_ceil(self.block)) {
            return false;
        }
        if ask.count > 0 {
            // The first guess is told by the last row, every further one by the row of the one before.
            let wanted = (reads + ask.count - 1).div_ceil(self.block);
            self.pool.grow(&mut known.table, wanted);
            ask.count = ask.count.min(known.table.len() * self.block - reads + 1);
        }
        true
    }

    /// Reads and guesses. What was guessed before an error stays.
    fn guess(&mut self, asks: &[Ask<'_>]) -> Result<(), String> {
        let most = asks.iter().map(|ask| ask.count).max().unwrap_or(0);
        self.first(asks)?;
        for at in 1..most {
            rows::clear(&mut self.batch);
            for ask in asks.iter().filter(|ask| ask.count > at) {
                let Some(known) = self.known.get(&ask.id) else { continue };
                let Some(&last) = known.guesses.last() else { continue };
                rows::add(&mut self.batch, &[last], known.base + at - 1, &known.table, self.block, true);
            }
            let (guesses, took) = rows::infer(&mut *self.backend, &self.batch)?;
            self.learn_cost(guesses.len(), took);
            self.took += took;
            self.spent += took;
            for (ask, guess) in asks.iter().filter(|ask| ask.count > at).zip(guesses) {
                if let Some(known) = self.known.get_mut(&ask.id) {
                    known.guesses.push(guess);
                }
            }
        }
        Ok(())
    }

    /// What is missing of the texts, and the first guess of those of whom nothing is then.
    fn first(&mut self, asks: &[Ask<'_>]) -> Result<(), String> {
        let near = self.worth.most() + 2;
        rows::clear(&mut self.batch);
        let mut far = 0;
        for ask in asks {
            let Some(known) = self.known.get(&ask.id) else { continue };
            let reads = &ask.tokens[known.computed..known.computed + ask.rows];
            rows::add(&mut self.batch, reads, known.computed, &known.table, self.block, ask.count > 0);
            far += if ask.rows > near { ask.rows } else { 0 };
        }
        let all = self.batch.ids.len();
        let (guesses, took) = rows::infer(&mut *self.backend, &self.batch)?;
        let mut guesses = guesses.into_iter();
        self.learn_cost(all, took);
        self.took += took;
        self.spent += took.mul_f64((all - far) as f64 / all.max(1) as f64);
        for ask in asks {
            let Some(known) = self.known.get_mut(&ask.id) else { continue };
            known.computed += ask.rows;
            known.base = ask.tokens.len();
            if ask.rows > near {
                self.worth.lend(&mut known.habit, took.as_secs_f64() * ask.rows as f64 / all as f64);
            }
            if ask.count > 0 {
                known.guesses.extend(guesses.next());
            }
        }
        Ok(())
    }

    fn learn_cost(&mut self, rows: usize, took: Duration) {
        if let Some(costs) = &mut self.worth.draft {
            costs.learn(rows, took);
        }
    }

    fn fail(&mut self, reason: &str) {
        self.failures += 1;
        if self.failures < FAILURES {
            return;
        }
        let failures = FAILURES.to_string();
        let fields = [("failures", failures.as_str()), ("reason", reason)];
        log(Level::Warn, "draft", "the draft model failed too often; nothing is guessed any more", &fields);
        self.keep(&[]);
    }

    /// After a plan: those without a row to be sampled gave way or ended, and hold nothing any more.
    pub(crate) fn keep(&mut self, parts: &[Part]) {
        let gone: Vec<u64> = self
            .known
            .keys()
            .copied()
            .filter(|&task| !parts.iter().any(|part| part.id.0 == task && part.next > 0))
            .collect();
        for task in gone {
            self.forget(task);
        }
    }

    /// The generation is over: its blocks are free.
    pub(crate) fn forget(&mut self, task: u64) {
        if let Some(known) = self.known.remove(&task) {
            self.pool.give(known.table);
            self.worth.end(&known.habit);
        }
    }

    /// Of so many guesses so many held.
    pub(crate) fn learn(&mut self, task: u64, guesses: u32, held: u32) {
        if let Some(known) = self.known.get_mut(&task) {
            self.worth.learn(&mut known.habit, guesses, held);
        }
    }

    /// What the turn cost and gave, but for what guessing took.
    pub(crate) fn settle(&mut self, turn: Turn) {
        let turn = Turn { draft: self.spent, ..turn };
        let debtors = self.known.values_mut().filter(|known| !known.guesses.is_empty());
        self.worth.settle(&turn, debtors.map(|known| &mut known.habit));
    }
}

impl Drafts for Draft {
    fn propose(&mut self, id: Id, _: &[u32], most: usize, out: &mut Vec<u32>) {
        if let Some(known) = self.known.get(&id.0) {
            out.extend(known.guesses.iter().take(most));
        }
    }
}
