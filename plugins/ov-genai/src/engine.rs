//! The engine of paged attention: keeps the generations of one pipeline, steps it, and pushes what came of each step as one batch.
//!
//! Invariant: a task in `running` has had no finish; one that leaves it has had exactly one. A cancelled request leaves
//! its part of the cache in the pipeline's next step, so one step is owed after a cancel even when nothing else runs.

use std::collections::BTreeMap;
use std::time::Duration;

use cascadia_plugin_api::sdk::{
    Card, Chunk, Error, Finish, Level, Load, Metric, Next, Progress as Report, Result, SerialEngine, Sink,
    Task, Worker, log,
};

use crate::cache::Blocks;
use crate::options::Options;
use crate::pipeline::sampling::Sampling;
use crate::pipeline::{Pipeline, Progress, fault};
use crate::prefix::{Prefix, Taken};
use crate::speculate::Speculation;
use asked::{Limits, sampling};
use news::{Answer, News, Running};

mod asked;
mod card;
mod news;
pub(crate) mod single;

/// What is known once the model is loaded.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// Build text of the core library.
    pub(crate) version: String,
    /// What became of the weights, for the operator.
    pub(crate) weights: Option<String>,
    /// The library has the model's vocabulary, and so can keep an answer to a grammar.
    pub(crate) has_vocabulary: bool,
    /// Tokens that the model has a logit for, where its files say how many.
    pub(crate) vocabulary: Option<usize>,
    /// What the device was told to compute in, if it was.
    pub(crate) computes: Option<String>,
}

/// What every engine of this plugin counts.
pub(crate) fn inferences(worker: Worker) -> Metric {
    worker.counter("inferences_total", "Inferences made, each for all generations at once.", &[])
}

/// All generations of one pipeline.
pub(crate) struct Batch {
    pipeline: Pipeline,
    options: Options,
    facts: Facts,
    running: BTreeMap<u64, Running>,
    /// Cancelled requests still hold cache.
    owes_step: bool,
    blocks: Blocks,
    /// Where the library caches prefixes and the size of a block is known.
    prefix: Option<Prefix>,
    speculation: Option<Speculation>,
    metrics: Metrics,
}

/// What the library says of itself, on the host's `/metrics`.
struct Metrics {
    cache_usage: Metric,
    cache_bytes: Metric,
    steps: Metric,
}

impl Batch {
    pub(crate) fn new(pipeline: Pipeline, options: Options, facts: Facts, worker: Worker) -> Batch {
        let metrics = Metrics {
            cache_usage: worker.gauge(
                "kv_cache_usage_ratio",
                "Part of the allocated KV cache in use, 0 to 1.",
                &[],
            ),
            cache_bytes: worker.gauge("kv_cache_bytes", "Bytes allocated for the KV cache.", &[]),
            steps: inferences(worker),
        };
        let o = &options;
        let speculation = Speculation::new(&worker, &o.proposer, o.proposed, o.ngram);
        Batch {
            pipeline,
            options,
            facts,
            running: BTreeMap::new(),
            owes_step: false,
            blocks: Blocks::default(),
            prefix: None,
            speculation,
            metrics,
        }
    }

    /// Most generations at once.
    fn width(&self) -> usize {
        if self.options.cb { self.options.scheduler.max_requests } else { 1 }
    }

    /// Nothing is generated any more.
    fn rest(&mut self) {
        self.blocks.rest();
        // The library's number is that of the step's beginning, and no later step would correct it.
        self.metrics.cache_usage.set(0.0);
    }

    fn infer(&mut self) -> Result<()> {
        let failed = |e: fault::Error| Error::backend(e.to_string());
        self.pipeline.step().map_err(failed)?;
        self.metrics.steps.add(1.0);
        let numbers = self.pipeline.metrics().map_err(failed)?;
        self.blocks.take(&numbers);
        if let Some(prefix) = &mut self.prefix {
            prefix.fit(usize::try_from(self.blocks.total() - self.blocks.used()).unwrap_or(usize::MAX));
        }
        self.metrics.cache_usage.set(f64::from(numbers.cache_usage) / 100.0);
        self.metrics.cache_bytes.set(numbers.cache_bytes as f64);
        Ok(())
    }

