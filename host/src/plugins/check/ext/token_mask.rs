//! `cascadia.token-mask/1`: what may not come does not come, and the host is told what did.
#![expect(unsafe_code, reason = "calls the extension's table")]

use core::ffi::c_void;
use std::collections::BTreeMap;

use cascadia_plugin_api::abi::chunk::FINISH_ERROR;
use cascadia_plugin_api::abi::prim::Array;
use cascadia_plugin_api::abi::task::GRAMMAR_MASK;
use cascadia_plugin_api::abi::{code, ids};
use cascadia_plugin_api::ext::draft::token_mask::{
    MASK_DEAD_END, MASK_SOME, MASK_UNREACHED, MaskFiller, MaskRequest, TokenMaskV1,
};
use parking_lot::Mutex;

use super::super::ask::Ask;
use super::super::rig::Rig;
use super::super::said::Said;
use super::super::{Fault, Outcome, Plan, Test};
use super::{done, ended_once, task_refused};

pub(in super::super) const TESTS: &[Test] = &[
    Test {
        name: "token-mask: a mask is obeyed, asked for once a step, and what was taken is told",
        run: obeyed,
    },
    Test { name: "token-mask: where all may come, the answer is as ever", run: all },
    Test { name: "token-mask: a dead end ends its task, and no other", run: dead_end },
    Test { name: "token-mask: without a filler a mask is refused", run: no_filler },
];

/// Whether a token may come at that place of an answer.
pub(super) type Rule = fn(place: usize, token: u32) -> bool;

#[derive(Default)]
struct State {
    /// What each task has told, withdrawn tokens taken off.
    taken: BTreeMap<u64, Vec<u32>>,
    calls: usize,
    most: usize,
    drafts: usize,
    withdrawn: usize,
    vocabulary: u32,
    fault: Option<String>,
    /// Tasks that go no further after so many tokens.
    dead_after: BTreeMap<u64, usize>,
}

pub(super) struct Filler {
    rule: Option<Rule>,
    state: Mutex<State>,
}

impl Filler {
    fn attached(plan: &Plan, rule: Option<Rule>) -> Result<(Rig, &'static Filler), Fault> {
        let rig = Rig::build(plan)?;
        let filler = Filler::new(rule);
        filler.attach(&rig)?;
        Ok((rig, filler))
    }

    /// A filler by a rule; without one all may come.
    pub(super) fn new(rule: Option<Rule>) -> &'static Filler {
        Box::leak(Box::new(Filler { rule, state: Mutex::default() }))
    }

    pub(super) fn attach(&'static self, rig: &Rig) -> Result<(), Fault> {
        // SAFETY: the id names the type.
        let table: &TokenMaskV1 = unsafe { rig.subject.offered(ids::TOKEN_MASK) }?;
        let mut said = Said::default();
        let filler = MaskFiller { ctx: std::ptr::from_ref(self).cast_mut().cast(), fill };
        // SAFETY: the engine lives and has no task; the filler lives for ever.
        let code = unsafe { (table.attach)(rig.engine(), filler, said.out()) };
        done("attach", code, &said)
    }
}

unsafe extern "C" fn fill(
    ctx: *mut c_void,
    requests: Array,
    masks: *mut u32,
    words: u32,
    states: *mut u32,
    rows: u32,
) -> u32 {
    // SAFETY: the context lives for ever; the requests and both matrices are lent with the sizes that are told.
    let (filler, requests, masks, states) = unsafe {
        (
            &*ctx.cast::<Filler>(),
            requests.iter::<MaskRequest>().collect::<Vec<_>>(),
            core::slice::from_raw_parts_mut(masks, words as usize * rows as usize),
            core::slice::from_raw_parts_mut(states, rows as usize),
        )
    };
    let mut state = filler.state.lock();
    state.calls += 1;
    state.most = state.most.max(requests.len());
    state.vocabulary = words.saturating_mul(32);
    let mut row = 0;
    for request in requests {
        // SAFETY: lent for the call.
        let (taken, drafts) = unsafe { (request.taken.scalars::<u32>(), request.drafts.scalars::<u32>()) };
        state.drafts += drafts.len();
        state.withdrawn += request.rollback as usize;
        let known = state.taken.entry(request.task).or_default();
        let Some(keep) = known.len().checked_sub(request.rollback as usize) else {
            state.fault = Some(format!("{} tokens are withdrawn, fewer were told", request.rollback));
            return code::BACKEND;
        };
        known.truncate(keep);
        known.extend_from_slice(&taken);
        let place = known.len();
        let dead = state.dead_after.get(&request.task).copied();
        let mut reached = true;
        for at in 0..=drafts.len() {
            let Some(to) = states.get_mut(row) else {
                state.fault = Some(format!("the requests take more than the {rows} rows there are"));
                return code::BACKEND;
            };
            let bits = &mut masks[row * words as usize..][..words as usize];
            row += 1;
            if bits.iter().any(|word| *word != 0) {
                state.fault = Some("a mask was not zeroed".to_owned());
            }
            let may = |token: u32| filler.rule.is_none_or(|rule| rule(place + at, token));
            *to = match () {
                () if dead.is_some_and(|n| place + at >= n) => MASK_DEAD_END,
                () if !reached => MASK_UNREACHED,
                () if filler.rule.is_none() => continue,
                () => {
                    for token in (0..words * 32).filter(|t| may(*t)) {
                        bits[token as usize / 32] |= 1 << (token % 32);
                    }
                    MASK_SOME
                }
            };
            reached &= drafts.get(at).is_none_or(|draft| may(*draft));
        }
    }
    if row != rows as usize {
        state.fault = Some(format!("the requests take {row} rows, there are {rows}"));
    }
    code::OK
}

