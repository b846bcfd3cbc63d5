//! Tests of the quiet and the end: idle, stop, close.

use std::time::{Duration, Instant};

use cascadia_plugin_api::abi::code;

use super::ask::Ask;
use super::note::note;
use super::rig::Rig;
use super::sink::Answer;
use super::{Fault, Outcome, Plan, Test, passed};
use crate::plugins::engine::Next;

pub(super) const TESTS: &[Test] = &[
    Test { name: "an idle engine says so", run: idle },
    Test { name: "a sink that says stop is obeyed", run: stop },
    Test { name: "nothing is pushed outside of a step, nor from another thread", run: pushes },
    Test { name: "close ends the work in flight", run: close_ends },
    Test { name: "a closed engine takes no task", run: closed },
    Test { name: "close keeps to its deadline", run: close_in_time },
];

/// Tokens that may still come once close has returned: what was under way in a step beside it, for four tasks.
const ON_THE_WAY: usize = 256;

/// Steps without a task until the engine says idle.
fn becomes_idle(rig: &Rig, when: &str) -> Result<(), Fault> {
    let deadline = Instant::now() + Duration::from_secs(3);
    let mut last = Next::More;
    let mut steps = 0_u64;
    while Instant::now() < deadline {
        last = rig.step()?;
        steps += 1;
        match last {
            Next::Idle => return Ok(()),
            Next::More => {}
            Next::Until(at) => std::thread::sleep(
                at.saturating_duration_since(Instant::now()).min(Duration::from_millis(100)),
            ),
        }
    }
    let state = if last == Next::More { "more" } else { "wait" };
    Err(Fault::Failed(format!("{when} it said {state} to {steps} steps in 3 s, never idle")))
}

fn idle(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    note("step without a task");
    becomes_idle(&rig, "before the first task")?;
    let task = rig.submit(&Ask::short(&rig.card))?;
    rig.finish(&[task])?;
    note("step after the last task");
    becomes_idle(&rig, "after its only task")?;
    // A step that nobody needed is no reason to wake up.
    becomes_idle(&rig, "after it was idle")?;
    passed()
}

fn stop(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.extend(rig.submit(&Ask::long(&rig.card)).ok());
    }
    rig.ear.say_stop(true);
    let deadline = Instant::now() + plan.patience();
    let heard = |rig: &Rig| rig.ear.look(|heard| (heard.pushes, heard.after_stop));
    loop {
        let before = heard(&rig).0;
        let begun = Instant::now();
        note("step whose sink says stop");
        rig.step()?;
        let took = begun.elapsed();
        let (pushes, after) = heard(&rig);
        if after > 0 {
            return Err(format!("{after} more pushes came in the step whose sink said stop").into());
        }
        if pushes > before && took > Duration::from_secs(1) {
            return Err(
                format!("the step went on for {:.1} s after its sink said stop", took.as_secs_f32()).into()
            );
        }
        if pushes > before {
            break;
        }
        if Instant::now() > deadline {
            return Err("nothing was pushed, with tasks at hand".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    rig.ear.say_stop(false);
    tasks.iter().for_each(|task| rig.cancel(*task));
    passed()
}

fn pushes(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let mut tasks = vec![rig.submit(&Ask::short(&rig.card))?, rig.submit(&Ask::long(&rig.card))?];
    note("pauses between steps");
    for _ in 0..5 {
        rig.step()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    // One that comes when there was a step: its sink is still around. An engine may be full.
    tasks.extend(rig.submit(&Ask::short(&rig.card)).ok());
    tasks.iter().for_each(|task| rig.cancel(*task));
    std::thread::sleep(Duration::from_millis(20));
    rig.finish(&tasks)?;
    rig.close(Duration::from_secs(2))?;
    std::thread::sleep(Duration::from_millis(50));
    let ear = rig.ear;
    drop(rig);
    std::thread::sleep(Duration::from_millis(50));
    match ear.look(|heard| heard.stray) {
        None => passed(),
        Some((how, n)) => Err(format!("{n} pushes came {how}").into()),
    }
}

fn close_ends(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.extend(rig.submit(&Ask::long(&rig.card)).ok());
    }
    for _ in 0..3 {
        rig.step()?;
    }
    let tokens = || tasks.iter().map(|t| rig.answer(*t).tokens.len()).sum::<usize>();
    note("step beside close");
    let more = std::thread::scope(|scope| -> Result<usize, Fault> {
        let closing = scope.spawn(|| {
            let closed = rig.close(Duration::from_secs(2));
            rig.wake();
            closed.map(|_| tokens())
        });
        // When all is over before close has returned there is nothing to drive any more.
        rig.drive(|heard| {
            let over = tasks.iter().all(|t| heard.answers.get(t).is_some_and(Answer::is_over));
            over || closing.is_finished()
        })?;
        match closing.join().map_err(|_| "the test panicked")? {
            // The call failed: the host was told that the tasks are gone.
            Err(_) => Ok(0),
            Ok(before) => {
                rig.drive(|heard| {
                    let answers = tasks.iter().filter_map(|t| heard.answers.get(t));
                    let came = answers.clone().map(|a| a.tokens.len()).sum::<usize>();
                    answers.clone().all(Answer::is_over) || came > before + ON_THE_WAY
                })?;
                Ok(tokens() - before)
            }
        }
    })?;
    if more > ON_THE_WAY {
        return Err(
            format!("after close had returned, {} tasks went on for {more} tokens", tasks.len()).into()
        );
    }
    match tasks.iter().map(|t| rig.answer(*t)).find(|a| a.finishes.len() > 1 || a.after > 0) {
        None => passed(),
        Some(a) => {
            Err(format!("a task has {} finishes and {} chunks after one", a.finishes.len(), a.after).into())
        }
    }
}

fn closed(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let ask = Ask::short(&rig.card);
    let task = rig.submit(&ask)?;
    rig.finish(&[task])?;
    rig.close(Duration::from_secs(2))?;
    match rig.submit_late(&ask) {
        Ok(_) => Err("close had returned, and a task was taken that nobody would ever end".into()),
        Err(refusal) => {
            refusal.said.is_clean("submit after close", refusal.code)?;
            Ok(format!("refused as {}", code::name(refusal.code)))
        }
    }
}

fn close_in_time(plan: &Plan) -> Outcome {
    let deadline = Duration::from_millis(500);
    let rig = Rig::build(plan)?;
    note("step to the first chunk");
    let task = rig.submit(&Ask::long(&rig.card))?;
    rig.drive(|heard| heard.answers.get(&task).is_some_and(|a| a.chunks > 0))?;
    // As the host does it at the end: nobody steps any more.
    let took = rig.close(deadline)?;
    if took > deadline + Duration::from_millis(500) {
        return Err(format!("close took {:.1} s, its deadline was 0.5 s", took.as_secs_f32()).into());
    }
    Ok(format!("{:.1} ms", took.as_secs_f64() * 1e3))
}
