//! What our own engine's account of its steps comes to, for the plans that ask it.

use super::Found;
use crate::engines::report::{Figure, Report};
use crate::engines::steps::Steps;
use crate::engines::subject::Who;
use crate::engines::verdict::{Bound, Verdicts};

/// Of the prefix cache and the steps.
pub(crate) const STEPS: &[(&str, Figure)] = &[
    ("second_first_token_ms", |f| f.warm),
    ("first_to_second", gain),
    ("steps", |f| of(f, |s| s.count)),
    ("infer_ms_per_step", |f| of(f, |s| s.infer * 1e3 / s.count)),
    ("plan_share_of_steps", |f| of(f, |s| s.plan / s.whole())),
    ("bind_share_of_steps", |f| of(f, |s| s.bind / s.whole())),
    ("sample_share_of_steps", |f| of(f, |s| s.sample / s.whole())),
    ("loop_share_of_steps", outside),
    ("share_of_time_between_steps", |f| of(f, |s| 1.0 - s.whole() / f.took)),
];

/// Of the guesses: the time of the draft model, and guesses for each token of the answers.
pub(crate) const GUESSES: &[(&str, Figure)] = &[
    ("draft_share_of_steps", |f| of(f, |s| s.draft / s.whole())),
    ("guesses_held_per_token", |f| of(f, |s| s.held / tokens(f))),
    ("guesses_refused_per_token", |f| of(f, |s| s.refused / tokens(f))),
];

/// Of the engine's own account; not a number where it gives none.
fn of(found: &Found, figure: impl Fn(&Steps) -> f64) -> f64 {
    found.steps.as_ref().map_or(f64::NAN, figure)
}

fn tokens(found: &Found) -> f64 {
    found.total * found.took
}

/// How many times sooner the second of two prompts that begin alike has its first token.
fn gain(found: &Found) -> f64 {
    found.first / found.warm
}

/// Judges [`gain`].
pub(crate) fn judge_gain(report: &Report, case: &str, who: Who, all: &mut Verdicts) {
    let what = format!("{case}, time to a first token without the prefix in the cache to that with it");
    all.judge(what, report.spread(case, who, gain), Bound::Least(8.0));
}

/// The part of the steps' time in which no model computes: plan, bind and sample.
pub(crate) fn outside(found: &Found) -> f64 {
    of(found, |steps| steps.loop_of() / steps.whole())
}