    /// What each generation got in this step, as one push.
    fn deliver(&mut self, sink: &mut Sink) -> Result<()> {
        let mut news = Vec::new();
        for (task, running) in &mut self.running {
            let before = running.answer.generated;
            let Some(piece) = running.poll(*task)? else { continue };
            if let Some(speculation) = &self.speculation {
                let got = piece.tokens.len() + usize::from(piece.stop_token.is_some());
                if before > 0 && got > 0 {
                    speculation.count(&running.text, running.most - before.min(running.most), got);
                }
            }
            if running.keeps_text {
                running.text.extend(piece.tokens.iter().chain(&piece.stop_token));
            }
            news.push(piece);
        }
        let chunks: Vec<Chunk<'_>> = news.iter().map(News::chunk).collect();
        sink.push(&chunks);
        for piece in &news {
            if piece.is_last()
                && let Some(running) = self.running.remove(&piece.task)
            {
                running.leave(self.prefix.as_mut());
            }
        }
        Ok(())
    }
}

impl SerialEngine for Batch {
    type Limits = Limits;

    fn limits(&self) -> Limits {
        let grammars = self.facts.has_vocabulary;
        let (context, vocabulary) = (self.options.context_length as usize, self.facts.vocabulary);
        Limits { context, vocabulary, grammars, logprobs: true }
    }

    fn check(limits: &Limits, task: &Task) -> Result<()> {
        limits.check(task)
    }

    fn warmup(&mut self, progress: &Report) -> Result<()> {
        progress.report("warmup", 0, 1)?;
        // The first inference of each kind makes kernels; the first request would pay for both.
        let assistant = self.speculation.as_ref().map(Speculation::settings);
        let sampling =
            Sampling { max_tokens: 2, eos: Some(0), ignore_eos: true, assistant, ..Sampling::default() };
        let failed = |e: fault::Error| Error::backend(format!("warm-up: {e}"));
        let mut request = self.pipeline.add(&[1; 8], &sampling).map_err(failed)?;
        let mut tokens = Vec::new();
        while request.poll(&mut tokens).map_err(failed)? == Progress::Running {
            self.infer()?;
            let numbers = self.pipeline.metrics().map_err(failed)?;
            self.blocks.learn(&numbers);
        }
        self.rest();
        if self.options.scheduler.prefix_caching && self.options.device == "CPU" && self.blocks.total() > 0 {
            self.prefix = Some(Prefix::default());
        }
        progress.report("warmup", 1, 1)
    }

    fn start(&mut self, task: Task, sink: &mut Sink) {
        let assistant = self.speculation.as_ref().map(Speculation::settings);
        let sampling = Sampling { assistant, ..sampling(&task, self.facts.vocabulary) };
        match self.pipeline.add(&task.tokens, &sampling) {
            Ok(request) => {
                let (cached, taken) = match &mut self.prefix {
                    Some(prefix) => {
                        let (cached, taken) = prefix.begin(&task.tokens);
                        (Some(cached), taken)
                    }
                    None => (None, Taken::default()),
                };
                let keeps_text = self.prefix.is_some() || self.speculation.is_some();
                let running = Running {
                    request,
                    answer: Answer::to(&task, cached),
                    text: if keeps_text { task.tokens } else { Vec::new() },
                    keeps_text,
                    taken,
                    most: sampling.max_tokens,
                };
                self.running.insert(task.id, running);
            }
            Err(error) => {
                let error = Error::config(error.to_string());
                sink.push(&[Chunk { task: task.id, finish: Finish::Error(&error), ..Chunk::default() }]);
            }
        }
    }

    fn step(&mut self, _budget: Duration, sink: &mut Sink) -> Result<Next> {
        if self.running.is_empty() && !self.owes_step {
            return Ok(Next::Idle);
        }
        self.owes_step = false;
        self.infer()?;
        self.deliver(sink)?;
        if self.running.is_empty() && !self.owes_step {
            self.rest();
        }
        Ok(if self.running.is_empty() { Next::Idle } else { Next::More })
    }

    fn cancel(&mut self, task: u64, sink: &mut Sink) {
        let Some(mut running) = self.running.remove(&task) else { return };
        if let Err(error) = running.request.cancel() {
            log(Level::Warn, "engine", "cancel failed", &[("error", &error.to_string())]);
        }
        running.leave(self.prefix.as_mut());
        self.owes_step = true;
        sink.push(&[Chunk { task, finish: Finish::Cancelled, ..Chunk::default() }]);
    }

    fn has_room(&self) -> bool {
        self.running.len() < self.width()
    }

    fn card(&self) -> Card {
        card::paged(&self.options, &self.facts, self.width())
    }

    fn load(&self) -> Load {
        Load {
            running: u32::try_from(self.running.len()).unwrap_or(u32::MAX),
            waiting: 0,
            kv_blocks_used: self.blocks.used(),
            kv_blocks_total: self.blocks.total(),
            tokens_cached: self.prefix.as_ref().map_or(0, Prefix::tokens),
        }
    }
}
