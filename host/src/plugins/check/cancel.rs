//! Tests of cancel: of what is unknown, over, waiting, running, and of everything at once.

use std::time::{Duration, Instant};

use cascadia_plugin_api::abi::chunk::FINISH_CANCELLED;

use super::ask::Ask;
use super::note::note;
use super::rig::Rig;
use super::{Fault, Outcome, Plan, Test, passed, skip};

pub(super) const TESTS: &[Test] = &[
    Test { name: "cancelling what is unknown or over changes nothing", run: unknown },
    Test { name: "a cancelled task ends soon, with one finish", run: running },
    Test { name: "a task that waits is cancelled too", run: waiting },
    Test { name: "a storm of cancels gives one finish each", run: storm },
];

/// Tokens that may still come after a cancel: what was under way, of an engine that gives several at a time.
const ON_THE_WAY: usize = 64;

fn one_finish_each(rig: &Rig, tasks: &[u64]) -> Result<(), Fault> {
    for task in tasks {
        let answer = rig.answer(*task);
        if answer.finishes.len() != 1 || answer.after > 0 {
            let (n, after) = (answer.finishes.len(), answer.after);
            return Err(Fault::Failed(format!("a task has {n} finishes and {after} chunks after the first")));
        }
    }
    Ok(())
}

fn unknown(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    note("cancel of unknown tasks");
    for id in [0, 1, u64::MAX, rig.fresh_id()] {
        rig.cancel(id);
    }
    let task = rig.submit(&Ask::short(&rig.card))?;
    rig.cancel(rig.fresh_id());
    rig.finish(&[task])?;
    if rig.answer(task).finishes.first() == Some(&FINISH_CANCELLED) {
        return Err("a task ended as cancelled when others were cancelled".into());
    }
    note("cancel of a finished task");
    rig.cancel(task);
    rig.cancel(task);
    let next = rig.submit(&Ask::short(&rig.card))?;
    rig.finish(&[next])?;
    one_finish_each(&rig, &[task, next])?;
    match rig.ear.look(|heard| heard.strangers) {
        None => passed(),
        Some((task, n)) => {
            Err(format!("{n} chunks came for tasks nobody gave, the first for {task:#x}").into())
        }
    }
}

fn running(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let task = rig.submit(&Ask::long(&rig.card))?;
    note("step to the first chunk");
    rig.drive(|heard| heard.answers.get(&task).is_some_and(|a| a.chunks > 0))?;
    let before = rig.answer(task);
    if before.is_over() {
        return skip("its answer is over with the first chunk");
    }
    note("cancel");
    rig.cancel(task);
    let begun = Instant::now();
    note("step after cancel");
    rig.drive(|heard| {
        heard.answers.get(&task).is_none_or(|a| a.is_over() || a.tokens.len() > before.tokens.len() + 4096)
    })?;
    let (took, answer) = (begun.elapsed(), rig.answer(task));
    let more = answer.tokens.len() - before.tokens.len();
    if more > ON_THE_WAY {
        return Err(format!("{more} tokens came after the cancel").into());
    }
    // One step more, as the host owes it.
    rig.step()?;
    one_finish_each(&rig, &[task])?;
    if took > plan.patience() / 2 {
        return Err(format!("the finish came {:.1} s after the cancel", took.as_secs_f32()).into());
    }
    let how = if answer.finishes == [FINISH_CANCELLED] { "cancelled" } else { "ended by itself" };
    Ok(format!("{how} after {more} more tokens, {:.1} ms", took.as_secs_f64() * 1e3))
}

fn waiting(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let mut tasks = Vec::new();
    // Without a step between, all of them wait.
    for _ in 0..4 {
        tasks.extend(rig.submit(&Ask::long(&rig.card)).ok());
    }
    if tasks.is_empty() {
        return Err("no task was taken".into());
    }
    note("cancel before the first step");
    for task in &tasks {
        rig.cancel(*task);
    }
    note("step after cancel");
    rig.finish(&tasks)?;
    one_finish_each(&rig, &tasks)?;
    let most = tasks.iter().map(|t| rig.answer(*t).tokens.len()).max().unwrap_or_default();
    if most > ON_THE_WAY {
        return Err(format!("{most} tokens came for a task that was cancelled before the first step").into());
    }
    passed()
}

fn storm(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let ask = Ask::long(&rig.card);
    note("step beside a storm of cancels");
    let tasks = std::thread::scope(|scope| -> Result<Vec<u64>, Fault> {
        let storming = scope.spawn(|| {
            let mut tasks: Vec<u64> = Vec::new();
            for turn in 0..60_usize {
                tasks.extend(rig.submit(&ask).ok());
                // The newest, an older one, and one of either once more.
                for at in [tasks.len().wrapping_sub(1), turn / 2, turn / 2] {
                    if let Some(task) = tasks.get(at) {
                        rig.cancel(*task);
                    }
                }
                if turn % 8 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            tasks.iter().for_each(|task| rig.cancel(*task));
            rig.wake();
            tasks
        });
        rig.drive(|_| storming.is_finished())?;
        Ok(storming.join().map_err(|_| "the test panicked")?)
    })?;
    rig.finish(&tasks)?;
    rig.step()?;
    one_finish_each(&rig, &tasks)?;
    Ok(format!("{} tasks", tasks.len()))
}
