//! A later stage: takes batches, passes them on, or samples where it is the last.

use std::collections::{HashMap, VecDeque};

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Error, MaskRow, Refusal, Result, Row, StageBatch, StageToken};

use super::{BLOCK, Given, Hidden, pack, unpack};
use crate::script::SPECIAL;
use crate::writer::logprob;

/// Most batches that wait.
const MOST: usize = 64;

/// A stage that is not the first.
pub(super) struct Tail {
    rank: u32,
    last: bool,
    silent: bool,
    pub(super) epoch: u64,
    inbox: VecDeque<StageBatch>,
    held: HashMap<u64, Held>,
    /// Aborted tasks of which batches may still wait in the inbox.
    leaving: Vec<u64>,
}

/// How to sample: stage 0 writes it as text, in a form that is the mock's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sampling {
    /// Length of the prompt.
    pub(super) prompt: usize,
    /// Alternatives per token; with one more for the token itself; 0 = no log-probabilities.
    pub(super) logprobs: u32,
}

impl Sampling {
    pub(super) fn text(self) -> String {
        format!("prompt={} logprobs={}", self.prompt, self.logprobs)
    }

    fn read(text: &str) -> Sampling {
        let number = |key: &str| text.split(' ').find_map(|part| part.strip_prefix(key)?.parse::<u32>().ok());
        Sampling {
            prompt: number("prompt=").unwrap_or(0) as usize,
            logprobs: number("logprobs=").unwrap_or(0),
        }
    }
}

/// What is held of a task: its "KV cache".
#[derive(Default)]
struct Held {
    attempt: u32,
    /// What the sampling text says.
    ask: Sampling,
    tokens: Vec<u32>,
}

