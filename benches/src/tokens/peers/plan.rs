//! What is compared with whom, and what one run of it finds.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::launch::Stock;
use super::server::{Model, Server, Who};
use crate::generator::Generator;
use crate::plan::PACE;
use crate::spread::Histogram;
use crate::subject::Manner;

/// Tokens of every answer.
const TOKENS: u32 = 64;

/// Some servers under the same load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// For people and reports.
    pub(crate) name: &'static str,
    pub(crate) manner: Manner,
    pub(crate) model: Model,
    /// Ours is the first that begins with "host".
    pub(crate) who: &'static [Who],
    /// Measured length of a run, in seconds.
    pub(crate) seconds: f64,
}

const FLAT: &[Who] = &[Who::Host, Who::Bare, Who::Smg, Who::Sglang, Who::Dynamo];
/// Dynamo's mocker has a pace of its own making.
const PACED: &[Who] = &[Who::Host, Who::Bare, Who::Smg, Who::Sglang];
const ENGINES: &[Who] = &[Who::Engine, Who::Llama];

/// All of it, or what is worth a look between two changes.
pub(crate) fn cases(quick: bool) -> Vec<Case> {
    let case = |name, model, who, streams, pace_us, seconds| {
        let manner = Manner { streams, tokens: TOKENS, pace_us, idle: false };
        Case { name, manner, model, who, seconds: if quick { seconds / 2.0 } else { seconds } }
    };
    let flat = |streams| case("no engine, flat out", Model::None, FLAT, streams, 0, 1.5);
    let paced = |streams| case("no engine, every 5 ms", Model::None, PACED, streams, PACE, 1.5);
    let tiny = |streams| case("tiny engine", Model::Tiny, ENGINES, streams, 0, 1.5);
    let real = |streams| case("SmolLM2-135M", Model::Real, ENGINES, streams, 0, 10.0);
    if quick {
        return vec![flat(1), flat(16), tiny(16), real(8)];
    }
    vec![flat(1), flat(16), flat(256), paced(16), paced(256), tiny(1), tiny(16), tiny(256), real(1), real(8)]
}

/// What one run found. Times in microseconds, memory in KiB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Found {
    /// Processor time for a token that the client received, of the part that the client talks to.
    pub(crate) front: f64,
    /// The same of all parts.
    pub(crate) all: f64,
    /// Share of one core that all parts used.
    pub(crate) core: f64,
    pub(crate) tokens_per_second: f64,
    pub(crate) answers_per_second: f64,
    pub(crate) failed: f64,
    /// From request to first token: middle, 99th of a hundred.
    pub(crate) first: [f64; 2],
    /// From request to the end of the answer: the same.
    pub(crate) whole: [f64; 2],
    /// Gap between two tokens of a stream, 99th of a hundred.
    pub(crate) gap: f64,
    /// Resident memory after the run: front, all.
    pub(crate) resident: [f64; 2],
}

/// One run of one server.
pub(crate) fn run(case: &Case, who: Who, stock: &Stock) -> Result<Found> {
    let server = Server::start(who, case.model, &case.manner, stock)?;
    let mut generator =
        Generator::open(server.address, case.manner.streams, server.request.clone(), server.shape)?;
    generator.begin()?;
    // Beyond the moment in which all of them begin.
    generator.run(Duration::from_millis(500))?;
    let (before, begun) = (server.cpu()?, Instant::now());
    let tally = generator.run(Duration::from_secs_f64(case.seconds))?;
    let (after, took) = (server.cpu()?, begun.elapsed().as_secs_f64());
    ensure!(tally.chunks > 0, "no token came in {took:.1} s");
    let used = |part: usize| after[part].saturating_sub(before[part]).as_secs_f64();
    let each = |part: usize| used(part) * 1e6 / tally.chunks as f64;
    Ok(Found {
        front: each(0),
        all: each(1),
        core: used(1) / took,
        tokens_per_second: tally.chunks as f64 / took,
        answers_per_second: tally.answers as f64 / took,
        failed: tally.failed as f64,
        first: middle_and_most(&tally.first),
        whole: middle_and_most(&tally.whole),
        gap: tally.gaps.quantile(0.99) as f64,
        resident: server.resident()?,
    })
}

/// Not numbers where no answer began or ended in the run.
fn middle_and_most(times: &Histogram) -> [f64; 2] {
    let of = |part| if times.most() == 0 { f64::NAN } else { times.quantile(part) as f64 };
    [of(0.5), of(0.99)]
}
