//! `cascadia.kv-events/1`: the log has no hole, tells the truth, and can be read again.
#![expect(unsafe_code, reason = "calls the extension's table")]

use core::ffi::c_void;
use std::collections::BTreeSet;

use cascadia_plugin_api::abi::ids;
use cascadia_plugin_api::abi::prim::Array;
use cascadia_plugin_api::ext::draft::kv_events::{
    KV_CLEARED, KV_HAS_PARENT, KV_REMOVED, KV_STORED, KvEvent, KvEventsOut, KvEventsV1,
};

use super::super::ask::Ask;
use super::super::note::note;
use super::super::rig::Rig;
use super::super::said::Said;
use super::super::{Fault, Outcome, Plan, Test, passed, skip};
use super::done;

pub(in super::super) const TESTS: &[Test] = &[
    Test { name: "kv-events: numbers have no gap, and stored balances removed", run: balance },
    Test { name: "kv-events: what was read can be read again, from any number", run: again },
];

/// An event, owned.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    sequence: u64,
    kind: u32,
    parent: Option<u64>,
    blocks: Vec<u64>,
    tokens: usize,
    block_size: usize,
    tier: u32,
}

unsafe extern "C" fn take(ctx: *mut c_void, events: Array) {
    // SAFETY: `ctx` is the caller's vector, alive for the call; the events are lent, and an all-zero one is valid.
    unsafe {
        let all = &mut *ctx.cast::<Vec<Seen>>();
        all.extend(events.iter::<KvEvent>().map(|e| Seen {
            sequence: e.sequence,
            kind: e.kind,
            parent: (e.flags & KV_HAS_PARENT != 0).then_some(e.parent),
            blocks: e.blocks.scalars::<u64>().into_owned(),
            tokens: e.tokens.len,
            block_size: e.block_size as usize,
            tier: e.tier,
        }));
    }
}

struct Log<'a> {
    rig: &'a Rig,
    table: &'static KvEventsV1,
}

impl Log<'_> {
    fn of(rig: &Rig) -> Result<Log<'_>, Fault> {
        // SAFETY: the id names the type.
        Ok(Log { rig, table: unsafe { rig.subject.offered(ids::KV_EVENTS) }? })
    }

    fn read(&self, from: u64, most: u32) -> Result<Vec<Seen>, Fault> {
        note("kv-events read");
        let (mut all, mut said) = (Vec::new(), Said::default());
        let out = KvEventsOut { ctx: std::ptr::from_mut(&mut all).cast(), take };
        // SAFETY: the engine lives; the callback and its vector outlive the call.
        let code = unsafe { (self.table.read)(self.rig.engine(), from, most, out, said.out()) };
        done("read", code, &said)?;
        if all.len() > most as usize {
            return Err(format!("read gave {} events where {most} were wanted", all.len()).into());
        }
        Ok(all)
    }

    fn snapshot(&self) -> Result<(Vec<Seen>, u64), Fault> {
        note("kv-events snapshot");
        let (mut all, mut last, mut said) = (Vec::new(), 0_u64, Said::default());
        let out = KvEventsOut { ctx: std::ptr::from_mut(&mut all).cast(), take };
        // SAFETY: as above.
        let code = unsafe { (self.table.snapshot)(self.rig.engine(), out, &raw mut last, said.out()) };
        done("snapshot", code, &said)?;
        Ok((all, last))
    }

    /// Prompts that share beginnings, more than a small cache keeps.
    fn work(&self) -> Result<(), Fault> {
        let room = usize::try_from(self.rig.card.context_length).unwrap_or(4096).clamp(64, 4096) / 2;
        for turn in 0..12_usize {
            let mut ask = Ask::of(&self.rig.card, (40 + turn * 23).min(room));
            ask.max_tokens = 2;
            let from = if turn % 3 == 2 { 0 } else { ask.tokens.len() / 2 };
            let shift = ask.tokens[turn % ask.tokens.len()];
            ask.tokens[from..].fill(shift);
            let task = self.rig.submit(&ask)?;
            self.rig.finish(&[task])?;
        }
        Ok(())
    }
}

/// What an index makes of events.
#[derive(Default)]
struct Index {
    last: u64,
    held: BTreeSet<(u64, u32)>,
}

impl Index {
    fn take(&mut self, event: &Seen) -> Result<(), String> {
        let n = event.sequence;
        if n != self.last + 1 {
            return Err(format!("event {n} comes after {}", self.last));
        }
        self.last = n;
        self.apply(event)
    }

    fn apply(&mut self, event: &Seen) -> Result<(), String> {
        let n = event.sequence;
        match event.kind {
            KV_STORED => {
                if event.blocks.is_empty() || event.tokens != event.blocks.len() * event.block_size {
                    let (blocks, tokens, size) = (event.blocks.len(), event.tokens, event.block_size);
                    return Err(format!("event {n} stores {blocks} blocks of {size} with {tokens} tokens"));
                }
                if let Some(parent) = event.parent.filter(|p| !self.held.iter().any(|(hash, _)| hash == p)) {
                    return Err(format!("event {n} stores blocks behind {parent:#x}, which is not held"));
                }
                for block in &event.blocks {
                    if !self.held.insert((*block, event.tier)) {
                        return Err(format!("event {n} stores {block:#x}, which is held already"));
                    }
                }
            }
            KV_REMOVED => {
                for block in &event.blocks {
                    if !self.held.remove(&(*block, event.tier)) {
                        return Err(format!("event {n} removes {block:#x}, which is not held"));
                    }
                }
            }
            KV_CLEARED => self.held.clear(),
            other => return Err(format!("event {n} is of kind {other}, which means nothing")),
        }
        Ok(())
    }
}

fn balance(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let log = Log::of(&rig)?;
    let mut index = Index::default();
    log.work()?;
    let events = log.read(1, 10_000)?;
    let Some(first) = events.first() else {
        return skip("no event came; is its prefix cache off, or larger blocks than the prompts?");
    };
    if first.sequence != 1 {
        return Err(format!("the log of a few tasks begins with {}", first.sequence).into());
    }
    events.iter().try_for_each(|event| index.take(event))?;
    let (blocks, last) = log.snapshot()?;
    if last != index.last {
        return Err(format!("the snapshot stands for event {last}, the log ends with {}", index.last).into());
    }
    let mut whole = Index::default();
    blocks.iter().try_for_each(|event| whole.apply(event))?;
    if whole.held != index.held {
        let (a, b) = (whole.held.len(), index.held.len());
        return Err(format!("the snapshot holds {a} blocks, the events leave {b}").into());
    }
    Ok(format!("{} events, {} blocks held", events.len(), index.held.len()))
}

fn again(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let log = Log::of(&rig)?;
    log.work()?;
    let all = log.read(1, 10_000)?;
    let Some(last) = all.last() else { return skip("no event came") };
    let mut singly = Vec::new();
    let mut from = 1;
    while let [event] = log.read(from, 1)?.as_slice() {
        from = event.sequence + 1;
        singly.push(event.clone());
    }
    if singly != all {
        return Err("events read one by one are others than those read at once".into());
    }
    for beyond in [last.sequence + 1, u64::MAX] {
        if !log.read(beyond, 10)?.is_empty() {
            return Err(format!("event {beyond} is told before it happened").into());
        }
    }
    log.read(0, 0)?;
    passed()
}
