//! The test of a step's budget: a hint, of which any is taken. Steps over it are told and no fault.

use std::time::Duration;

use super::ask::Ask;
use super::note::note;
use super::rig::Rig;
use super::{Outcome, Plan, Test};

pub(super) const TESTS: &[Test] =
    &[Test { name: "the work gets done whatever the budget of a step", run: budgets }];

/// How far a step may go over its budget before that is told.
const GRACE: Duration = Duration::from_millis(50);

fn budgets(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let mut told = Vec::new();
    for (budget_us, words) in [(1, "1 us"), (10_000, "10 ms"), (u32::MAX, "an hour")] {
        rig.pace().set(budget_us);
        let task = rig.submit(&Ask::short(&rig.card))?;
        note(&format!("step with a budget of {words}"));
        rig.finish(&[task]).map_err(|why| format!("with a budget of {words}: {why}"))?;
        let longest = rig.pace().longest();
        let most = Duration::from_micros(budget_us.into()) + GRACE;
        let over = if longest > most { ", over it" } else { "" };
        told.push(format!("{:.1} ms at {words}{over}", longest.as_secs_f64() * 1e3));
    }
    Ok(format!("longest steps: {}", told.join(", ")))
}
