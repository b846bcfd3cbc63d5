//! Tests of what an engine takes and refuses: odd prompts, a full queue, many threads at once.

use std::time::{Duration, Instant};

use cascadia_plugin_api::abi::code;

use super::ask::Ask;
use super::note::note;
use super::rig::{Refusal, Rig};
use super::{Fault, Outcome, Plan, Test, passed, skip};

pub(super) const TESTS: &[Test] = &[
    Test { name: "an empty prompt is refused or ended, and the engine goes on", run: empty },
    Test {
        name: "a prompt over the window is refused as prompt_too_long, and the engine goes on",
        run: over_window,
    },
    Test { name: "a prompt of ten megabytes is refused or begun, and the engine goes on", run: huge },
    Test { name: "a prompt cut inside a character is answered or refused, and the engine goes on", run: cut },
    Test { name: "a full engine says queue_full at its declared depth, and recovers", run: queue_full },
    Test { name: "submit does not block", run: prompt_submit },
    Test { name: "eight threads submit while it steps", run: eight_threads },
];

/// Whether the engine still answers.
fn goes_on(rig: &Rig) -> Result<(), Fault> {
    note("a task afterwards");
    let task = rig.submit(&Ask::short(&rig.card))?;
    Ok(rig.finish(&[task])?)
}

fn empty(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    note("submit of an empty prompt");
    let remark = match rig.submit(&Ask { tokens: Vec::new(), ..Ask::short(&rig.card) }) {
        Ok(task) => {
            rig.finish(&[task])?;
            "ended".to_owned()
        }
        Err(refusal) => {
            refusal.said.is_clean("submit of an empty prompt", refusal.code)?;
            format!("refused as {}", code::name(refusal.code))
        }
    };
    goes_on(&rig)?;
    Ok(remark)
}

fn over_window(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let window = match usize::try_from(rig.card.context_length) {
        Ok(0) | Err(_) => return skip("its card has no context_length"),
        Ok(n) if n > 4_000_000 => return skip("its window is too large to fill"),
        Ok(n) => n,
    };
    for tokens in [window + 1, window * 4] {
        note(&format!("submit of {tokens} tokens"));
        match rig.submit(&Ask::of(&rig.card, tokens)) {
            Ok(_) => return Err(format!("the window is {window}, {tokens} tokens were taken").into()),
            Err(Refusal { code: code::PROMPT_TOO_LONG, said }) => {
                said.is_clean("submit of a long prompt", code::PROMPT_TOO_LONG)?;
            }
            Err(other) => {
                let why = other.said.words(other.code);
                return Err(format!("{tokens} tokens were refused with {why}").into());
            }
        }
    }
    goes_on(&rig)?;
    Ok(format!("window {window}"))
}

fn huge(plan: &Plan) -> Outcome {
    const TOKENS: usize = 10_000_000 / size_of::<u32>();
    let rig = Rig::build(plan)?;
    note(&format!("submit of {TOKENS} tokens"));
    let remark = match rig.submit(&Ask { max_tokens: 1, ..Ask::of(&rig.card, TOKENS) }) {
        Ok(task) => {
            // What it would do with them in the end is its own affair.
            rig.cancel(task);
            rig.finish(&[task])?;
            "begun, and cancelled".to_owned()
        }
        Err(refusal) => {
            refusal.said.is_clean("submit of a huge prompt", refusal.code)?;
            format!("refused as {}", code::name(refusal.code))
        }
    };
    goes_on(&rig)?;
    Ok(remark)
}

fn cut(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    if rig.card.tokenizer != "bytes" {
        return skip("its tokens are not bytes");
    }
    // Before the first byte of a character, after it, and both.
    let whole = "\u{e9} and \u{20ac}".as_bytes();
    for part in [&whole[1..], &whole[..whole.len() - 1], &whole[1..whole.len() - 2], &whole[..1]] {
        note(&format!("submit of the bytes {part:x?}"));
        let tokens: Vec<u32> = part.iter().copied().map(u32::from).collect();
        match rig.submit(&Ask { tokens, ..Ask::short(&rig.card) }) {
            Ok(task) => rig.finish(&[task])?,
            Err(refusal) => refusal.said.is_clean("submit of half a character", refusal.code)?,
        }
    }
    goes_on(&rig)?;
    passed()
}

