//! The engine's own series on the host's `/metrics`.

use std::time::Duration;

use cascadia_batching::Load;
use cascadia_plugin_api::sdk::{Metric, Worker};

use crate::generations::Took;

/// Rows in a step: powers of two, as prompts are cut into chunks of one.
const ROWS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
/// Seconds of a part of a step: microseconds to plan, milliseconds to seconds to compute.
const SECONDS: [f64; 16] = [
    0.000_01, 0.000_03, 0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
];

pub(crate) struct Meter {
    rows: Metric,
    plan: Metric,
    bind: Metric,
    infer: Metric,
    sample: Metric,
    free: Metric,
    held: Metric,
    cached: Metric,
    waiting: Metric,
    hits: Metric,
    queries: Metric,
    preemptions: Metric,
    /// Guesses that held and that did not, where any are made.
    drafts: Option<(Metric, Metric)>,
    /// Where a draft model makes them: its time, and its blocks, free and held.
    model: Option<(Metric, Metric, Metric)>,
    /// The scheduler's counts when they were told last.
    told: Load,
}

impl Meter {
    pub(crate) fn new(worker: Worker, guesses: bool, model: bool) -> Meter {
        let part = |part: &str| {
            let help = "Seconds of a step, by what they were spent on.";
            worker.histogram("step_seconds", help, &[("part", part)], &SECONDS)
        };
        let drafts = |outcome: &str| {
            let help = "Guessed tokens that a step checked.";
            worker.counter("draft_tokens_total", help, &[("outcome", outcome)])
        };
        let model_blocks = |state: &str| {
            let help = "Blocks of the draft model's KV cache: free, or held by generations.";
            worker.gauge("draft_kv_blocks", help, &[("state", state)])
        };
        let blocks = |state: &str| {
            let help = "Blocks of the KV cache: free, held by generations, or cached for reuse.";
            worker.gauge("kv_blocks", help, &[("state", state)])
        };
        Meter {
            rows: worker.histogram("step_rows", "Tokens computed in a step, prompts included.", &[], &ROWS),
            plan: part("plan"),
            bind: part("bind"),
            infer: part("infer"),
            sample: part("sample"),
            free: blocks("free"),
            held: blocks("held"),
            cached: blocks("cached"),
            waiting: worker.gauge("waiting", "Generations in the engine that hold no blocks.", &[]),
            hits: worker.counter(
                "prefix_hit_tokens_total",
                "Tokens of begun generations that were found in the prefix cache.",
                &[],
            ),
            queries: worker.counter("prefix_query_tokens_total", "Tokens of begun generations.", &[]),
            preemptions: worker.counter(
                "preemptions_total",
                "Times that a generation gave its blocks to others, to be computed again.",
                &[],
            ),
            drafts: guesses.then(|| (drafts("accepted"), drafts("rejected"))),
            model: model.then(|| (part("draft"), model_blocks("free"), model_blocks("held"))),
            told: Load::default(),
        }
    }

    /// A step was made.
    pub(crate) fn step(&self, took: &Took) {
        self.rows.observe(took.rows as f64);
        let parts = [
            (self.plan, took.plan),
            (self.bind, took.bind),
            (self.infer, took.infer),
            (self.sample, took.sample),
        ];
        for (metric, time) in parts {
            metric.observe(Duration::as_secs_f64(&time));
        }
        if let Some((draft, ..)) = self.model {
            draft.observe(took.draft.as_secs_f64());
        }
        if let Some((accepted, rejected)) = self.drafts {
            let (made, held) = took.drafts;
            accepted.add(held.into());
            rejected.add((made - held.min(made)).into());
        }
    }

    /// How the draft model's blocks stand: held, and all there are.
    pub(crate) fn draft_blocks(&self, (held, all): (usize, usize)) {
        if let Some((_, free, held_now)) = self.model {
            free.set((all - held.min(all)) as f64);
            held_now.set(held as f64);
        }
    }

    /// How it stands now.
    pub(crate) fn load(&mut self, load: &Load) {
        let gauges = [
            (self.free, load.free),
            (self.held, load.held),
            (self.cached, load.cached),
            (self.waiting, load.waiting),
        ];
        for (metric, value) in gauges {
            metric.set(value as f64);
        }
        let counters = [
            (self.hits, load.hit_tokens, self.told.hit_tokens),
            (self.queries, load.query_tokens, self.told.query_tokens),
            (self.preemptions, load.preemptions, self.told.preemptions),
        ];
        for (metric, now, before) in counters {
            if now > before {
                metric.add((now - before) as f64);
            }
        }
        self.told = *load;
    }
}
