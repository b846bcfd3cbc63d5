//! `bench exact`: the host with our own batching over OpenVINO in f32, without guesses and with both kinds of them.
//!
//! Nobody else is compared with: what the others compute in f32 is another question. The draft is a second copy of the model, so a
//! guess costs as much as a token, and the policy has to find out that none is worth it. It learns what steps cost inside its process
//! and begins with credit for some guesses; what is measured is what it comes to, so volleys of the same case come right before.

use super::{ANSWER, Case, Plan, Warm, figures};
use crate::engines::report::Report;
use crate::engines::subject::Who;
use crate::engines::verdict::{Bound, Verdict, Verdicts};

const ALL: &[Who] = &[Who::Exact, Who::Lookup, Who::Draft];

/// Words at random, in which nothing can be looked up but what the answer says again.
const fn random(name: &'static str, streams: usize, tokens: usize) -> Case {
    Case { name, streams, prompt: 20, shared: 0, repeats: 1, tokens, who: ALL }
}

pub(crate) const CASES: [Case; 5] = [
    random("1 stream", 1, 4 * ANSWER),
    random("4 streams", 4, 2 * ANSWER),
    random("16 streams", 16, ANSWER),
    Case {
        name: "copied text, 1 stream",
        streams: 1,
        prompt: 160,
        shared: 0,
        repeats: 4,
        tokens: 64,
        who: &[Who::Exact, Who::Lookup],
    },
    Case {
        name: "prefix of 512",
        streams: 1,
        prompt: 528,
        shared: 512,
        repeats: 1,
        tokens: 8,
        who: &[Who::Exact],
    },
];

/// See the file.
pub(crate) const PLAN: Plan = Plan {
    who: ALL,
    cases: &CASES,
    starts: 0,
    warm: Warm::Before(2),
    width: |_| 16,
    figures: &[figures::STEPS, figures::GUESSES],
    pairs: &[(Who::Lookup, Who::Exact), (Who::Draft, Who::Exact)],
    judge,
};

fn judge(report: &Report) -> Vec<Verdict> {
    let mut all = Verdicts::default();
    for case in &CASES {
        let name = case.name;
        if case.shared > 0 {
            figures::judge_gain(report, name, Who::Exact, &mut all);
            continue;
        }
        let bound = Bound::Least(if case.repeats > 1 { 1.3 } else { 0.97 });
        for (who, guesses) in [(Who::Lookup, "prompt lookup"), (Who::Draft, "a draft model")] {
            let found = report.ratio(name, who, Who::Exact, |f| f.total);
            all.judge(format!("{name}, tokens/s with {guesses} to those without"), found, bound);
        }
    }
    all.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::plan::Found;
    use crate::engines::report::Row;
    use crate::engines::steps::Steps;

    fn found(total: f64, held: f64) -> Found {
        let steps = Steps { count: 32.0, infer: 0.5, draft: 0.5, held, refused: 10.0, ..Steps::default() };
        Found { total, took: 2.0, first: 90.0, warm: 10.0, steps: Some(steps), ..Found::default() }
    }

    fn row(case: Case, who: Who, found: Found) -> Row {
        Row { case, who, rounds: vec![found] }
    }

    #[test]
    fn guesses_may_not_slow_random_words_and_must_speed_a_copied_text() {
        let rows = vec![
            row(CASES[0], Who::Exact, found(100.0, 0.0)),
            row(CASES[0], Who::Lookup, found(98.0, 0.0)),
            row(CASES[0], Who::Draft, found(96.0, 0.0)),
            row(CASES[3], Who::Exact, found(100.0, 0.0)),
            row(CASES[3], Who::Lookup, found(125.0, 0.0)),
            row(CASES[4], Who::Exact, found(100.0, 0.0)),
        ];
        let report = Report { rows, ..Report::new(&PLAN, 1) };
        let told = |verdict: &Verdict| (verdict.is_met(), (verdict.found.median * 1000.0).round());
        let verdicts: Vec<_> = judge(&report).iter().map(told).collect();
        let wanted = [(true, 980.0), (false, 960.0), (false, 1250.0), (true, 9000.0)];
        assert_eq!(verdicts, wanted, "{}", report.text());
        assert_eq!(report.json()["pairs"].as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn guesses_are_told_for_each_token_and_their_time_as_a_part_of_the_steps() {
        let rows = vec![row(CASES[0], Who::Draft, found(100.0, 50.0))];
        let json = Report { rows, ..Report::new(&PLAN, 1) }.json();
        let figure = |name: &str| json["rows"][0]["figures"][name]["median"].as_f64();
        assert_eq!(figure("guesses_held_per_token"), Some(0.25));
        assert_eq!(figure("guesses_refused_per_token"), Some(0.05));
        assert_eq!(figure("draft_share_of_steps"), Some(0.5));
        assert_eq!(figure("share_of_time_between_steps"), Some(0.5));
    }
}
