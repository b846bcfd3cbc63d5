//! All tasks in progress. One call of [`Batch::advance`] is one step: each task that is due gives one chunk.
//!
//! Holds: tasks without a pace of their own share one beat, so that their chunks come in one push. Pure: time is passed
//! in; what blocks, panics or pushes is told to the engine, which does it.

use std::sync::Arc;

use cascadia_plugin_api::sdk::{MaskFiller, Masks, Next};
use parking_lot::Mutex;

use crate::breach::Breach;
use crate::cache::Cache;
use crate::ext::kv_log::{Log, SharedLog};
use crate::options::Options;
use crate::run::{Dues, Fault, Run, Went, next_beat};
use crate::script::{End, Token};
use crate::tray::{Delivery, Ending, Tray};

/// What the first token of a task waits for, inside `step`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) task: u64,
    pub(crate) ms: u64,
    /// Say that the step is alive.
    pub(crate) beat: bool,
    /// End early when the host's flag says that the task is cancelled.
    pub(crate) watch: bool,
}

/// The tasks in progress and what they give.
#[derive(Debug)]
pub(crate) struct Batch {
    runs: Vec<Run>,
    /// Ended tasks that will push once more.
    late: Vec<u64>,
    /// Tasks that left in this step, whether the host knows or not.
    over: Vec<u64>,
    /// Of those, the ones the host does not know of.
    lost: u64,
    tray: Tray,
    cache: Cache,
    log: SharedLog,
    tick: u64,
    pace: u64,
    /// A task in progress was asked for something that is looked for before each step.
    tricks: bool,
    block_size: u64,
    /// KV-cache blocks of all runs.
    blocks: u64,
    /// When the first of all runs is due, if nothing has changed since the last step.
    first: Option<Dues>,
}

impl Batch {
    /// An empty batch.
    pub(crate) fn new(options: &Options) -> Batch {
        let log = Arc::new(Mutex::new(Log::new(options)));
        Batch {
            runs: Vec::with_capacity(options.slots),
            late: Vec::new(),
            over: Vec::new(),
            lost: 0,
            tray: Tray::default(),
            cache: Cache::new(options.prefix_cache, Arc::clone(&log)),
            log,
            tick: 0,
            tricks: false,
            pace: options.pace_ns(),
            block_size: options.kv_block_size,
            blocks: 0,
            first: None,
        }
    }

    /// Takes a task into a slot.
    pub(crate) fn admit(&mut self, mut run: Run, now: u64) {
        let task = &run.task;
        run.cached = self.cache.take(&task.cache_salt, &task.adapter, &task.tokens, now);
        run.start(now, self.pace);
        self.tricks |= run.order.slow_step_ms > 0 || run.order.push_from_thread || run.order.unknown_finish;
        self.blocks += run.blocks(self.block_size);
        self.runs.push(run);
        self.first = None;
    }

    /// Ends a task that has no slot yet.
    pub(crate) fn withdraw(&mut self, task: u64, now: u64) {
        self.tray.lay(task, now).ending = Ending::End(End::Cancelled);
        self.over.push(task);
    }

    /// Asks for the end of a task in progress.
    pub(crate) fn cancel(&mut self, task: u64, now: u64) {
        self.first = None;
        if let Some(run) = self.runs.iter_mut().find(|run| run.task.id == task) {
            run.cancel(now);
        }
    }

    /// Holds a task in progress, or lets it go on.
    pub(crate) fn pause(&mut self, task: u64, hold: bool) {
        self.first = None;
        if let Some(run) = self.runs.iter_mut().find(|run| run.task.id == task) {
            run.paused = hold;
        }
    }

    /// What the prefix cache writes its events into.
    pub(crate) fn log(&self) -> SharedLog {
        Arc::clone(&self.log)
    }

    /// The prompt and the answer so far of a task in progress, where another engine could go on with it.
    pub(crate) fn sequence(&self, task: u64) -> Option<Vec<u32>> {
        self.runs.iter().find(|run| run.task.id == task && run.masked.is_none()).map(Run::sequence)
    }

    /// Asks for the masks of the tasks that are due; once for all of them.
    pub(crate) fn ask(&mut self, filler: &MaskFiller, vocabulary: usize, masks: &mut Masks, now: u64) {
        let tick = self.tick;
        let due = |run: &&mut Run| run.wants_mask(tick, now);
        let mut due: Vec<_> = self
            .runs
            .iter_mut()
            .filter(due)
            .filter_map(|run| Some((run.task.id, run.masked.as_deref_mut()?)))
            .collect();
        if due.is_empty() {
            return;
        }
        let requests: Vec<_> = due.iter_mut().map(|(task, masked)| masked.request(*task)).collect();
        let filled = filler.fill(&requests, vocabulary, masks);
        let mut row = 0;
        for (_, masked) in due {
            match &filled {
                Ok(()) => masked.choose(masks, row),
                Err(error) => masked.fail(error.clone()),
            }
            row += masked.rows();
        }
    }

    /// Ends all tasks in progress.
    pub(crate) fn end_all(&mut self) {
        self.first = None;
        self.runs.iter_mut().for_each(Run::end_now);
    }

    /// Forgets everything, as a failed engine does.
    pub(crate) fn clear(&mut self, now: u64) {
        self.cache.clear(now);
        self.runs.clear();
        self.first = None;
        self.blocks = 0;
        self.late.clear();
        self.over.clear();
        self.tray.clear();
    }

