//! `cascadia.kv-state/1`: a sequence that moves goes on as if it had stayed.
#![expect(unsafe_code, reason = "calls the extension's table")]

use core::ffi::c_void;

use cascadia_plugin_api::abi::prim::{Str, StrOut};
use cascadia_plugin_api::abi::{code, ids};
use cascadia_plugin_api::ext::draft::kv_state::{KvStateIn, KvStateOut, KvStateV1};
use serde_json::Value;

use super::super::ask::Ask;
use super::super::note::note;
use super::super::rig::{Refusal, Rig};
use super::super::said::Said;
use super::super::{Fault, Outcome, Plan, Test, passed, skip};
use super::{done, ended_once, refused};

pub(in super::super) const TESTS: &[Test] = &[
    Test { name: "kv-state: moved in its middle, a task gives the text of one that stayed", run: moved },
    Test { name: "kv-state: a state that does not fit is refused by what does not fit", run: corrupted },
    Test { name: "kv-state: what is unknown or over is not saved", run: unknown },
];

/// A saved state.
#[derive(Debug, Clone, Default)]
struct State {
    descriptor: String,
    bytes: Vec<u8>,
    chunks: usize,
    /// What the receiver found wrong.
    fault: Option<&'static str>,
}

unsafe extern "C" fn describe(ctx: *mut c_void, descriptor: Str) -> u32 {
    // SAFETY: `ctx` is the caller's state, alive for the call; the text is lent.
    unsafe {
        let state = &mut *ctx.cast::<State>();
        if state.chunks > 0 || !state.descriptor.is_empty() {
            state.fault = Some("the descriptor does not come once and first");
        }
        state.descriptor = descriptor.text().into_owned();
    }
    0
}

unsafe extern "C" fn chunk(ctx: *mut c_void, bytes: Str) -> u32 {
    // SAFETY: as above.
    unsafe {
        let state = &mut *ctx.cast::<State>();
        if state.descriptor.is_empty() {
            state.fault = Some("bytes come before the descriptor");
        }
        state.chunks += 1;
        state.bytes.extend_from_slice(bytes.bytes());
    }
    0
}

unsafe extern "C" fn give_up(_ctx: *mut c_void, _text: Str) -> u32 {
    1
}

unsafe extern "C" fn read(ctx: *mut c_void, offset: u64, most: u64, out: StrOut) -> u32 {
    // SAFETY: `ctx` is the caller's state, alive for the call; `out` is lent.
    unsafe {
        let state = &*ctx.cast::<State>();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(state.bytes.len());
        let to = from.saturating_add(usize::try_from(most).unwrap_or(usize::MAX)).min(state.bytes.len());
        (out.set)(out.ctx, Str::new(&state.bytes[from..to]));
    }
    code::OK
}

struct Mover<'a> {
    rig: &'a Rig,
    table: &'static KvStateV1,
}

impl Mover<'_> {
    fn of(rig: &Rig) -> Result<Mover<'_>, Fault> {
        // SAFETY: the id names the type.
        Ok(Mover { rig, table: unsafe { rig.subject.offered(ids::KV_STATE) }? })
    }

    fn save(&self, task: u64) -> (u32, State, Said) {
        note("save");
        let (mut state, mut said) = (State::default(), Said::default());
        let out = KvStateOut { ctx: std::ptr::from_mut(&mut state).cast(), describe, chunk };
        // SAFETY: the engine lives, no step runs; the callbacks outlive the call.
        let code = unsafe { (self.table.save)(self.rig.engine(), task, out, said.out()) };
        (code, state, said)
    }

    fn restore(&self, ask: &Ask, state: &State) -> Result<u64, Refusal> {
        note("restore");
        let id = self.rig.fresh_id();
        let task = ask.wire(id);
        let source = KvStateIn {
            ctx: std::ptr::from_ref(state).cast_mut().cast(),
            descriptor_json: Str::new(state.descriptor.as_bytes()),
            read,
        };
        let prompt = ask.generated_from.unwrap_or(ask.tokens.len());
        // SAFETY: the engine lives, no step runs; task, state and callbacks outlive the call.
        self.rig.submit_by(id, prompt, |err| unsafe {
            (self.table.restore)(self.rig.engine(), &raw const task, source, err)
        })
    }

    /// A task that has begun and is not over, its state, and the task to restore it by.
    fn middle(&self) -> Result<(u64, State, Ask), Fault> {
        let mut ask = self.ask();
        let task = self.rig.submit(&ask)?;
        self.rig
            .drive(|heard| heard.answers.get(&task).is_some_and(|a| a.tokens.len() > 2 || a.is_over()))?;
        let answer = self.rig.answer(task);
        if answer.is_over() {
            return skip("its answer is over before it can be moved");
        }
        let (code, state, said) = self.save(task);
        done("save", code, &said)?;
        if let Some(fault) = state.fault {
            return Err(fault.into());
        }
        ask.generated_from = Some(ask.tokens.len());
        ask.tokens.extend_from_slice(&answer.tokens);
        Ok((task, state, ask))
    }

    fn ask(&self) -> Ask {
        Ask { max_tokens: 24, ..Ask::of(&self.rig.card, 160) }
    }
}

