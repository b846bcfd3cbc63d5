//! `bench engines`: the host with OpenVINO GenAI beside the same library in process and llama.cpp's server.

use super::{ANSWER, Case, Plan, Warm};
use crate::engines::report::{Figure, Report};
use crate::engines::subject::Who;
use crate::engines::verdict::{Bound, Verdict, Verdicts};
use crate::spread::Spread;

const ALL: &[Who] = &[Who::Batch, Who::Library, Who::Single, Who::Llama];
const BATCHED: &[Who] = &[Who::Batch, Who::Library, Who::Llama];

pub(crate) const CASES: [Case; 4] = [
    Case { name: "1 stream", streams: 1, prompt: 20, shared: 0, repeats: 1, tokens: ANSWER, who: ALL },
    Case {
        name: "1 stream, long prompt",
        streams: 1,
        prompt: 1000,
        shared: 0,
        repeats: 1,
        tokens: 8,
        who: ALL,
    },
    Case { name: "8 streams", streams: 8, prompt: 20, shared: 0, repeats: 1, tokens: ANSWER, who: BATCHED },
    Case { name: "16 streams", streams: 16, prompt: 20, shared: 0, repeats: 1, tokens: ANSWER, who: BATCHED },
];

/// See the file.
pub(crate) const PLAN: Plan = Plan {
    who: ALL,
    cases: &CASES,
    starts: 3,
    warm: Warm::Ahead,
    width: |_| 16,
    figures: &[],
    pairs: &[
        (Who::Batch, Who::Library),
        (Who::Single, Who::Library),
        (Who::Batch, Who::Llama),
        (Who::Single, Who::Llama),
    ],
    judge,
};

fn judge(report: &Report) -> Vec<Verdict> {
    let mut all = Verdicts::default();
    for case in CASES.iter().filter(|case| case.prompt < 100) {
        let rate: Figure = if case.streams == 1 { |f| f.decode } else { |f| f.total };
        let rates = |ours, theirs| report.ratio(case.name, ours, theirs, rate);
        let name = case.name;
        all.judge(
            format!("{name}, tokens/s of host --cb to the library in process"),
            rates(Who::Batch, Who::Library),
            Bound::Least(0.95),
        );
        all.judge(
            format!("{name}, tokens/s of host to the library in process"),
            rates(Who::Single, Who::Library),
            Bound::Least(0.95),
        );
        if case.streams > 1 {
            let found = rates(Who::Batch, Who::Llama);
            all.judge(
                format!("{name}, tokens/s of host --cb to llama.cpp's server"),
                found,
                Bound::Least(1.0),
            );
        }
        let outside = outside(report, case);
        all.judge(format!("{name}, host's share of its processor time"), outside, Bound::Most(0.02));
    }
    all.0
}

/// The host's part of what host and engine use together: at most what it uses with an engine that only waits.
fn outside(report: &Report, case: &Case) -> Option<Spread> {
    let idle = report.idle.iter().find(|idle| idle.streams == case.streams)?.cpu;
    let whole = report.spread(case.name, Who::Batch, |f| f.cpu)?.median;
    Some(Spread { median: idle.median / whole, low: idle.low / whole, high: idle.high / whole })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::plan::Found;
    use crate::engines::report::{Idle, Row};

    fn report(ours: &[f64], theirs: &[f64], idle: f64) -> Report {
        let row = |who, totals: &[f64]| {
            let found = |total: &f64| Found { total: *total, cpu: 10.0, ..Found::default() };
            Row { case: CASES[2], who, rounds: totals.iter().map(found).collect() }
        };
        let rows = vec![row(Who::Batch, ours), row(Who::Library, theirs)];
        let idle = vec![Idle { streams: 8, cpu: Spread { median: idle, low: idle, high: idle } }];
        Report { rows, idle, ..Report::new(&PLAN, 2) }
    }

    #[test]
    fn rounds_are_compared_with_their_neighbours() {
        // Two halves each; the last round was four times as slow for both.
        let ours = [100.0, 100.0, 96.0, 96.0, 24.0, 24.0];
        let theirs = [100.0, 100.0, 100.0, 100.0, 25.0, 25.0];
        let verdicts = judge(&report(&ours, &theirs, 0.1));
        assert_eq!(verdicts.iter().map(Verdict::is_met).collect::<Vec<_>>(), [true, true]);
        assert!((verdicts[0].found.median - 0.96).abs() < 1e-9, "{}", verdicts[0].text());
    }

    #[test]
    fn a_missed_target_is_told_and_what_was_not_run_is_not() {
        let report = report(&[90.0], &[100.0], 0.3);
        let missed = judge(&report).iter().filter(|verdict| !verdict.is_met()).count();
        assert_eq!((judge(&report).len(), missed), (2, 2));
        assert!(report.text().contains("MISSED  8 streams, host's share"), "{}", report.text());
        assert_eq!(report.json()["pairs"].as_array().map(Vec::len), Some(1));
    }
}
