//! `cascadia.stage/1`: rows walk from stage to stage, what is lost is computed again, what is stale is dropped.

mod pipe;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::task::{GRAMMAR_MASK, LOGPROBS, PROMPT_LOGPROBS};
use cascadia_plugin_api::ext::LoadReport;
use cascadia_plugin_api::ext::draft::stage::{ROW_SCORED, SEQUENCE_BEGINS, StageInfo};

use super::super::ask::Ask;
use super::super::sink::About;
use super::super::{Fault, Outcome, Plan, Test, passed, skip};
use super::token_mask::{Filler, digits};
use super::{ended_once, refused};
use pipe::{Fate, Pipe};

pub(in super::super) const TESTS: &[Test] = &[
    Test { name: "stage: two stages and three give the same answers, in windows", run: same },
    Test {
        name: "stage: a batch that goes on from nothing is refused, and its tasks begin anew",
        run: refusal,
    },
    Test { name: "stage: after a lost link a new epoch goes on, and older batches are dropped", run: epoch },
    Test { name: "stage: a batch that is not what it says is refused at the door", run: malformed },
    Test { name: "stage: cancel ends a task along the pipe", run: cancel },
    Test { name: "stage: a mask of stage 0 is obeyed by the last", run: masked },
    Test { name: "stage: log-probabilities come back with the tokens", run: logprobs },
];

/// Prompts of several windows, told apart by their first token.
fn asks(pipe: &Pipe, n: usize) -> Vec<Ask> {
    let window = usize::try_from(pipe.info.window).unwrap_or(8).clamp(1, 64);
    let ask = |at: usize| {
        let mut ask = Ask::of(&pipe.stages[0].card, window * 3 + 2 + at);
        ask.tokens[0] += at as u32;
        Ask { max_tokens: 10, ..ask }
    };
    (0..n).map(ask).collect()
}

/// The answers to tasks that run together.
fn answers(
    pipe: &Pipe,
    asks: &[Ask],
    fate: impl FnMut(usize, &pipe::Batch) -> Fate,
) -> Result<Vec<Vec<u32>>, Fault> {
    let tasks: Vec<u64> =
        asks.iter().map(|ask| pipe.stages[0].submit(ask).map_err(Fault::from)).collect::<Result<_, _>>()?;
    pipe.run(&tasks, fate)?;
    let answer = |task: &u64| {
        ended_once(&pipe.stages[0], *task)?;
        let answer = pipe.stages[0].answer(*task);
        match answer.error {
            Some((number, message)) => {
                Err(format!("a task failed: {message} ({})", code::name(number)).into())
            }
            None => Ok(answer.tokens),
        }
    };
    let answers = tasks.iter().map(answer).collect();
    pipe.abort(0, &tasks)?;
    answers
}

fn same(plan: &Plan) -> Outcome {
    let two = Pipe::of(plan, 2)?;
    let three = Pipe::of(plan, 3)?;
    three.grow();
    if two.info_of(size_of::<StageInfo>() + 64)? != code::OK {
        return Err("info refuses the larger struct of a newer host".into());
    }
    two.info_of(8)?;
    let asks = asks(&two, 3);
    let (mut rows, mut batches) = (0, 0);
    let window = two.info.window as usize;
    let mut most = 0;
    let a = answers(&two, &asks, |_, batch| {
        (rows, batches) = (rows + batch.rows.len(), batches + 1);
        for at in 0..batch.sequences.len() {
            most = most.max(batch.rows.iter().filter(|row| row.sequence as usize == at).count());
        }
        Fate::Pass
    })?;
    let b = answers(&three, &asks, |_, _| Fate::Pass)?;
    if a != b {
        return Err(format!("two stages say {a:?}, three {b:?}").into());
    }
    if a.iter().any(Vec::is_empty) {
        return Err("an answer is empty".into());
    }
    if most > window {
        return Err(format!("a task has {most} rows in a batch, the window is {window}").into());
    }
    // The same tasks one by one: what is beside a task must not be seen in it.
    for (ask, together) in asks.iter().zip(&a) {
        if answers(&two, std::slice::from_ref(ask), |_, _| Fate::Pass)? != [together.as_slice()] {
            return Err("a task alone gives another answer than among others".into());
        }
    }
    Ok(format!("{rows} rows in {batches} batches of up to {most} per task"))
}

fn refusal(plan: &Plan) -> Outcome {
    let pipe = Pipe::of(plan, 3)?;
    let asks = asks(&pipe, 2);
    let whole = answers(&pipe, &asks, |_, _| Fate::Pass)?;
    // Of the whole pipe, and of its last link alone.
    for rank in [0, 1] {
        let mut lost = 0;
        let again = answers(&pipe, &asks, |at, batch| {
            let begins = batch.sequences.iter().any(|s| s.flags & SEQUENCE_BEGINS != 0);
            let lose = at == rank && begins && lost == 0;
            lost += usize::from(lose);
            if lose { Fate::Vanish } else { Fate::Pass }
        })
        .map_err(|fault| match fault {
            Fault::Failed(why) => Fault::Failed(format!("after a batch of stage {rank} was lost: {why}")),
            skipped @ Fault::Skipped(_) => skipped,
        })?;
        if again != whole {
            return Err(format!("after a refusal the answers are {again:?}, before {whole:?}").into());
        }
    }
    let refusals = pipe.take_refusals();
    let Some(first) = refusals.first() else {
        return Err("a batch went on from what the stage never had, and was not refused".into());
    };
    if first.tasks.is_empty() || first.message.trim().is_empty() || first.code == code::OK {
        return Err(format!("a refusal names no task, no reason or no code: {first:?}").into());
    }
    Ok(format!("{} refusals: {}", refusals.len(), first.message))
}

