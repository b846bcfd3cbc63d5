//! Tests of one answer: its end, its counts, its numbers, its text.

use cascadia_plugin_api::abi::chunk::{FINISH_CANCELLED, FINISH_ERROR, FINISH_LENGTH, FINISH_STOP};
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::task::LOGPROBS;

use super::ask::Ask;
use super::note::note;
use super::rig::Rig;
use super::sink::{About, Answer};
use super::{Fault, Outcome, Plan, Test, passed, skip};

pub(super) const TESTS: &[Test] = &[
    Test { name: "a task has exactly one finish, and nothing after it", run: one_finish },
    Test { name: "every chunk is for a task that was given", run: no_strangers },
    Test { name: "the finish says why the task ended", run: finish_reason },
    Test { name: "prompt tokens are counted as they were given", run: prompt_tokens },
    Test { name: "max_tokens is kept", run: max_tokens },
    Test { name: "a stop token ends the answer, and is not part of it", run: stop_tokens },
    Test { name: "log-probabilities are one per token, and numbers", run: logprobs },
    Test { name: "the text is UTF-8, or comes as token ids", run: text },
    Test { name: "chunk times lie between submit and push", run: times },
];

/// The whole answer to a task. Another task follows it, so that what comes late is heard.
fn whole(rig: &Rig, ask: &Ask) -> Result<Answer, Fault> {
    note("submit");
    let first = rig.submit(ask)?;
    note("step");
    rig.finish(&[first])?;
    // What comes after the end comes while the next task is at work, or before.
    let second = rig.submit(&Ask::short(&rig.card));
    if let Ok(second) = second {
        rig.finish(&[second])?;
    }
    Ok(rig.answer(first))
}

/// The usual answer, for tests that ask more of it than that it comes.
fn usual(rig: &Rig) -> Result<Answer, Fault> {
    whole(rig, &Ask::short(&rig.card)).map_err(|fault| fault.elsewhere("there is no answer"))
}

fn one_finish(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let answer = whole(&rig, &Ask::short(&rig.card))?;
    if let Some((code, message)) = answer.error {
        return Err(Fault::Failed(format!("the task failed: {message} ({})", code::name(code))));
    }
    match (answer.finishes.len(), answer.after) {
        (1, 0) => Ok(format!("{} tokens in {} chunks", answer.tokens.len(), answer.chunks)),
        (1, n) => Err(format!("{n} chunks came after the task's finish").into()),
        (n, _) => Err(format!("the task has {n} finishes").into()),
    }
}

fn no_strangers(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    usual(&rig)?;
    match rig.ear.look(|heard| heard.strangers) {
        None => passed(),
        Some((task, n)) => {
            Err(format!("{n} chunks are for tasks nobody gave; the first for {task:#x}").into())
        }
    }
}

fn finish_reason(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let answer = usual(&rig)?;
    answer.fault(About::Shape)?;
    match answer.finishes.first() {
        Some(&FINISH_STOP) => Ok("stop".to_owned()),
        Some(&FINISH_LENGTH) => Ok("length".to_owned()),
        Some(&FINISH_CANCELLED) => Err("the finish says cancelled, and nobody cancelled".into()),
        Some(&FINISH_ERROR) => {
            let (number, message) = answer.error.unwrap_or_default();
            Err(format!("the task failed: {message} ({})", code::name(number)).into())
        }
        other => Err(format!("the finish is {other:?}").into()),
    }
}

fn prompt_tokens(plan: &Plan) -> Outcome {
    let answer = usual(&Rig::build(plan)?)?;
    answer.fault(About::Counts)?;
    match answer.prompt_tokens {
        Some(n) => Ok(format!("{n}")),
        None => Ok("not reported".to_owned()),
    }
}