fn moved(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let mover = Mover::of(&rig)?;
    let stays = rig.submit(&mover.ask())?;
    rig.finish(&[stays])?;
    let (task, state, ask) = mover.middle()?;
    let begun = rig.answer(task).tokens;
    // It goes on where it was until the host ends it.
    rig.step()?;
    rig.cancel(task);
    rig.finish(&[task])?;
    let second = match Rig::of(rig.subject, plan) {
        Ok(second) => second,
        Err(_) => return skip("a second engine beside the first is refused"),
    };
    drop(rig.close(std::time::Duration::from_secs(2)));
    let other = Mover::of(&second)?;
    let moved = other.restore(&ask, &state)?;
    second.finish(&[moved])?;
    ended_once(&second, moved)?;
    let (whole, rest) = (rig.answer(stays), second.answer(moved));
    let joined: Vec<u32> = begun.iter().chain(&rest.tokens).copied().collect();
    if joined != whole.tokens || rest.finishes != whole.finishes {
        return Err(format!("stayed: {:?}; moved after {}: {joined:?}", whole.tokens, begun.len()).into());
    }
    Ok(format!("{} bytes in {} chunks, after {} tokens", state.bytes.len(), state.chunks, begun.len()))
}

fn corrupted(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let mover = Mover::of(&rig)?;
    let (task, state, ask) = mover.middle()?;
    let descriptor: Value =
        serde_json::from_str(&state.descriptor).map_err(|e| format!("the descriptor is no JSON: {e}"))?;
    for key in ["layout", "dtype", "model", "tokens", "bytes", "digest"] {
        if descriptor.get(key).is_none() {
            return Err(format!("the descriptor has no {key}").into());
        }
    }
    let with = |key: &str, value: Value| {
        let mut changed = descriptor.clone();
        changed[key] = value;
        State { descriptor: changed.to_string(), ..state.clone() }
    };
    let mut flipped = state.clone();
    if let Some(byte) = flipped.bytes.get_mut(state.bytes.len() / 2) {
        *byte ^= 0x40;
    }
    let half = State { bytes: state.bytes[..state.bytes.len() / 2].to_vec(), ..state.clone() };
    let broken = [
        ("layout", with("layout", Value::from("other/9"))),
        ("dtype", with("dtype", Value::from("f8"))),
        ("model", with("model", Value::from("0000"))),
        ("tokens", with("tokens", Value::from(1))),
        ("", with("bytes", Value::from(3))),
        ("", flipped),
        ("", half),
        ("", State { descriptor: "{".to_owned(), ..state.clone() }),
        ("", State::default()),
    ];
    for (key, state) in &broken {
        let what = if key.is_empty() { "a damaged state" } else { key };
        let Err(refusal) = mover.restore(&ask, state) else {
            return Err(format!("a state with another {what} is taken").into());
        };
        let call = format!("restore of a state with another {what}");
        refused(&call, refusal.code, &refusal.said, &[code::INVALID_CONFIG])?;
        if !refusal.said.message.contains(key) {
            return Err(format!("{call} does not name it: {}", refusal.said.message).into());
        }
    }
    let mut other = ask.clone();
    other.tokens[0] ^= 1;
    let Err(refusal) = mover.restore(&other, &state) else {
        return Err("the state of another prompt is taken".into());
    };
    refused("restore of another prompt's state", refusal.code, &refusal.said, &[code::INVALID_CONFIG])?;
    rig.cancel(task);
    let next = rig.submit(&Ask::short(&rig.card))?;
    rig.finish(&[task, next])?;
    Ok(format!("{} ways", broken.len() + 1))
}

fn unknown(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let mover = Mover::of(&rig)?;
    let task = rig.submit(&Ask::short(&rig.card))?;
    rig.finish(&[task])?;
    for id in [task, rig.fresh_id(), u64::MAX] {
        let (code, state, said) = mover.save(id);
        refused("save of a task that is not running", code, &said, &[code::INVALID_CONFIG])?;
        if !state.bytes.is_empty() {
            return Err("bytes came for a task that is not running".into());
        }
    }
    // A receiver that wants no more ends the call, and nothing else.
    let (running, ..) = mover.middle()?;
    let mut said = Said::default();
    let out = KvStateOut { ctx: core::ptr::null_mut(), describe: give_up, chunk: give_up };
    // SAFETY: the engine lives, no step runs; the callbacks need no context.
    let code = unsafe { (mover.table.save)(rig.engine(), running, out, said.out()) };
    refused("save to a receiver that gives up", code, &said, &[code::CANCELLED])?;
    rig.finish(&[running])?;
    ended_once(&rig, running)?;
    passed()
}
