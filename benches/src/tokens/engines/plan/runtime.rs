//! `bench runtime`: the host with our own batching over OpenVINO beside OpenVINO GenAI's in process, from one stream to 32, and
//! beside llama.cpp's server at 16.
//!
//! Each case has two subjects, so that a ratio is always one of neighbours. The two with 16 streams have the same prompts, which
//! are too short for a block of a prefix cache; each volley is checked to have found there what it should.

use super::{ANSWER, Case, Plan, Warm, figures};
use crate::engines::report::Report;
use crate::engines::subject::Who;
use crate::engines::verdict::{Bound, Verdict, Verdicts};

const LIBRARY: &[Who] = &[Who::Runtime, Who::Library];
const LLAMA: &[Who] = &[Who::Runtime, Who::Llama];
/// The case beside llama.cpp's server.
const BESIDE_LLAMA: &str = "16 beside llama.cpp";

const fn beside_library(name: &'static str, streams: usize) -> Case {
    Case { name, streams, prompt: 20, shared: 0, repeats: 1, tokens: ANSWER, who: LIBRARY }
}

pub(crate) const CASES: [Case; 7] = [
    beside_library("1 stream", 1),
    beside_library("4 streams", 4),
    beside_library("8 streams", 8),
    beside_library("16 streams", 16),
    beside_library("32 streams", 32),
    Case { name: BESIDE_LLAMA, streams: 16, prompt: 20, shared: 0, repeats: 1, tokens: ANSWER, who: LLAMA },
    Case { name: "prefix of 512", streams: 1, prompt: 528, shared: 512, repeats: 1, tokens: 8, who: LIBRARY },
];

/// See the file.
pub(crate) const PLAN: Plan = Plan {
    who: &[Who::Runtime, Who::Library, Who::Llama],
    cases: &CASES,
    starts: 0,
    warm: Warm::Ahead,
    width: |who| if who == Who::Llama { 16 } else { 32 },
    figures: &[figures::STEPS],
    pairs: &[(Who::Runtime, Who::Library), (Who::Runtime, Who::Llama)],
    judge,
};

fn judge(report: &Report) -> Vec<Verdict> {
    let mut all = Verdicts::default();
    for case in &CASES {
        let name = case.name;
        if case.shared > 0 {
            figures::judge_gain(report, name, Who::Runtime, &mut all);
            continue;
        }
        let rate = |theirs| report.ratio(name, Who::Runtime, theirs, |f| f.total);
        let what = format!("{name}, tokens/s of ov-runtime");
        all.judge(format!("{what} to the library in process"), rate(Who::Library), Bound::Least(0.95));
        all.judge(format!("{what} to llama.cpp's server"), rate(Who::Llama), Bound::Least(2.5));
        let found = report.spread(name, Who::Runtime, figures::outside);
        all.judge(format!("{name}, ov-runtime's loop outside infer of a step"), found, Bound::Most(0.01));
    }
    all.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::plan::Found;
    use crate::engines::report::Row;
    use crate::engines::steps::Steps;

    fn found(total: f64, warm: f64, sample: f64) -> Found {
        let steps = Steps { count: 32.0, infer: 0.99, sample, ..Steps::default() };
        Found { total, first: 100.0, warm, took: 2.0, steps: Some(steps), ..Found::default() }
    }

    #[test]
    fn each_pair_has_its_own_target_and_the_loop_is_all_but_infer() {
        let row = |case, who, found| Row { case, who, rounds: vec![found] };
        let rows = vec![
            row(CASES[0], Who::Runtime, found(96.0, f64::NAN, 0.005)),
            row(CASES[0], Who::Library, found(100.0, f64::NAN, 0.0)),
            row(CASES[5], Who::Runtime, found(240.0, f64::NAN, 0.02)),
            row(CASES[5], Who::Llama, found(100.0, f64::NAN, 0.0)),
            row(CASES[6], Who::Runtime, found(1.0, 12.0, 0.0)),
        ];
        let report = Report { rows, ..Report::new(&PLAN, 1) };
        let told = |verdict: &Verdict| (verdict.is_met(), (verdict.found.median * 1000.0).round());
        let verdicts: Vec<_> = judge(&report).iter().map(told).collect();
        assert_eq!(
            verdicts,
            [(true, 960.0), (true, 5.0), (false, 2400.0), (false, 20.0), (true, 8333.0)],
            "{}",
            report.text()
        );
        let json = report.json();
        assert_eq!(json["rows"][0]["figures"]["share_of_time_between_steps"]["median"], 1.0 - 0.995 / 2.0);
        assert!(json["rows"][0]["figures"]["second_first_token_ms"]["median"].is_null());
        assert_eq!(json["pairs"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn the_order_of_starts_is_no_difference() {
        let row = |who, totals: [f64; 4]| {
            let rounds = totals.map(|total| found(total, f64::NAN, 0.0)).into();
            Row { case: CASES[0], who, rounds }
        };
        // Whoever was started later is 25 % faster; the second round is half as fast for both.
        let rows =
            vec![row(Who::Runtime, [80.0, 100.0, 40.0, 50.0]), row(Who::Library, [100.0, 80.0, 50.0, 40.0])];
        let report = Report { rows, ..Report::new(&PLAN, 1) };
        let ratio = report.ratio(CASES[0].name, Who::Runtime, Who::Library, |f| f.total).expect("a pair");
        for found in [ratio.median, ratio.low, ratio.high] {
            assert!((found - 1.0).abs() < 1e-9, "{ratio:?}");
        }
    }
}