fn epoch(plan: &Plan) -> Outcome {
    let pipe = Pipe::of(plan, 3)?;
    let asks = asks(&pipe, 2);
    let whole = answers(&pipe, &asks, |_, _| Fate::Pass)?;
    for (nth, rank) in [(2, 0), (3, 1), (9, 0)] {
        let mut seen = 0;
        let again = answers(&pipe, &asks, |at, _| {
            seen += usize::from(at == rank);
            if at == rank && seen == nth { Fate::LinkLost } else { Fate::Pass }
        })?;
        if again != whole {
            return Err(format!("after a lost link the answers are {again:?}, before {whole:?}").into());
        }
    }
    // A batch of a time that is over.
    let Some(mut stale) = pipe.last_batch() else { return skip("no batch was seen") };
    stale.epoch = 0;
    let (code, said) = pipe.receive(1, &stale)?;
    said.expect_ok("receive of a batch of an older epoch", code)?;
    pipe.settle()?;
    if let Some(event) = pipe.anything() {
        return Err(format!("a batch of an older epoch gave {event}").into());
    }
    passed()
}

fn malformed(plan: &Plan) -> Outcome {
    let pipe = Pipe::of(plan, 2)?;
    let asks = asks(&pipe, 1);
    let whole = answers(&pipe, &asks, |_, _| Fate::Pass)?;
    let Some(sound) = pipe.last_batch() else { return skip("no batch was seen") };
    let change = |change: &dyn Fn(&mut pipe::Batch)| {
        let mut batch = sound.clone();
        change(&mut batch);
        batch
    };
    let broken = [
        ("bytes are missing", change(&|b| b.payload.truncate(b.payload.len() - 1))),
        ("bytes are missing at all", change(&|b| b.payload.clear())),
        ("its dtype means nothing", change(&|b| b.dtype = 999)),
        ("its width is another", change(&|b| b.width = u32::MAX)),
        ("a row has no sequence", change(&|b| b.rows[0].sequence = 77)),
        ("a row is another task's", change(&|b| b.rows[0].task ^= 1)),
    ];
    for (what, batch) in &broken {
        let (code, said) = pipe.receive(1, batch)?;
        refused(&format!("receive of a batch where {what}"), code, &said, &[code::INVALID_CONFIG])?;
    }
    pipe.settle()?;
    if let Some(event) = pipe.anything() {
        return Err(format!("a batch that was refused at the door gave {event}").into());
    }
    if answers(&pipe, &asks, |_, _| Fate::Pass)? != whole {
        return Err("after malformed batches the answer is another".into());
    }
    passed()
}

fn cancel(plan: &Plan) -> Outcome {
    let pipe = Pipe::of(plan, 2)?;
    let asks = asks(&pipe, 2);
    let whole = answers(&pipe, &asks, |_, _| Fate::Pass)?;
    let first = &pipe.stages[0];
    let (task, other) = (first.submit(&asks[0])?, first.submit(&asks[1])?);
    for _ in 0..3 {
        pipe.turn(&mut |_, _| Fate::Pass)?;
    }
    first.cancel(task);
    pipe.run(&[task, other], |_, _| Fate::Pass)?;
    ended_once(first, task)?;
    ended_once(first, other)?;
    pipe.abort(0, &[task, other])?;
    pipe.settle()?;
    if first.answer(other).tokens != whole[1] {
        return Err("a task gives another answer when its neighbour is cancelled".into());
    }
    match pipe.stages[1].load()? {
        Some(LoadReport { running, waiting, .. }) if running + waiting > 0 => {
            Err(format!("after abort the last stage still holds {running} running, {waiting} waiting").into())
        }
        _ => passed(),
    }
}

fn masked(plan: &Plan) -> Outcome {
    let pipe = Pipe::of(plan, 3)?;
    Filler::new(Some(digits)).attach(&pipe.stages[0])?;
    let asks: Vec<_> = asks(&pipe, 2).into_iter().map(|ask| Ask { grammar: GRAMMAR_MASK, ..ask }).collect();
    for answer in answers(&pipe, &asks, |_, _| Fate::Pass)? {
        if let Some((at, token)) = answer.iter().enumerate().find(|(at, token)| !digits(*at, **token)) {
            return Err(format!("token {at} is {token}, which its mask did not allow").into());
        }
    }
    passed()
}

fn logprobs(plan: &Plan) -> Outcome {
    let pipe = Pipe::of(plan, 2)?;
    let first = &pipe.stages[0];
    if !first.card.has("logprobs") {
        return skip("its card has no logprobs");
    }
    let top = if first.card.has("top_logprobs") { 3 } else { 0 };
    let scored = first.card.has("prompt_logprobs");
    let flags = LOGPROBS | if scored { PROMPT_LOGPROBS } else { 0 };
    let ask = Ask { flags, top_logprobs: top, ..asks(&pipe, 1).remove(0) };
    let mut rows = 0;
    let task = first.submit(&ask)?;
    pipe.run(&[task], |_, batch| {
        rows += batch.rows.iter().filter(|row| row.flags & ROW_SCORED != 0).count();
        Fate::Pass
    })?;
    let answer = first.answer(task);
    answer.fault(About::Logprobs)?;
    if answer.logprobs != answer.tokens.len() {
        let (n, m) = (answer.logprobs, answer.tokens.len());
        return Err(format!("{m} tokens came with {n} log-probabilities").into());
    }
    let n = ask.tokens.len();
    if scored && (answer.prompt_logprobs != n || rows + 1 != n) {
        let have = answer.prompt_logprobs;
        return Err(format!("of {n} prompt tokens {rows} were to be scored, {have} were").into());
    }
    Ok(format!("{} tokens, {rows} rows scored", answer.tokens.len()))
}
