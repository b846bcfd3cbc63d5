//! What our own engine says of its steps: how many, and what their time went into (`step_seconds` on the host's `/metrics`).

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use cascadia_tests::client::Client;
use cascadia_tests::scrape::Scrape;

/// Where an engine keeps its series.
const SERIES: &str = "cascadia_plugin_ov_runtime_";

/// Counts since the engine's start, or between two looks. Times in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Steps {
    pub(crate) count: f64,
    /// Choosing the rows, and writing down afterwards what became of them.
    pub(crate) plan: f64,
    /// Giving the rows to the library.
    pub(crate) bind: f64,
    /// Inside the library.
    pub(crate) infer: f64,
    /// From logits to tokens.
    pub(crate) sample: f64,
    /// Inside the draft model, where there is one.
    pub(crate) draft: f64,
    /// Tokens of prompts that were found in the prefix cache.
    pub(crate) hits: f64,
    /// Guessed tokens that held, and those that did not.
    pub(crate) held: f64,
    pub(crate) refused: f64,
}

impl Steps {
    /// As the host at `address` tells them now.
    pub(crate) fn of(address: SocketAddr) -> Result<Steps> {
        let answer = Client { address }.get("/metrics")?;
        ensure!(answer.status() == 200, "/metrics answered {}", answer.status());
        let steps = Steps::read(&Scrape::parse(&answer.text())?);
        ensure!(steps.count > 0.0, "the engine tells nothing of its steps");
        Ok(steps)
    }

    fn read(scrape: &Scrape) -> Steps {
        let of = |name: &str, labels: &[(&str, &str)]| scrape.sum(&format!("{SERIES}{name}"), labels);
        let part = |part: &str| of("step_seconds_sum", &[("part", part)]);
        let drafts = |outcome: &str| of("draft_tokens_total", &[("outcome", outcome)]);
        Steps {
            count: of("step_seconds_count", &[("part", "infer")]),
            plan: part("plan"),
            bind: part("bind"),
            infer: part("infer"),
            sample: part("sample"),
            draft: part("draft"),
            hits: of("prefix_hit_tokens_total", &[]),
            held: drafts("accepted"),
            refused: drafts("rejected"),
        }
    }

    /// What came since `before`, which was at least one step.
    pub(crate) fn since(&self, before: &Steps) -> Result<Steps> {
        let count = self.count - before.count;
        (count > 0.0).then_some(()).context("no step was made")?;
        Ok(Steps {
            count,
            plan: self.plan - before.plan,
            bind: self.bind - before.bind,
            infer: self.infer - before.infer,
            sample: self.sample - before.sample,
            draft: self.draft - before.draft,
            hits: self.hits - before.hits,
            held: self.held - before.held,
            refused: self.refused - before.refused,
        })
    }

    /// All parts.
    pub(crate) fn whole(&self) -> f64 {
        self.loop_of() + self.infer + self.draft
    }

    /// All parts in which no model computes.
    pub(crate) fn loop_of(&self) -> f64 {
        self.plan + self.bind + self.sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_from_the_exposition_and_counted_between_two_looks() {
        let told = |scale: u32| {
            let part = |part: &str, sum: u32| {
                format!(
                    "{SERIES}step_seconds_sum{{part=\"{part}\",worker=\"w\"}} {}\n{SERIES}step_seconds_count{{part=\"{part}\",worker=\"w\"}} {scale}\n",
                    scale * sum
                )
            };
            let parts = [("plan", 1), ("bind", 2), ("infer", 90), ("sample", 7), ("draft", 5)];
            let parts = parts.map(|(name, sum)| part(name, sum)).concat();
            let guesses = |outcome: &str, sum: u32| {
                format!("{SERIES}draft_tokens_total{{outcome=\"{outcome}\",worker=\"w\"}} {}\n", scale * sum)
            };
            let guesses = [guesses("accepted", 3), guesses("rejected", 4)].concat();
            let hits = format!("{SERIES}prefix_hit_tokens_total{{worker=\"w\"}} {}\n", scale * 512);
            let text = [parts, guesses, hits].concat();
            Steps::read(&Scrape::parse(&text).expect("an exposition"))
        };
        let found = told(3).since(&told(1)).expect("two steps");
        assert_eq!((found.count, found.loop_of(), found.whole(), found.hits), (2.0, 20.0, 210.0, 1024.0));
        assert_eq!((found.draft, found.held, found.refused), (10.0, 6.0, 8.0));
        assert!(told(3).since(&told(3)).is_err(), "no step in between");
    }
}
