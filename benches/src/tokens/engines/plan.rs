//! What is asked of all, what one volley of it finds, and what the host costs without an engine.

use anyhow::{Context, Result};
use cascadia_tests::Dice;

use super::subject::{Subject, Who};
use super::threads::Threads;
use super::volley::{self, Volley};
use super::words::{Prompt, Words};
use crate::spread::Spread;
use crate::subject::{self, Manner};
use crate::system::cpu;

/// Tokens of an answer, where its speed counts.
pub(crate) const ANSWER: usize = 32;
/// Volleys of the host without an engine.
const IDLE_ROUNDS: usize = 3;

/// Some prompts at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// For people and reports.
    pub(crate) name: &'static str,
    pub(crate) streams: usize,
    /// Tokens of each prompt.
    pub(crate) prompt: usize,
    /// Tokens of each answer.
    pub(crate) tokens: usize,
    pub(crate) who: &'static [Who],
}

const ALL: &[Who] = &[Who::Batch, Who::Library, Who::Single, Who::Llama];
const BATCHED: &[Who] = &[Who::Batch, Who::Library, Who::Llama];

/// In the order of the report.
pub(crate) const CASES: [Case; 4] = [
    Case { name: "1 stream", streams: 1, prompt: 20, tokens: ANSWER, who: ALL },
    Case { name: "1 stream, long prompt", streams: 1, prompt: 1000, tokens: 8, who: ALL },
    Case { name: "8 streams", streams: 8, prompt: 20, tokens: ANSWER, who: BATCHED },
    Case { name: "16 streams", streams: 16, prompt: 20, tokens: ANSWER, who: BATCHED },
];

impl Case {
    /// The prompts of a round, the same for everyone.
    pub(crate) fn prompts(&self, words: &Words, round: u64) -> Vec<Prompt> {
        let seed = (self.prompt * 100 + self.streams) as u64;
        let mut dice = Dice::new(seed, round);
        (0..self.streams).map(|_| words.prompt(&mut dice, self.prompt)).collect()
    }

    fn all_tokens(&self) -> f64 {
        (self.streams * self.tokens) as f64
    }
}

/// What one volley found.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Found {
    /// From the requests to the first token, the middle of the streams, in milliseconds.
    pub(crate) first: f64,
    /// Tokens a second of one stream behind its first token, the middle of the streams.
    pub(crate) decode: f64,
    /// Tokens a second of all streams, prompts included in the time.
    pub(crate) total: f64,
    /// Processor time for a token, in milliseconds, prompts included.
    pub(crate) cpu: f64,
    /// The part of it in threads in which no engine computes; not a number where the names do not say.
    pub(crate) others: f64,
    /// Resident memory afterwards, in MiB.
    pub(crate) resident: f64,
}

/// One volley of one subject.
pub(crate) fn run(case: &Case, subject: &mut Subject, prompts: &[Prompt]) -> Result<Found> {
    let process = subject.group.process();
    let (threads, before) = (Threads::of(process)?, subject.group.cpu()?);
    let volley = subject.fly(prompts, case.tokens)?;
    let used = subject.group.cpu()?.saturating_sub(before).as_secs_f64();
    let shares = Threads::of(process)?.since(&threads);
    let whole = (shares.engine + shares.others).as_secs_f64();
    let others = if subject.who.is_host() { shares.others.as_secs_f64() / whole } else { f64::NAN };
    Ok(Found {
        first: Spread::of(volley.first.iter().map(|first| first * 1e3)).median,
        decode: decode(case, &volley),
        total: case.all_tokens() / volley.took(),
        cpu: used * 1e3 / case.all_tokens(),
        others,
        resident: subject.group.resident()? / 1024.0,
    })
}

fn decode(case: &Case, volley: &Volley) -> f64 {
    let behind = (case.tokens - 1) as f64;
    Spread::of(volley.first.iter().zip(&volley.last).map(|(first, last)| behind / (last - first))).median
}

/// Milliseconds of processor time that the host needs for a token when its engine, the mock, only waits: the whole process, the
/// mock's share included, at the pace of `decode` tokens a second and stream. More than what is outside a real engine.
pub(crate) fn without_engine(case: &Case, decode: f64) -> Result<Spread> {
    let manner = Manner {
        streams: case.streams,
        tokens: u32::try_from(case.tokens).context("a number of tokens")?,
        pace_us: (1e6 / decode) as u64,
        idle: false,
    };
    let host = subject::Subject::start(subject::Who::Host, &manner)?;
    let mut found = Vec::new();
    for round in 0..=IDLE_ROUNDS {
        let prompt = |stream: usize| Prompt { ids: Vec::new(), text: format!(" stream {stream} of {round}") };
        let requests: Vec<_> =
            (0..case.streams).map(|stream| volley::request("mock", &prompt(stream), case.tokens)).collect();
        let before = cpu(host.process())?;
        volley::fly(host.address, &requests, 0, case.tokens)?;
        found.push((cpu(host.process())? - before).as_secs_f64() * 1e3 / case.all_tokens());
    }
    // The first warms it.
    Ok(Spread::of(found.into_iter().skip(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_timed_behind_its_first_token() {
        let case = CASES[0];
        let volley = Volley { first: vec![2.0], last: vec![2.0 + 3.1] };
        assert!((decode(&case, &volley) - 10.0).abs() < 1e-9);
    }
}
