//! A pipeline in one process: the stages, and a host that carries between them what they give, or loses it.
#![expect(unsafe_code, reason = "calls the extension's table")]

use core::ffi::c_void;
use std::cell::{Cell, RefCell};
use std::time::Instant;

use cascadia_plugin_api::abi::prim::{Array, Str};
use cascadia_plugin_api::abi::{code, ids};
use cascadia_plugin_api::ext::draft::stage::{
    StageBatch, StageInfo, StageOut, StageRefusal, StageRow, StageSequence, StageToken, StageV1,
};
use parking_lot::Mutex;

use super::super::super::note::note;
use super::super::super::page::Page;
use super::super::super::rig::Rig;
use super::super::super::said::Said;
use super::super::super::subject::Subject;
use super::super::super::{Fault, Plan};
use super::super::done;

/// A batch, owned. What its sequences view lies in `parts`.
#[derive(Clone)]
pub(super) struct Batch {
    pub(super) number: u64,
    pub(super) epoch: u64,
    pub(super) rows: Vec<StageRow>,
    pub(super) sequences: Vec<StageSequence>,
    parts: Vec<(Vec<u32>, Vec<u32>, Vec<u8>)>,
    pub(super) dtype: u32,
    pub(super) width: u32,
    max_context: u64,
    pub(super) payload: Vec<u8>,
}

/// A refusal, owned.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    number: u64,
    epoch: u64,
    pub(super) tasks: Vec<u64>,
    pub(super) code: u32,
    pub(super) message: String,
}

/// What a stage gave.
enum Event {
    Batch(Batch),
    Tokens(u64, Vec<(StageToken, Vec<u32>, Vec<f32>)>),
    Refusal(Refusal),
}

// SAFETY: what the elements view lies in their own parts; the old pointers are never followed.
unsafe impl Send for Event {}

/// What becomes of a batch on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It arrives.
    Pass,
    /// It is lost, and nobody knows.
    Vanish,
    /// The link is lost with it, and mended.
    LinkLost,
}

type Mail = Mutex<Vec<Event>>;

/// The stages.
pub(super) struct Pipe {
    pub(super) stages: Vec<Rig>,
    pub(super) info: StageInfo,
    table: &'static StageV1,
    mail: Vec<&'static Mail>,
    carried: RefCell<Carried>,
    /// By how much the structs of a newer host are larger; 0 = not at all.
    more: Cell<usize>,
}

#[derive(Default)]
struct Carried {
    epoch: u64,
    /// Batches that a stage had no room for.
    waiting: Vec<(usize, Batch)>,
    last: Option<Batch>,
    refusals: Vec<Refusal>,
}

impl Pipe {
    /// A pipeline of so many stages.
    pub(super) fn of(plan: &Plan, stages: u32) -> Result<Pipe, Fault> {
        let subject = Subject::open(plan)?;
        // SAFETY: the id names the type.
        let table: &StageV1 = unsafe { subject.offered(ids::STAGE) }?;
        let mut pipe = Pipe {
            stages: Vec::new(),
            info: EMPTY,
            table,
            mail: Vec::new(),
            carried: RefCell::default(),
            more: Cell::new(0),
        };
        for rank in 0..stages {
            let mail: &'static Mail = Box::leak(Box::default());
            let out = StageOut { ctx: std::ptr::from_ref(mail).cast_mut().cast(), batch, tokens, refuse };
            let (mut info, mut said) = (EMPTY, Said::default());
            let rig = Rig::stage(subject, plan, (rank, stages), |engine| {
                note("stage info and attach");
                // SAFETY: the engine lives and has no task; the mail lives for ever.
                unsafe {
                    done("info", (table.info)(engine, &raw mut info), &said)?;
                    let code = (table.attach)(engine, out, said.out());
                    done("attach", code, &said)
                }
            })
            .map_err(|fault| fault.elsewhere(&format!("there is no stage {rank} of {stages}")))?;
            if (info.rank, info.stages) != (rank, stages) || info.width == 0 || info.window == 0 {
                let (r, n, w) = (info.rank, info.stages, info.window);
                return Err(format!("stage {rank} of {stages} says {r} of {n}, with a window of {w}").into());
            }
            pipe.info = info;
            pipe.stages.push(rig);
            pipe.mail.push(mail);
        }
        Ok(pipe)
    }