fn masked(rig: &Rig) -> Ask {
    Ask { grammar: GRAMMAR_MASK, max_tokens: 12, ..Ask::short(&rig.card) }
}

/// Digits, another two at each place: no text an engine would say of itself.
pub(super) fn digits(place: usize, token: u32) -> bool {
    let digit = |n: usize| 48 + (n % 10) as u32;
    token == digit(place) || token == digit(place + 3)
}

/// Steps until the tasks are over; more than one call in a step is a fault.
fn walk(rig: &Rig, filler: &Filler, tasks: &[u64]) -> Result<(), Fault> {
    let mut before = filler.state.lock().calls;
    rig.walk(tasks, || {
        let calls = filler.state.lock().calls;
        let in_step = calls - std::mem::replace(&mut before, calls);
        if in_step > 1 { Err(format!("a step asked for masks {in_step} times")) } else { Ok(()) }
    })?;
    match filler.state.lock().fault.take() {
        Some(fault) => Err(fault.into()),
        None => Ok(()),
    }
}

fn obeyed(plan: &Plan) -> Outcome {
    let (rig, filler) = Filler::attached(plan, Some(digits))?;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.extend(rig.submit(&masked(&rig)).ok());
    }
    if tasks.is_empty() {
        return Err("no task with a mask is taken".into());
    }
    let free = rig.submit(&Ask::short(&rig.card)).ok();
    let all: Vec<u64> = tasks.iter().copied().chain(free).collect();
    walk(&rig, filler, &all)?;
    let state = filler.state.lock();
    for task in &tasks {
        let answer = rig.answer(*task);
        if let Some((code, message)) = answer.error {
            return Err(format!("a masked task failed: {message} ({})", code::name(code)).into());
        }
        if let Some((at, token)) = answer.tokens.iter().enumerate().find(|(at, t)| !digits(*at, **t)) {
            return Err(format!("token {at} is {token}, which its mask did not allow").into());
        }
        if answer.tokens.is_empty() {
            return Err("a masked task gave no token".into());
        }
        // The last tokens need no request any more.
        let told = state.taken.get(task).map_or(&[][..], Vec::as_slice);
        if !answer.tokens.starts_with(told) {
            return Err(format!("the host was told {told:?} and heard {:?}", answer.tokens).into());
        }
    }
    if free.is_some_and(|task| state.taken.contains_key(&task)) {
        return Err("a mask was asked for that no task wanted".into());
    }
    let (calls, most, drafts, back) = (state.calls, state.most, state.drafts, state.withdrawn);
    Ok(format!("{calls} calls, up to {most} tasks in one, {drafts} drafts, {back} withdrawn"))
}

fn all(plan: &Plan) -> Outcome {
    let (rig, filler) = Filler::attached(plan, None)?;
    let free = rig.submit(&Ask { grammar: 0, ..masked(&rig) })?;
    rig.finish(&[free])?;
    let task = rig.submit(&masked(&rig))?;
    walk(&rig, filler, &[task])?;
    let (free, answer) = (rig.answer(free), rig.answer(task));
    if free.tokens != answer.tokens {
        return Err(format!("{:?} without a mask, {:?} with one of all", free.tokens, answer.tokens).into());
    }
    Ok(format!("{} tokens", answer.tokens.len()))
}

fn dead_end(plan: &Plan) -> Outcome {
    let (rig, filler) = Filler::attached(plan, Some(digits))?;
    let (dead, other) = (rig.submit(&masked(&rig))?, rig.submit(&masked(&rig))?);
    filler.state.lock().dead_after.insert(dead, 3);
    walk(&rig, filler, &[dead, other])?;
    ended_once(&rig, dead)?;
    ended_once(&rig, other)?;
    let answer = rig.answer(dead);
    if answer.finishes != [FINISH_ERROR] || answer.tokens.len() != 3 {
        let (n, how) = (answer.tokens.len(), &answer.finishes);
        return Err(format!("with a dead end after 3 tokens there are {n}, and the finish is {how:?}").into());
    }
    if rig.answer(other).error.is_some() {
        return Err("another task failed with it".into());
    }
    Ok(answer.error.map(|(_, message)| message).unwrap_or_default())
}

fn no_filler(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    // SAFETY: the id names the type.
    let _: &TokenMaskV1 = unsafe { rig.subject.offered(ids::TOKEN_MASK) }?;
    let codes = [code::UNSUPPORTED, code::INVALID_CONFIG];
    task_refused("a task with a mask and no filler", rig.submit(&masked(&rig)), &codes)?;
    super::super::passed()
}