impl Tail {
    pub(super) fn new(rank: u32, last: bool, silent: bool) -> Tail {
        Tail {
            rank,
            last,
            silent,
            epoch: 0,
            inbox: VecDeque::new(),
            held: HashMap::new(),
            leaving: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn has_more(&self) -> bool {
        !self.inbox.is_empty()
    }

    pub(super) fn receive(&mut self, batch: StageBatch) -> Result<()> {
        if self.inbox.len() >= MOST {
            return Err(Error::queue_full(self.inbox.len()));
        }
        if batch.epoch >= self.epoch {
            self.inbox.push_back(batch);
        }
        Ok(())
    }

    pub(super) fn abort(&mut self, epoch: u64, tasks: &[u64]) {
        self.leaving.extend_from_slice(tasks);
        self.forget();
        if epoch > self.epoch {
            self.epoch = epoch;
            self.held.clear();
            self.inbox.retain(|batch| batch.epoch >= epoch);
        }
    }

    /// Forgets aborted tasks, until nothing of them can come any more.
    fn forget(&mut self) {
        self.leaving.iter().for_each(|task| drop(self.held.remove(task)));
        if self.inbox.is_empty() {
            self.leaving.clear();
        }
    }

    /// Computes one batch.
    pub(super) fn step(&mut self) -> Given {
        let given = self.compute();
        self.forget();
        given
    }

    fn compute(&mut self) -> Given {
        let mut given = Given::default();
        let Some(batch) = self.inbox.pop_front() else { return given };
        if batch.epoch > self.epoch {
            self.abort(batch.epoch, &[]);
        }
        let rows = unpack(&batch.payload);
        if let Err(error) = self.fits(&batch, &rows) {
            let tasks = batch.sequences.iter().map(|s| s.task).collect();
            if !self.silent {
                given.refusals.push(Refusal { batch: batch.batch, epoch: batch.epoch, tasks, error });
            }
            return given;
        }
        self.hold(&batch, &rows);
        if self.last {
            given.tokens = self.sample(&batch);
        } else {
            let passed =
                rows.into_iter().map(|[token, place, stages, rest]| [token, place, stages + 1.0, rest]);
            given.batches.push(StageBatch { payload: pack(passed), ..batch });
        }
        given
    }

    /// Whether the batch goes on from what is held; nothing is changed.
    fn fits(&self, batch: &StageBatch, rows: &[Hidden]) -> Result<()> {
        let refuse = |what: String| Err(Error::new(code::BATCH_ABORTED, what));
        for s in &batch.sequences {
            let have = match self.held.get(&s.task) {
                _ if s.begins => Some(0),
                Some(held) if held.attempt == s.attempt => Some(held.tokens.len() as u64),
                _ => None,
            };
            if have.is_none_or(|n| n < s.past) {
                return refuse(format!(
                    "task {}, attempt {}: {} tokens are not here",
                    s.task, s.attempt, s.past
                ));
            }
        }
        for (row, [token, place, stages, _]) in batch.rows.iter().zip(rows) {
            let place = (*token, *place) == (row.token as f32, row.position as f32);
            if !place || *stages != self.rank as f32 {
                return refuse(format!("a row of task {} did not pass every stage", row.task));
            }
        }
        for (at, s) in batch.sequences.iter().enumerate() {
            let rows = batch.rows.iter().filter(|row| row.sequence as usize == at);
            let end = rows.map(|row| row.position + 1).max().unwrap_or(s.past);
            if !s.blocks.is_empty() && (s.blocks.len() * BLOCK) < usize::try_from(end).unwrap_or(usize::MAX) {
                return refuse(format!("task {} has {} blocks for {end} tokens", s.task, s.blocks.len()));
            }
        }
        Ok(())
    }

    fn hold(&mut self, batch: &StageBatch, rows: &[Hidden]) {
        for s in &batch.sequences {
            let held = self.held.entry(s.task).or_default();
            if s.begins {
                *held = Held { attempt: s.attempt, ask: Sampling::read(&s.sampling), tokens: Vec::new() };
            }
            // Fewer than before: the last ones were withdrawn.
            held.tokens.truncate(usize::try_from(s.past).unwrap_or(usize::MAX));
        }
        for (row, [token, ..]) in batch.rows.iter().zip(rows) {
            if let Some(held) = self.held.get_mut(&row.task) {
                held.tokens.push(*token as u32);
            }
        }
    }

    fn sample(&self, batch: &StageBatch) -> Vec<StageToken> {
        batch
            .rows
            .iter()
            .filter(|row| row.scored || row.sampled)
            .flat_map(|row| self.tell(batch, row))
            .collect()
    }

    /// The score of a row's own token, and the token sampled from it, as far as they were asked for.
    fn tell(&self, batch: &StageBatch, row: &Row) -> Vec<StageToken> {
        let (Some(held), Some(s)) = (self.held.get(&row.task), batch.sequences.get(row.sequence as usize))
        else {
            return Vec::new();
        };
        let mut told = Vec::new();
        let token = |position: u64, token: u32, scored: bool| StageToken {
            task: row.task,
            position,
            attempt: s.attempt,
            token,
            scored,
            ..StageToken::default()
        };
        if row.scored {
            told.push(StageToken { logprob: logprob(row.position), ..token(row.position, row.token, true) });
        }
        let at = usize::try_from(row.position + 1).unwrap_or(usize::MAX).checked_sub(held.ask.prompt);
        if let (Some(at), true) = (at, row.sampled) {
            // After the whole prompt was said again comes the end token.
            let prompt = held.tokens.get(..held.ask.prompt).unwrap_or_default();
            let own = prompt.get(at).copied().unwrap_or(SPECIAL);
            let mask = if s.mask.is_empty() { MaskRow::All } else { MaskRow::Some(&s.mask) };
            let chosen = if mask.allows(own) { own } else { mask.first().unwrap_or(SPECIAL) };
            let mut new = token(row.position + 1, chosen, false);
            if held.ask.logprobs > 0 {
                new.logprob = logprob(at as u64);
                let ranks = 0..held.ask.logprobs - 1;
                new.top = ranks.map(|r| (chosen.wrapping_add(r), new.logprob - 0.1 * r as f32)).unzip();
            }
            told.push(new);
        }
        told
    }
}
