//! `cascadia.async-sink/1`: an engine with threads of its own keeps to the rules of tasks, and is silent after close.
#![expect(unsafe_code, reason = "calls the extension's table")]

use std::time::{Duration, Instant};

use cascadia_plugin_api::abi::ids;
use cascadia_plugin_api::ext::draft::async_sink::AsyncSinkV1;

use super::super::ask::Ask;
use super::super::note::note;
use super::super::rig::Rig;
use super::super::said::Said;
use super::super::sink::Heard;
use super::super::{Fault, Outcome, Plan, Test, passed};
use super::{done, ended_once};
use crate::plugins::engine::Next;

pub(in super::super) const TESTS: &[Test] = &[
    Test { name: "async-sink: answers come by themselves, and step says idle", run: answers },
    Test { name: "async-sink: cancel ends a task that no step drives", run: cancel },
    Test { name: "async-sink: when close returns all is told, and nothing comes after", run: close },
    Test { name: "async-sink: a sink that says stop is obeyed", run: stop },
];

fn attached(plan: &Plan) -> Result<Rig, Fault> {
    let rig = Rig::build(plan)?;
    // SAFETY: the id names the type.
    let table: &AsyncSinkV1 = unsafe { rig.subject.offered(ids::ASYNC_SINK) }?;
    note("attach");
    let mut said = Said::default();
    let sink = rig.ear.enter();
    rig.ear.leave();
    // SAFETY: the engine lives and has no task; the ear lives for ever.
    let code = unsafe { (table.attach)(rig.engine(), sink, said.out()) };
    done("attach", code, &said)?;
    Ok(rig)
}

/// Waits without a step.
fn wait(rig: &Rig, what: &str, done: impl Fn(&Heard) -> bool) -> Result<(), Fault> {
    let until = Instant::now() + rig.patience();
    while !rig.ear.look(&done) {
        if Instant::now() > until {
            return Err(format!("{what} did not come within {} s", rig.patience().as_secs_f32()).into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn over(heard: &Heard, tasks: &[u64]) -> bool {
    tasks.iter().all(|task| heard.answers.get(task).is_some_and(|answer| answer.is_over()))
}

fn answers(plan: &Plan) -> Outcome {
    let rig = attached(plan)?;
    let mut tasks = Vec::new();
    for turn in 0..8 {
        tasks.push(rig.submit(&Ask::short(&rig.card))?);
        if turn % 3 == 0 {
            note("step beside an engine of its own");
            let state = rig.step()?;
            if state != Next::Idle {
                return Err(format!("with a sink of its own step says {state:?}, not idle").into());
            }
        }
    }
    wait(&rig, "the end of eight tasks", |heard| over(heard, &tasks))?;
    for task in &tasks {
        ended_once(&rig, *task)?;
        if let Some((_, message)) = rig.answer(*task).error {
            return Err(format!("a task failed: {message}").into());
        }
    }
    Ok(format!("{} pushes", rig.ear.look(|heard| heard.pushes)))
}

fn cancel(plan: &Plan) -> Outcome {
    let rig = attached(plan)?;
    let task = rig.submit(&Ask::long(&rig.card))?;
    rig.cancel(task);
    wait(&rig, "the finish of a cancelled task", |heard| over(heard, &[task]))?;
    ended_once(&rig, task)?;
    passed()
}

fn close(plan: &Plan) -> Outcome {
    let rig = attached(plan)?;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.push(rig.submit(&Ask::long(&rig.card))?);
    }
    rig.close(Duration::from_secs(5))?;
    let pushes = rig.ear.look(|heard| heard.pushes);
    for task in &tasks {
        ended_once(&rig, *task).map_err(|_| "close returned with a task that has not had its finish")?;
    }
    std::thread::sleep(Duration::from_millis(150));
    let (later, stranger) = rig.ear.look(|heard| (heard.pushes - pushes, heard.strangers));
    if later > 0 {
        let whose = stranger.map_or(String::new(), |(task, _)| format!(", for task {task:#x}"));
        return Err(format!("{later} pushes came after close had returned{whose}").into());
    }
    passed()
}

fn stop(plan: &Plan) -> Outcome {
    let rig = attached(plan)?;
    rig.ear.say_stop(true);
    let task = rig.submit(&Ask::long(&rig.card))?;
    wait(&rig, "a push", |heard| heard.pushes > 0)?;
    std::thread::sleep(Duration::from_millis(100));
    let pushes = rig.ear.look(|heard| heard.pushes);
    // Threads that had begun before the first answer.
    if pushes > 8 {
        return Err(format!("{pushes} pushes came to a sink that says stop").into());
    }
    rig.cancel(task);
    rig.close(Duration::from_secs(5))?;
    passed()
}
