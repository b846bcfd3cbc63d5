//! The engine of a model in one piece: one generation at a time, its tokens pushed as they come.
//!
//! Invariant: the task in `running` has had no finish; one that leaves it has had exactly one. A step waits for a token
//! no longer than its budget, so that cancels and other tasks' submits are heard.

use std::time::Duration;

use cascadia_plugin_api::sdk::{
    Card, Chunk, Error, Finish, Load, Metric, Next, Progress as Report, Result, SerialEngine, Sink, Task,
    Worker,
};

use super::asked::{Limits, sampling};
use super::news::{Answer, News};
use super::{Facts, card, inferences};
use crate::options::Options;
use crate::pipeline::sampling::Sampling;
use crate::pipeline::stateful::Stateful;
use crate::pipeline::{Progress, Token, fault};

/// Longest wait of a step for a token, whatever its budget.
const WAIT: Duration = Duration::from_millis(50);
/// Longest wait of the warm-up for one; the first inference makes kernels, which takes seconds.
const WARM: Duration = Duration::from_secs(1);

/// The generation of one model, and what the model can.
pub(crate) struct Single {
    model: Stateful,
    options: Options,
    facts: Facts,
    /// Why it is served this way, for the operator.
    why: String,
    running: Option<(u64, Answer)>,
    inferences: Metric,
}

impl Single {
    pub(crate) fn new(
        model: Stateful,
        options: Options,
        facts: Facts,
        why: String,
        worker: Worker,
    ) -> Single {
        let inferences = inferences(worker);
        Single { model, options, facts, why, running: None, inferences }
    }

    /// What came within `wait`, for the task that runs.
    fn news(&mut self, wait: Duration) -> Result<Option<News>> {
        let Some((task, answer)) = &mut self.running else { return Ok(None) };
        let mut ids = Vec::new();
        let (progress, error) = match self.model.poll(&mut ids, wait) {
            Ok(progress) => (progress, None),
            // The next generation begins anew, so one that failed is no reason to build the engine again.
            Err(e @ fault::Error::Step { .. }) => (Progress::Stop, Some(Error::backend(e.to_string()))),
            Err(e) => return Err(Error::backend(e.to_string())),
        };
        self.inferences.add(ids.len() as f64);
        let tokens = ids.into_iter().map(|id| Token { id, logprob: 0.0 }).collect();
        Ok(answer.news(*task, tokens, progress, error))
    }
}

impl SerialEngine for Single {
    type Limits = Limits;

    fn limits(&self) -> Limits {
        let context = self.options.context_length as usize;
        let context = self.options.npu_window().map_or(context, |(prompt, _)| prompt + 1);
        Limits { context, vocabulary: self.facts.vocabulary, grammars: false, logprobs: false }
    }

    fn check(limits: &Limits, task: &Task) -> Result<()> {
        limits.check(task)
    }

    fn warmup(&mut self, progress: &Report) -> Result<()> {
        progress.report("warmup", 0, 1)?;
        // The first inference of each kind makes kernels; the first request would pay for both.
        let sampling = Sampling { max_tokens: 2, eos: Some(0), ignore_eos: true, ..Sampling::default() };
        let failed = |e: fault::Error| Error::backend(format!("warm-up: {e}"));
        self.model.begin(&[1; 8], &sampling).map_err(failed)?;
        let mut tokens = Vec::new();
        while self.model.poll(&mut tokens, WARM).map_err(failed)? == Progress::Running {
            progress.report("warmup", 0, 1)?;
        }
        progress.report("warmup", 1, 1)
    }

    fn start(&mut self, task: Task, sink: &mut Sink) {
        match self.model.begin(&task.tokens, &sampling(&task, self.facts.vocabulary)) {
            Ok(()) => self.running = Some((task.id, Answer::to(&task, None))),
            Err(error) => {
                let error = Error::config(error.to_string());
                sink.push(&[Chunk { task: task.id, finish: Finish::Error(&error), ..Chunk::default() }]);
            }
        }
    }

    fn step(&mut self, budget: Duration, sink: &mut Sink) -> Result<Next> {
        if self.running.is_none() {
            return Ok(Next::Idle);
        }
        if let Some(piece) = self.news(budget.min(WAIT))? {
            sink.push(&[piece.chunk()]);
            if piece.is_last() {
                self.running = None;
                return Ok(Next::Idle);
            }
        }
        Ok(Next::More)
    }

    fn cancel(&mut self, task: u64, sink: &mut Sink) {
        if self.running.take_if(|(running, _)| *running == task).is_some() {
            self.model.cancel();
            sink.push(&[Chunk { task, finish: Finish::Cancelled, ..Chunk::default() }]);
        }
    }

    fn has_room(&self) -> bool {
        self.running.is_none()
    }

    fn card(&self) -> Card {
        card::stateful(&self.options, &self.facts, &self.why)
    }

    fn load(&self) -> Load {
        Load { running: self.running.is_some().into(), ..Load::default() }
    }
}