fn max_tokens(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    for limit in [1_usize, 5] {
        let ask = Ask { max_tokens: limit as u32, ..Ask::long(&rig.card) };
        let task = rig.submit(&ask)?;
        note("step");
        // Some more than the limit is enough to know.
        rig.drive(|heard| {
            heard.answers.get(&task).is_some_and(|a| a.is_over() || a.tokens.len() > limit + 256)
        })?;
        let answer = rig.answer(task);
        let n = answer.tokens.len();
        if n > limit {
            let end = if answer.is_over() { "" } else { " and no end" };
            return Err(format!("max_tokens was {limit}, {n} tokens came{end}").into());
        }
    }
    passed()
}

/// The first place at which a token stands that did not come before; not the very first where another can be had.
fn first_of_its_kind(tokens: &[u32]) -> Option<usize> {
    let new = |at: &usize| !tokens[..*at].contains(&tokens[*at]);
    (1..tokens.len()).find(new).or((!tokens.is_empty()).then_some(0))
}

fn stop_tokens(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let free = usual(&rig)?.tokens;
    let Some(at) = first_of_its_kind(&free) else { return skip("its answer has no token ids") };
    let stop = free[at];
    // Another one before it, which does not come: all of them count.
    let other = (0..).find(|id| !free.contains(id)).unwrap_or_default();
    let ask = Ask { stop_tokens: vec![other, stop], ..Ask::short(&rig.card) };
    let answer = whole(&rig, &ask)?;
    if answer.tokens.contains(&stop) {
        return Err(format!("{stop} is a stop token, and came as a token of the answer").into());
    }
    if answer.tokens != free[..at] {
        return skip("it does not answer the same twice");
    }
    match answer.finishes.first() {
        Some(&FINISH_STOP) => {}
        other => return Err(format!("a stop token came, and the finish is {other:?}, not stop").into()),
    }
    match answer.stop_token {
        Some(named) if named != stop => {
            Err(format!("the stop token {stop} came, and the end names {named}").into())
        }
        Some(_) => Ok(format!("after {at} tokens, and named")),
        None => Ok(format!("after {at} tokens")),
    }
}

fn logprobs(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    if !rig.card.has("logprobs") {
        return skip("its card has no logprobs");
    }
    let top = if rig.card.has("top_logprobs") { 2 } else { 0 };
    let ask = Ask { flags: LOGPROBS, top_logprobs: top, ..Ask::short(&rig.card) };
    let answer = whole(&rig, &ask)?;
    answer.fault(About::Logprobs)?;
    let (n, m) = (answer.logprobs, answer.tokens.len());
    if n != m {
        return Err(format!("{m} tokens came with {n} log-probabilities").into());
    }
    Ok(format!("{n} of {m}"))
}

fn text(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let answer = whole(&rig, &Ask { max_tokens: 64, ..Ask::short(&rig.card) })?;
    if answer.bytes.is_empty() {
        return match (answer.tokens.len(), answer.finishes.first()) {
            (0, Some(&FINISH_STOP)) => Ok("an empty answer".to_owned()),
            (0, _) => Err("the answer has neither bytes nor token ids".into()),
            (n, _) => Ok(format!("{n} token ids")),
        };
    }
    // A limit may cut a character in two; everywhere else the bytes are whole characters.
    match std::str::from_utf8(&answer.bytes) {
        Ok(text) => Ok(format!("{} bytes", text.len())),
        Err(e) if e.error_len().is_none() && answer.finishes.first() != Some(&FINISH_STOP) => {
            Ok("cut inside a character by its limit".to_owned())
        }
        Err(e) => {
            let at = e.valid_up_to();
            Err(format!("the answer's {} bytes are no UTF-8 from byte {at} on", answer.bytes.len()).into())
        }
    }
}

fn times(plan: &Plan) -> Outcome {
    let answer = usual(&Rig::build(plan)?)?;
    answer.fault(About::Times)?;
    passed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_token_is_one_that_did_not_come_before() {
        assert_eq!(first_of_its_kind(&[7, 7, 8, 7]), Some(2));
        assert_eq!(first_of_its_kind(&[7, 7]), Some(0));
        assert_eq!(first_of_its_kind(&[]), None);
    }
}