    /// One step of every stage, and everything carried.
    pub(super) fn turn(&self, fate: &mut dyn FnMut(usize, &Batch) -> Fate) -> Result<(), Fault> {
        for (rank, stage) in self.stages.iter().enumerate() {
            stage.step()?;
            let waiting = std::mem::take(&mut self.carried.borrow_mut().waiting);
            waiting.into_iter().try_for_each(|(to, batch)| self.hand(to, batch))?;
            let events = std::mem::take(&mut *self.mail[rank].lock());
            for event in events {
                match event {
                    Event::Batch(batch) => {
                        self.carried.borrow_mut().last = Some(batch.clone());
                        match fate(rank, &batch) {
                            Fate::Pass => self.hand(rank + 1, batch)?,
                            Fate::Vanish => {}
                            Fate::LinkLost => {
                                let epoch = self.carried.borrow().epoch + 1;
                                self.abort(epoch, &[])?;
                            }
                        }
                    }
                    Event::Tokens(epoch, tokens) => self.tokens(epoch, &tokens)?,
                    Event::Refusal(refusal) => self.refused(refusal)?,
                }
            }
        }
        Ok(())
    }

    /// Turns until the tasks are over.
    pub(super) fn run(
        &self,
        tasks: &[u64],
        mut fate: impl FnMut(usize, &Batch) -> Fate,
    ) -> Result<(), Fault> {
        note("step of every stage");
        let first = &self.stages[0];
        let life = || first.ear.look(|heard| heard.pushes);
        let mut last = (life(), Instant::now());
        while !tasks.iter().all(|task| first.answer(*task).is_over()) {
            self.turn(&mut fate)?;
            if life() != last.0 {
                last = (life(), Instant::now());
            }
            if last.1.elapsed() > first.patience() {
                let open = tasks.iter().filter(|task| !first.answer(**task).is_over()).count();
                return Err(format!("{open} of {} tasks stand still in the pipe", tasks.len()).into());
            }
        }
        Ok(())
    }

    /// Some turns more, so that what is under way arrives.
    pub(super) fn settle(&self) -> Result<(), Fault> {
        for _ in 0..4 {
            for stage in &self.stages {
                stage.step()?;
            }
        }
        Ok(())
    }

    /// What a stage gave that nobody has carried.
    pub(super) fn anything(&self) -> Option<&'static str> {
        let event = self.mail.iter().find_map(|mail| mail.lock().pop())?;
        Some(match event {
            Event::Batch(_) => "a batch",
            Event::Tokens(..) => "tokens",
            Event::Refusal(_) => "a refusal",
        })
    }

    pub(super) fn last_batch(&self) -> Option<Batch> {
        self.carried.borrow().last.clone()
    }

    pub(super) fn take_refusals(&self) -> Vec<Refusal> {
        std::mem::take(&mut self.carried.borrow_mut().refusals)
    }

    fn hand(&self, to: usize, batch: Batch) -> Result<(), Fault> {
        let (code, said) = self.receive(to, &batch)?;
        if code == code::QUEUE_FULL {
            self.carried.borrow_mut().waiting.push((to, batch));
            return Ok(());
        }
        done("receive", code, &said)
    }

    /// Gives a batch to a stage.
    pub(super) fn receive(&self, to: usize, batch: &Batch) -> Result<(u32, Said), Fault> {
        let stage = self.stages.get(to).ok_or("the last stage gave a batch")?;
        let sequences: Vec<_> = batch
            .sequences
            .iter()
            .zip(&batch.parts)
            .map(|(s, (blocks, mask, sampling))| StageSequence {
                blocks: Array::new(blocks),
                mask: Array::new(mask),
                sampling: Str::new(sampling),
                ..*s
            })
            .collect();
        let size = size_of::<StageBatch>() + self.more.get();
        let wire = StageBatch {
            struct_size: size as u32,
            flags: 0,
            batch: batch.number,
            epoch: batch.epoch,
            rows: Array::new(&batch.rows),
            sequences: Array::new(&sequences),
            dtype: batch.dtype,
            width: batch.width,
            max_context: batch.max_context,
            payload: Str::new(&batch.payload),
        };
        let (page, mut said) = (Page::with(&wire, size)?, Said::default());
        // SAFETY: the engine lives; the page has the size that the batch says, and what it views outlives the call.
        let code = unsafe { (self.table.receive)(stage.engine(), page.ptr(), said.out()) };
        Ok((code, said))
    }

    /// From now on batches come in the larger struct of a newer host.
    pub(super) fn grow(&self) {
        self.more.set(64);
    }

    /// What `info` of stage 0 answers to a struct of that size, which it may not write behind.
    pub(super) fn info_of(&self, size: usize) -> Result<u32, String> {
        note(&format!("info with a struct of {size} bytes"));
        let page = Page::with(&StageInfo { struct_size: size as u32, ..EMPTY }, size)?;
        // SAFETY: the engine lives; the page has as many bytes as the struct says.
        Ok(unsafe { (self.table.info)(self.stages[0].engine(), page.ptr()) })
    }

    fn tokens(&self, epoch: u64, tokens: &[(StageToken, Vec<u32>, Vec<f32>)]) -> Result<(), Fault> {
        let wire: Vec<_> = tokens
            .iter()
            .map(|(t, ids, ps)| StageToken { top_ids: Array::new(ids), top_logprobs: Array::new(ps), ..*t })
            .collect();
        let mut said = Said::default();
        // SAFETY: the engine lives; the tokens outlive the call.
        let code =
            unsafe { (self.table.tokens)(self.stages[0].engine(), epoch, Array::new(&wire), said.out()) };
        done("tokens", code, &said)
    }

    fn refused(&self, refusal: Refusal) -> Result<(), Fault> {
        let wire = StageRefusal {
            struct_size: size_of::<StageRefusal>() as u32,
            code: refusal.code,
            batch: refusal.number,
            epoch: refusal.epoch,
            tasks: Array::new(&refusal.tasks),
            message: Str::new(refusal.message.as_bytes()),
        };
        let mut said = Said::default();
        // SAFETY: the engine lives; the refusal outlives the call.
        let code = unsafe { (self.table.refused)(self.stages[0].engine(), &raw const wire, said.out()) };
        done("refused", code, &said)?;
        self.carried.borrow_mut().refusals.push(refusal);
        Ok(())
    }

    /// Tells every stage; an epoch of 0 raises none.
    pub(super) fn abort(&self, epoch: u64, tasks: &[u64]) -> Result<(), Fault> {
        let mut carried = self.carried.borrow_mut();
        carried.epoch = carried.epoch.max(epoch);
        carried.waiting.clear();
        drop(carried);
        for stage in &self.stages {
            let mut said = Said::default();
            // SAFETY: the engine lives; the ids outlive the call.
            let code = unsafe { (self.table.abort)(stage.engine(), epoch, Array::new(tasks), said.out()) };
            done("abort", code, &said)?;
        }
        Ok(())
    }
}