fn queue_full(plan: &Plan) -> Outcome {
    const MOST: u64 = 4096;
    let rig = Rig::build(plan)?;
    let depth = match rig.card.max_tasks {
        0 => return skip("its card has no max_tasks"),
        n if n > MOST => return skip("its max_tasks is too large to fill"),
        n => n,
    };
    let ask = Ask { max_tokens: 2, ..Ask::short(&rig.card) };
    let mut tasks = Vec::new();
    note(&format!("submit of {depth} tasks"));
    let deadline = Instant::now() + plan.timeout / 2;
    for n in 0..depth {
        if Instant::now() > deadline {
            return skip("submit is too slow to fill it");
        }
        match rig.submit(&ask) {
            Ok(task) => tasks.push(task),
            Err(refusal) => {
                let why = refusal.said.words(refusal.code);
                return Err(
                    format!("the card says {depth} tasks, number {} was refused: {why}", n + 1).into()
                );
            }
        }
    }
    match rig.submit(&ask) {
        Ok(_) => return Err(format!("the card says {depth} tasks, and one more was taken").into()),
        Err(Refusal { code: code::QUEUE_FULL, said }) => said.is_clean("submit", code::QUEUE_FULL)?,
        Err(other) => {
            let why = other.said.words(other.code);
            return Err(format!("one more than {depth} tasks was refused with {why}").into());
        }
    }
    note("step");
    // All of them take their time; that the engine is alive shows in what it pushes.
    rig.finish(&tasks)?;
    goes_on(&rig)?;
    Ok(format!("at {depth} tasks"))
}

fn prompt_submit(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let (tries, most) = (5, Duration::from_millis(100));
    let mut quickest = Duration::MAX;
    note("step beside submits");
    std::thread::scope(|scope| -> Result<(), Fault> {
        let submitting = scope.spawn(|| {
            let mut tasks = Vec::new();
            for _ in 0..tries {
                let begun = Instant::now();
                let task = rig.submit(&Ask::short(&rig.card));
                quickest = quickest.min(begun.elapsed());
                tasks.extend(task.ok());
            }
            rig.wake();
            tasks
        });
        rig.drive(|_| submitting.is_finished())?;
        let tasks = submitting.join().map_err(|_| "the test panicked")?;
        Ok(rig.finish(&tasks)?)
    })?;
    if quickest > most {
        return Err(format!("the quickest of {tries} submits took {} ms", quickest.as_millis()).into());
    }
    Ok(format!("{:.3} ms", quickest.as_secs_f64() * 1e3))
}

fn eight_threads(plan: &Plan) -> Outcome {
    const EACH: usize = 6;
    let rig = Rig::build(plan)?;
    let ask = Ask { max_tokens: 4, ..Ask::short(&rig.card) };
    let deadline = Instant::now() + plan.timeout / 2;
    // A full engine is no fault here: the thread tries again.
    let one = || -> Result<Vec<u64>, String> {
        let mut tasks = Vec::new();
        while tasks.len() < EACH {
            match rig.submit(&ask) {
                Ok(task) => tasks.push(task),
                Err(Refusal { code: code::QUEUE_FULL, .. }) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(other) => return Err(format!("submit failed: {}", other.said.words(other.code))),
            }
        }
        Ok(tasks)
    };
    note("step beside eight submitting threads");
    let tasks = std::thread::scope(|scope| -> Result<Vec<u64>, Fault> {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let tasks = one();
                    rig.wake();
                    tasks
                })
            })
            .collect();
        rig.drive(|_| threads.iter().all(|t| t.is_finished()))?;
        let mut tasks = Vec::new();
        for thread in threads {
            tasks.extend(thread.join().map_err(|_| "the test panicked")??);
        }
        Ok(tasks)
    })?;
    rig.finish(&tasks)?;
    match tasks.iter().find(|task| rig.answer(**task).finishes.len() != 1) {
        None => passed(),
        Some(task) => Err(format!("a task has {} finishes", rig.answer(*task).finishes.len()).into()),
    }
}