    /// Tasks in progress.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// KV-cache blocks in use.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Tokens in the prefix cache.
    pub(crate) fn tokens_cached(&self) -> u64 {
        self.cache.tokens()
    }

    /// The tasks whose text has not been to the peers, for a stage that has some.
    pub(crate) fn untravelled(&mut self) -> impl Iterator<Item = &mut Run> {
        self.runs.iter_mut().filter(|run| !run.travelled)
    }

    /// A task that is due for the first time and holds the step up; each is told once.
    pub(crate) fn take_block(&mut self, now: u64) -> Option<Block> {
        if !self.tricks {
            return None;
        }
        let tick = self.tick;
        let run = self.runs.iter_mut().find(|run| run.order.slow_step_ms > 0 && run.due(tick) <= now)?;
        let ms = std::mem::take(&mut run.order.slow_step_ms);
        Some(Block { task: run.task.id, ms, beat: !run.order.no_beat, watch: run.order.watch_flag })
    }

    /// A breach that a task commits before its first chunk; each is told once.
    pub(crate) fn take_breach(&mut self, now: u64) -> Option<(u64, Breach)> {
        if !self.tricks {
            return None;
        }
        let tick = self.tick;
        self.runs.iter_mut().filter(|run| run.due(tick) <= now).find_map(|run| {
            if std::mem::take(&mut run.order.push_from_thread) {
                return Some((run.task.id, Breach::OtherThread));
            }
            std::mem::take(&mut run.order.unknown_finish).then_some((run.task.id, Breach::UnknownFinish))
        })
    }

    /// One step; its chunks are in [`Batch::chunks`] until the next [`Batch::pushed`].
    pub(crate) fn advance(&mut self, now: u64) -> Result<(), Fault> {
        let Batch { runs, tray, late, over, lost, .. } = self;
        for task in late.drain(..) {
            stray(tray, task, now);
        }
        let mut fault = None;
        let mut ticked = false;
        let mut turn = |run: &mut Run| {
            if fault.is_some() {
                return true;
            }
            if run.word(self.tick, now, tray) {
                ticked = true;
                return true;
            }
            if run.due(self.tick) > now {
                return true;
            }
            fault = run.fault();
            if fault.is_some() {
                return true;
            }
            ticked |= run.is_shared() && self.tick <= now;
            let task = run.task.id;
            if run.order.unknown_task && !run.begun {
                stray(tray, !task, now);
            }
            let went = run.advance(now, tray.lay(task, now));
            match went {
                Went::Nothing => tray.take_back(),
                Went::Pushed => {}
                Went::Ended => after_end(run, tray, late, now),
                Went::Lost => {
                    *lost += 1;
                    // A chunk without tokens and without an end would be a fault of another kind.
                    if tray.filled().last().is_some_and(Delivery::is_empty) {
                        tray.take_back();
                    }
                }
            }
            let stays = matches!(went, Went::Nothing | Went::Pushed);
            if !stays {
                over.push(task);
            }
            stays
        };
        let (mut blocks, mut first) = (0, Dues::NEVER);
        runs.retain_mut(|run| {
            let stays = turn(run);
            if stays {
                blocks += run.blocks(self.block_size);
                first = first.first(run.dues());
            }
            stays
        });
        (self.blocks, self.first) = (blocks, Some(first));
        self.tricks &= !runs.is_empty();
        if ticked {
            self.tick = next_beat(self.tick, self.pace, now);
        }
        fault.map_or(Ok(()), Err)
    }

    /// What to push.
    pub(crate) fn chunks(&self) -> &[Delivery] {
        self.tray.filled()
    }

    /// The tasks that left since the last call, and how many of them without the host's knowledge.
    pub(crate) fn take_over(&mut self) -> (std::vec::Drain<'_, u64>, u64) {
        (self.over.drain(..), std::mem::take(&mut self.lost))
    }

    /// The chunks were pushed.
    pub(crate) fn pushed(&mut self) {
        self.tray.clear();
    }

    /// When there is something to do.
    pub(crate) fn next(&self, now: u64) -> Next {
        if !self.late.is_empty() {
            return Next::More;
        }
        let all = || self.runs.iter().map(Run::dues).fold(Dues::NEVER, Dues::first);
        match self.first.unwrap_or_else(all).at(self.tick) {
            u64::MAX => Next::Idle,
            at if at <= now => Next::More,
            at => Next::Until(at),
        }
    }
}

/// The faults of a task whose last chunk lies on the tray.
fn after_end(run: &Run, tray: &mut Tray, late: &mut Vec<u64>, now: u64) {
    if run.order.double_finish {
        let ending = tray.filled().last().map(|last| last.ending.clone()).unwrap_or_default();
        tray.lay(run.task.id, now).ending = ending;
    }
    if run.order.push_after_finish {
        late.push(run.task.id);
    }
}

/// A token that nobody waits for.
fn stray(tray: &mut Tray, task: u64, now: u64) {
    let token = Token::of("stray");
    let out = tray.lay(task, now);
    out.tokens.push(token.id);
    out.bytes.extend(token.bytes.unwrap_or_default());
    out.detokenized = true;
}

#[cfg(test)]
mod tests;
