//! `cascadia.pause/1`: one task is held, the others go on.
#![expect(unsafe_code, reason = "calls the extension's table")]

use std::time::{Duration, Instant};

use cascadia_plugin_api::abi::ids;
use cascadia_plugin_api::ext::draft::pause::PauseV1;

use super::super::ask::Ask;
use super::super::note::note;
use super::super::rig::Rig;
use super::super::said::Said;
use super::super::{Fault, Outcome, Plan, Test, passed, skip};
use super::{done, ended_once};

pub(in super::super) const TESTS: &[Test] = &[
    Test { name: "pause: a paused task is silent, others go on, and it goes on when resumed", run: holds },
    Test { name: "pause: cancel ends a paused task", run: cancel },
    Test { name: "pause: a task paused before its first step waits too", run: early },
    Test { name: "pause: unknown and ended tasks change nothing", run: unknown },
];

/// Tokens that may still come after a pause: what was under way, of an engine that gives several at a time.
const ON_THE_WAY: usize = 64;
/// How long a paused task is listened to.
const SILENCE: Duration = Duration::from_millis(60);

struct Hold<'a> {
    rig: &'a Rig,
    table: &'static PauseV1,
}

impl Hold<'_> {
    fn of(rig: &Rig) -> Result<Hold<'_>, Fault> {
        // SAFETY: the id names the type.
        Ok(Hold { rig, table: unsafe { rig.subject.offered(ids::PAUSE) }? })
    }

    fn pause(&self, task: u64) -> Result<(), Fault> {
        note("pause");
        // SAFETY: the engine lives; any id is fine.
        let code = unsafe { (self.table.pause)(self.rig.engine(), task) };
        done("pause", code, &Said::default())
    }

    fn resume(&self, task: u64) -> Result<(), Fault> {
        note("resume");
        // SAFETY: as above.
        let code = unsafe { (self.table.resume)(self.rig.engine(), task) };
        self.rig.wake();
        done("resume", code, &Said::default())
    }

    fn tokens(&self, task: u64) -> usize {
        self.rig.answer(task).tokens.len()
    }

    /// A long task that has begun.
    fn begun(&self) -> Result<u64, Fault> {
        let task = self.rig.submit(&Ask { max_tokens: 300, ..Ask::long(&self.rig.card) })?;
        self.rig.drive(|heard| heard.answers.get(&task).is_some_and(|a| a.chunks > 0))?;
        match self.rig.answer(task).is_over() {
            true => skip("its answer is over with the first chunk"),
            false => Ok(task),
        }
    }

    /// Steps for a while; nothing may come for the task after the first of them.
    fn silent(&self, task: u64) -> Result<usize, Fault> {
        let before = self.tokens(task);
        self.rig.step()?;
        let on_the_way = self.tokens(task) - before;
        let (held, until) = (self.tokens(task), Instant::now() + SILENCE);
        while Instant::now() < until {
            self.rig.step()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        let more = self.tokens(task) - held;
        if on_the_way > ON_THE_WAY || more > 0 {
            let text = format!("{on_the_way} tokens came in the step after the pause, {more} later");
            return Err(text.into());
        }
        Ok(on_the_way)
    }
}

fn holds(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let hold = Hold::of(&rig)?;
    let free = hold.begun()?;
    rig.finish(&[free])?;
    let task = hold.begun()?;
    hold.pause(task)?;
    hold.pause(task)?;
    let late = hold.silent(task)?;
    note("another task beside a paused one");
    let other = rig.submit(&Ask::short(&rig.card))?;
    rig.walk(&[other], || Ok(()))?;
    if rig.answer(task).is_over() {
        return Err("the paused task ended while another ran".into());
    }
    hold.silent(task)?;
    hold.resume(task)?;
    rig.finish(&[task])?;
    ended_once(&rig, task)?;
    let (free, paused) = (rig.answer(free).tokens, rig.answer(task).tokens);
    if free != paused {
        return Err(
            format!("{} tokens without a pause, {} with one, or others", free.len(), paused.len()).into()
        );
    }
    Ok(format!("{late} tokens were on the way"))
}

fn cancel(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let hold = Hold::of(&rig)?;
    let task = hold.begun()?;
    hold.pause(task)?;
    hold.silent(task)?;
    rig.cancel(task);
    rig.finish(&[task])?;
    rig.step()?;
    ended_once(&rig, task)?;
    hold.resume(task)?;
    rig.step()?;
    ended_once(&rig, task)?;
    passed()
}

fn early(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let hold = Hold::of(&rig)?;
    let task = rig.submit(&Ask::short(&rig.card))?;
    hold.pause(task)?;
    hold.silent(task)?;
    if rig.answer(task).is_over() {
        return Err("a task that was paused before its first step ended".into());
    }
    hold.resume(task)?;
    rig.finish(&[task])?;
    ended_once(&rig, task)?;
    passed()
}

fn unknown(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let hold = Hold::of(&rig)?;
    for id in [0, u64::MAX, rig.fresh_id()] {
        hold.pause(id)?;
        hold.resume(id)?;
    }
    let task = rig.submit(&Ask::short(&rig.card))?;
    rig.finish(&[task])?;
    hold.pause(task)?;
    rig.step()?;
    // An engine that remembers a pause by number would hold the next task up.
    let next = rig.submit(&Ask::short(&rig.card))?;
    rig.finish(&[next])?;
    ended_once(&rig, next)?;
    passed()
}
