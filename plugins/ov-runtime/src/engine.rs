//! The running engine as the host sees it: takes tasks, turns, and pushes what each turn brought as one batch.

use std::time::Duration;

use cascadia_plugin_api::ext::features;
use cascadia_plugin_api::sdk::{
    Card, Chunk, Finish, Flow, Load, Next, Progress, Result, SerialEngine, Sink, Task, Worker, now_ns,
};

use crate::asked::Limits;
use crate::draft::Sizes;
use crate::generations::Generations;
use crate::guess::Guesses;
use crate::meter::Meter;
use crate::warm;

/// What is known once the model is loaded.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// Tasks that it takes at once, running and waiting.
    pub(crate) tasks: usize,
    /// Most generations in a step.
    pub(crate) sequences: usize,
    /// Most rows in a step.
    pub(crate) rows: usize,
    pub(crate) device: String,
    /// How the cache is kept, and in what the model computes.
    pub(crate) precision: String,
    /// Positions in a block.
    pub(crate) block_tokens: usize,
    /// For the operator.
    pub(crate) notes: Vec<String>,
}

/// All generations, behind the host's queue.
pub(crate) struct Batched {
    generations: Generations,
    facts: Facts,
    meter: Meter,
    worker: Worker,
}

impl Batched {
    pub(crate) fn new(generations: Generations, facts: Facts, meter: Meter, worker: Worker) -> Batched {
        Batched { generations, facts, meter, worker }
    }

    pub(crate) fn generations(&mut self) -> &mut Generations {
        &mut self.generations
    }

    fn tell(&mut self) {
        self.meter.load(&self.generations.load());
        if let Guesses::Draft(draft) = self.generations.guesses() {
            self.meter.draft_blocks(draft.blocks());
        }
    }
}

impl SerialEngine for Batched {
    type Limits = Limits;

    fn limits(&self) -> Limits {
        self.generations.limits()
    }

    fn check(limits: &Limits, task: &Task) -> Result<()> {
        limits.check(task)
    }

    fn warmup(&mut self, progress: &Progress) -> Result<()> {
        let Facts { sequences, rows, .. } = self.facts;
        let blocks = self.generations.load().blocks;
        let mut tell = |done, total| progress.report("warmup", done, total);
        warm::up(self.generations.backend(), sequences, rows, blocks, &mut tell)?;
        if let Some(most) = self.generations.guesses().most() {
            let rows = rows.min(sequences.saturating_mul(most + 1));
            let costs = warm::costs(self.generations.backend(), rows.min(blocks), &mut tell)?;
            self.generations.guesses().measured(costs);
        }
        if let Guesses::Draft(draft) = self.generations.guesses() {
            let Sizes { blocks, rows, .. } = draft.sizes();
            warm::up(draft.backend(), sequences, rows, blocks, &mut tell)?;
            let costs =
                warm::costs(draft.backend(), sequences.saturating_mul(2).min(rows).min(blocks), &mut tell)?;
            draft.worth.draft = Some(costs);
        }
        self.tell();
        Ok(())
    }

    fn start(&mut self, task: Task, sink: &mut Sink) {
        let id = task.id;
        if let Err(error) = self.generations.add(task, now_ns()) {
            sink.push(&[Chunk { task: id, finish: Finish::Error(&error), ..Chunk::default() }]);
        }
    }

    fn step(&mut self, _budget: Duration, sink: &mut Sink) -> Result<Next> {
        // A long prompt takes many steps in which nothing is pushed.
        self.worker.beat();
        let turned = self.generations.turn(now_ns());
        let flow = sink.push_each(self.generations.tray.chunks(now_ns()));
        self.tell();
        if let Some(took) = turned? {
            self.meter.step(&took);
        }
        let idle = self.generations.is_idle() || flow == Flow::Stop;
        Ok(if idle { Next::Idle } else { Next::More })
    }

    fn cancel(&mut self, task: u64, sink: &mut Sink) {
        if self.generations.cancel(task) {
            self.tell();
            sink.push(&[Chunk { task, finish: Finish::Cancelled, ..Chunk::default() }]);
        }
    }

    fn has_room(&self) -> bool {
        // The scheduler chooses among all that came, by priority; the card bounds them.
        true
    }

    fn card(&self) -> Card {
        let limits = self.generations.limits();
        Card {
            context_length: limits.window as u64,
            max_tasks: self.facts.tasks as u64,
            vocab_size: limits.vocabulary as u64,
            device: self.facts.device.clone(),
            quantization: self.facts.precision.clone(),
            features: vec![
                features::SAMPLING,
                features::MIN_P,
                features::TYPICAL_P,
                features::PENALTIES,
                features::REPETITION_PENALTY,
                features::SEED,
                features::LOGIT_BIAS,
                features::TOKEN_LISTS,
                features::LOGPROBS,
                features::TOP_LOGPROBS,
                features::PROMPT_LOGPROBS,
                features::MIN_TOKENS,
                features::IGNORE_EOS,
            ],
            notes: self.facts.notes.clone(),
            ..Card::default()
        }
    }

    fn load(&self) -> Load {
        let load = self.generations.load();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Load {
            running: count(load.running),
            waiting: count(load.waiting),
            kv_blocks_used: load.held as u64,
            kv_blocks_total: load.blocks as u64,
            tokens_cached: (load.cached * self.facts.block_tokens) as u64,
        }
    }
}
