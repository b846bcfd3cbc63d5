//! What is run, what a round of it finds, and what is asked of that.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::generator::{Generator, Shape, request};
use crate::subject::{Manner, Subject, Who};
use crate::system::{cpu, resident};

/// Answers of the flat-out runs.
const SHORT: u32 = 64;
/// Answers that outlast a run.
const LONG: u32 = 20_000;
/// The pace of the paced runs, in microseconds.
pub(crate) const PACE: u64 = 5000;
const SECOND: u64 = 1_000_000;

/// One row's worth of runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// For people and reports.
    pub(crate) name: &'static str,
    pub(crate) manner: Manner,
    pub(crate) who: &'static [Who],
    /// Runs of each; one where a run is long and a count, not a time.
    pub(crate) once: bool,
    /// Measured long of a run, in seconds.
    pub(crate) seconds: f64,
}

const ALL: &[Who] = &[Who::Host, Who::Hyper, Who::Bare];
const LOGGED: &[Who] = &[Who::Host, Who::Logged, Who::Hyper, Who::Bare];

const fn flat(streams: usize, who: &'static [Who]) -> Case {
    let manner = Manner { streams, tokens: SHORT, pace_us: 0, idle: false };
    Case { name: "flat out", manner, who, once: false, seconds: 1.5 }
}

const fn paced(streams: usize) -> Case {
    let manner = Manner { streams, tokens: LONG, pace_us: PACE, idle: false };
    Case { name: "paced, 5 ms", manner, who: ALL, once: false, seconds: 1.5 }
}

/// All of it, or what is worth a look between two changes.
pub(crate) fn cases(quick: bool) -> Vec<Case> {
    let idle = Manner { streams: 10_000, tokens: LONG, pace_us: 0, idle: true };
    let slow = Manner { streams: 10_000, tokens: LONG, pace_us: SECOND, idle: false };
    let host = &[Who::Host];
    let mut cases = vec![
        flat(1, ALL),
        flat(16, ALL),
        flat(256, LOGGED),
        flat(2000, ALL),
        paced(1),
        paced(16),
        paced(256),
        paced(2000),
        Case { name: "idle", manner: idle, who: host, once: true, seconds: 0.0 },
        Case { name: "a token a second", manner: slow, who: ALL, once: true, seconds: 10.0 },
    ];
    if quick {
        cases = vec![flat(16, ALL), flat(256, ALL), paced(16), paced(256)];
        cases.iter_mut().for_each(|case| case.seconds = 0.8);
        cases.push(Case { name: "idle", manner: idle, who: host, once: true, seconds: 0.0 });
    }
    cases
}

/// What one run found. Times in microseconds, memory in KiB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Found {
    /// Processor time of the subject for a token that the client received.
    pub(crate) cpu: f64,
    /// Share of one core that the subject used.
    pub(crate) core: f64,
    pub(crate) tokens_per_second: f64,
    pub(crate) answers_per_second: f64,
    pub(crate) failed: f64,
    /// Gap between two tokens of a stream, less the pace: middle, 99th of a hundred, largest.
    pub(crate) late: [f64; 3],
    /// From request to first token: middle, 99th of a hundred.
    pub(crate) first: [f64; 2],
    /// From the start of its process until it serves, in milliseconds.
    pub(crate) ready: f64,
    /// Resident memory once it serves.
    pub(crate) at_start: f64,
    /// Growth of resident memory for each stream.
    pub(crate) each: f64,
}

/// One run of one subject.
pub(crate) fn run(case: &Case, who: Who) -> Result<Found> {
    let subject = Subject::start(who, &case.manner)?;
    let process = subject.process();
    let (at_start, anonymous) = resident(process);
    let Manner { streams, tokens, pace_us, .. } = case.manner;
    let asked = request("mock", tokens, "");
    let mut generator = Generator::open(subject.address, streams, asked, Shape::ours(tokens))?;
    generator.begin()?;
    // Beyond the moment in which all of them begin.
    generator.run(Duration::from_millis(300))?;
    let (before, begun) = (cpu(process)?, Instant::now());
    let tally = generator.run(Duration::from_secs_f64(case.seconds))?;
    let (used, took) = ((cpu(process)? - before).as_secs_f64(), begun.elapsed().as_secs_f64());
    let late = |micros: u64| micros.saturating_sub(pace_us) as f64;
    let (gaps, first) = (&tally.gaps, &tally.first);
    Ok(Found {
        cpu: used * 1e6 / tally.chunks as f64,
        core: used / took,
        tokens_per_second: tally.chunks as f64 / took,
        answers_per_second: tally.answers as f64 / took,
        failed: tally.failed as f64,
        late: [late(gaps.quantile(0.5)), late(gaps.quantile(0.99)), late(gaps.most())],
        first: [first.quantile(0.5) as f64, first.quantile(0.99) as f64],
        ready: subject.ready.as_secs_f64() * 1e3,
        at_start,
        each: (resident(process).1 - anonymous) / streams as f64,
    })
}
