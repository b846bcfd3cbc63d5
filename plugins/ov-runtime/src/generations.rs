//! All generations of one model: what is taken, what each turn computes, and what became of it.
//!
//! What holds: a task that was added ends once, by what a turn tells or by a cancel, whatever fails; the scheduler lives
//! exactly as many sequences as there are generations here. Knows neither the host's sink nor threads; the time is passed in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cascadia_batching::{Entry, Id, Load, Outcome, Refused, Scheduler, Scope};
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Error, Result, Task};

use crate::asked::{Limits, seed};
use crate::backend::Backend;
use crate::generation::{Generation, Rows, Tools};
use crate::guess::Guesses;
use crate::masks::Masker;
use crate::tray::{End, Tray};
use crate::worth::Turn;

mod moving;
#[cfg(test)]
mod tests;

pub(crate) use moving::Kept;

/// So many turns that fail one after the other, and the engine as a whole has failed.
const FAILURES: u32 = 3;

/// See the file.
pub(crate) struct Generations {
    backend: Box<dyn Backend>,
    scheduler: Scheduler,
    limits: Limits,
    living: BTreeMap<u64, Generation>,
    guesses: Guesses,
    masker: Masker,
    tools: Tools,
    outcomes: Vec<Outcome>,
    /// What the last turn brought.
    pub(crate) tray: Tray,
    failures: u32,
}

/// What a turn cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Took {
    /// Rows that were computed.
    pub(crate) rows: usize,
    /// Drafts among them, and how many of these held.
    pub(crate) drafts: (u32, u32),
    /// Of the draft model, before the plan.
    pub(crate) draft: Duration,
    /// Choosing the rows, with what is looked up for it, and writing down afterwards what became of them.
    pub(crate) plan: Duration,
    pub(crate) bind: Duration,
    pub(crate) infer: Duration,
    pub(crate) sample: Duration,
}