const EMPTY: StageInfo = StageInfo {
    struct_size: size_of::<StageInfo>() as u32,
    flags: 0,
    rank: 0,
    stages: 0,
    dtype: 0,
    width: 0,
    max_rows: 0,
    window: 0,
};

/// # Safety
/// `ctx` must be the mail of a stage.
unsafe fn put(ctx: *mut c_void, event: Event) -> u32 {
    // SAFETY: the caller's promise; mail lives for ever.
    unsafe { &*ctx.cast::<Mail>() }.lock().push(event);
    code::OK
}

unsafe extern "C" fn batch(ctx: *mut c_void, batch: *const StageBatch) -> u32 {
    // SAFETY: the stage lends the batch and what it views; all-zero elements are valid.
    unsafe {
        let b = &*batch;
        let sequences: Vec<_> = b.sequences.iter::<StageSequence>().collect();
        let parts = sequences.iter().map(|s| {
            let (blocks, mask) = (s.blocks.scalars::<u32>(), s.mask.scalars::<u32>());
            (blocks.into_owned(), mask.into_owned(), s.sampling.bytes().to_vec())
        });
        let parts = parts.collect();
        let owned = Batch {
            number: b.batch,
            epoch: b.epoch,
            rows: b.rows.iter::<StageRow>().collect(),
            sequences,
            parts,
            dtype: b.dtype,
            width: b.width,
            max_context: b.max_context,
            payload: b.payload.bytes().to_vec(),
        };
        put(ctx, Event::Batch(owned))
    }
}

unsafe extern "C" fn tokens(ctx: *mut c_void, epoch: u64, tokens: Array) -> u32 {
    // SAFETY: as above.
    unsafe {
        let own = |t: StageToken| {
            (t, t.top_ids.scalars::<u32>().into_owned(), t.top_logprobs.scalars::<f32>().into_owned())
        };
        put(ctx, Event::Tokens(epoch, tokens.iter::<StageToken>().map(own).collect()))
    }
}

unsafe extern "C" fn refuse(ctx: *mut c_void, refusal: *const StageRefusal) -> u32 {
    // SAFETY: as above.
    unsafe {
        let r = &*refusal;
        let owned = Refusal {
            number: r.batch,
            epoch: r.epoch,
            tasks: r.tasks.scalars::<u64>().into_owned(),
            code: r.code,
            message: r.message.text().into_owned(),
        };
        put(ctx, Event::Refusal(owned))
    }
}