impl Generations {
    pub(crate) fn new(
        backend: Box<dyn Backend>,
        scheduler: Scheduler,
        limits: Limits,
        guesses: Guesses,
    ) -> Generations {
        Generations {
            backend,
            scheduler,
            living: BTreeMap::new(),
            guesses,
            masker: Masker::new(limits.filler.clone()),
            limits,
            tools: Tools::default(),
            outcomes: Vec::new(),
            tray: Tray::default(),
            failures: 0,
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits.clone()
    }

    pub(crate) fn backend(&mut self) -> &mut dyn Backend {
        &mut *self.backend
    }

    pub(crate) fn guesses(&mut self) -> &mut Guesses {
        &mut self.guesses
    }

    pub(crate) fn load(&self) -> Load {
        self.scheduler.load()
    }

    /// Whether nothing is to be done until a task comes.
    pub(crate) fn is_idle(&self) -> bool {
        self.living.is_empty()
    }

    /// Takes a task that passed [`Limits::check`].
    ///
    /// # Errors
    /// Why it cannot be done; nothing of it is kept.
    pub(crate) fn add(&mut self, task: Task, now_ns: u64) -> Result<()> {
        let most = self.limits.most(&task);
        let generation = Generation::new(&task, most, self.limits.vocabulary, seed(&task))
            .map_err(|e| Error::config(e.to_string()))?;
        let id = task.id;
        let entry = self.entry(task);
        self.scheduler.add(entry, now_ns).map_err(refused)?;
        self.living.insert(id, generation);
        Ok(())
    }

    /// What the scheduler is told of a task.
    fn entry(&self, task: Task) -> Entry {
        Entry {
            id: Id(task.id),
            generated_from: usize::try_from(task.generated_from).unwrap_or(usize::MAX).min(task.tokens.len()),
            most: self.limits.most(&task),
            tokens: task.tokens,
            scope: Arc::new(Scope { salt: task.cache_salt, adapter: task.adapter }),
            priority: task.priority,
            deadline_ns: task.deadline_ns.unwrap_or(0),
            score: task.prompt_logprobs.is_some(),
        }
    }

    /// Ends a task: its blocks are free for the next turn. False where it has ended.
    pub(crate) fn cancel(&mut self, task: u64) -> bool {
        self.scheduler.cancel(Id(task));
        self.drop_living(task)
    }

    /// Lets go of a generation whose sequence is over.
    fn drop_living(&mut self, task: u64) -> bool {
        self.guesses.forget(task);
        self.living.remove(&task).is_some()
    }

    /// Computes the next step; what came of it is in the tray afterwards. None where there was nothing to compute.
    ///
    /// # Errors
    /// The model has failed too often; the tray still has the ends of those that were in the last step.
    pub(crate) fn turn(&mut self, now_ns: u64) -> Result<Option<Took>> {
        self.tray.clear();
        let begun = Instant::now();
        let draft = self.guesses.ahead(&self.scheduler);
        let batch = self.scheduler.plan(now_ns, &mut self.guesses);
        let planned = batch.is_some();
        let plan = begun.elapsed().saturating_sub(draft);
        self.guesses.keep(batch.map_or(&[], |batch| &batch.parts));
        let expired: Vec<u64> = self.scheduler.expired().iter().map(|id| id.0).collect();
        for id in expired {
            if self.drop_living(id) {
                let late =
                    Error::new(code::DEADLINE_EXCEEDED, "the deadline passed before the answer was complete");
                self.tray.begin(id).end = End::Error(late);
            }
        }
        for admitted in self.scheduler.admitted() {
            if let Some(generation) = self.living.get_mut(&admitted.id.0) {
                generation.cached = Some(admitted.cached);
            }
        }
        if !planned {
            return Ok(None);
        }
        match self.compute() {
            Ok(took) => {
                self.failures = 0;
                Ok(Some(Took { draft, plan: plan + took.plan, ..took }))
            }
            Err(reason) => self.give_up(&reason).map(|()| None),
        }
    }

    /// Runs the planned step and commits what it gave. An error is the model's; nothing is committed then.
    fn compute(&mut self) -> std::result::Result<Took, String> {
        let batch = self.scheduler.batch().ok_or("no step is planned")?;
        let logits = self.backend.infer(batch)?;
        let begun = Instant::now();
        self.masker.clear();
        for part in &batch.parts {
            if let Some(generation) = self.living.get_mut(&part.id.0) {
                generation.want(part, batch, &mut self.masker);
            }
        }
        self.masker.ask(self.limits.vocabulary);
        let mut took =
            Took { bind: logits.bind, infer: logits.infer, rows: batch.ids.len(), ..Took::default() };
        self.outcomes.clear();
        for part in &batch.parts {
            let tokens = self.scheduler.tokens(part.id).unwrap_or_default();
            let outcome = match self.living.get_mut(&part.id.0) {
                Some(generation) => {
                    let rows = Rows { part, batch, logits: &logits, masker: &self.masker, tokens };
                    generation.advance(&rows, &mut self.tools, &mut self.tray)
                }
                None => Outcome::Failed,
            };
            if let Outcome::Token { accepted, .. } | Outcome::Ended { accepted } = outcome {
                took.drafts = (took.drafts.0 + part.drafts(), took.drafts.1 + accepted);
                self.guesses.learn(part.id.0, part.drafts(), accepted);
            }
            self.outcomes.push(outcome);
        }
        took.sample = begun.elapsed();
        self.guesses.settle(Turn {
            decoding: batch.parts.iter().filter(|part| part.next > 0 && part.rows == part.next).count(),
            rows: took.rows,
            guesses: took.drafts.0 as usize,
            held: took.drafts.1 as usize,
            infer: took.bind + took.infer,
            ..Turn::default()
        });
        let begun = Instant::now();
        self.scheduler.commit(&self.outcomes).map_err(|e| e.to_string())?;
        let ended = self.tray.news().iter().filter(|news| news.end != End::No);
        for task in ended.map(|news| news.task).collect::<Vec<_>>() {
            self.drop_living(task);
        }
        took.plan = begun.elapsed();
        Ok(took)
    }

    /// Ends what was in the step that failed. What waits may still be computed.
    fn give_up(&mut self, reason: &str) -> Result<()> {
        let ids: Vec<u64> =
            self.scheduler.batch().into_iter().flat_map(|batch| &batch.parts).map(|part| part.id.0).collect();
        self.scheduler.abandon();
        self.tray.clear();
        for id in ids {
            if self.cancel(id) {
                let message = format!("the model failed on the step that this was part of: {reason}");
                self.tray.begin(id).end = End::Error(Error::new(code::BATCH_ABORTED, message));
            }
        }
        self.failures += 1;
        if self.failures < FAILURES {
            return Ok(());
        }
        Err(Error::backend(format!("the model failed {FAILURES} times in a row: {reason}")))
    }
}

fn refused(why: Refused) -> Error {
    let code = match why {
        Refused::TooLarge { .. } | Refused::NoRoom { .. } => code::OUT_OF_MEMORY,
        Refused::Full { .. } => code::QUEUE_FULL,
        Refused::Known(_) | Refused::Invalid(_) => code::INVALID_CONFIG,
    };
    Error::new(code, why.to_string())
}
