//! An engine in hand: built from the plan, driven by the contract's rules. Closes and frees it when dropped.
//!
//! What must hold: `step` is called by one thread at a time, and after it said idle not again before something happened.
#![expect(unsafe_code, reason = "calls the plugin's tables")]

use core::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::engine::{STEP_IDLE, STEP_MORE, STEP_WAIT, StepOut};
use cascadia_plugin_api::abi::prim::{ErrOut, Str, StrOut};
use cascadia_plugin_api::ext::LoadReport;

use super::ask::Ask;
use super::note::note;
use super::pace::Pace;
use super::said::Said;
use super::setup::{Setup, going_on};
use super::sink::{Answer, Ear, Heard};
use super::subject::Subject;
use super::{Fault, Plan};
use crate::plugins::Card;
use crate::plugins::engine::Next;
use crate::plugins::link::Link;
use crate::plugins::services;
use crate::plugins::strict::Call;

/// A refused task.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) code: u32,
    pub(super) said: Said,
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        Fault::Failed(format!("submit failed: {}", refusal.said.words(refusal.code)))
    }
}

/// A warm engine.
pub(super) struct Rig {
    pub(super) subject: &'static Subject,
    pub(super) ear: &'static Ear,
    pub(super) card: Card,
    link: &'static Link,
    engine: *mut c_void,
    patience: Duration,
    pace: Pace,
    next: AtomicU64,
    closed: AtomicBool,
}

// SAFETY: the boundary lets every call come from any thread; the tests keep to the tags.
unsafe impl Sync for Rig {}
// SAFETY: as above.
unsafe impl Send for Rig {}

impl Rig {
    /// A warm engine to try something with. That there is none is the fault of another test.
    pub(super) fn build(plan: &Plan) -> Result<Rig, Fault> {
        Rig::of(Subject::open(plan)?, plan).map_err(|fault| fault.elsewhere("there is no engine"))
    }

    /// Builds and warms an engine of an opened plugin.
    pub(super) fn of(subject: &'static Subject, plan: &Plan) -> Result<Rig, Fault> {
        Rig::stage(subject, plan, (0, 1), |_| Ok(()))
    }

    /// The same for a stage of a pipeline: its rank and the number of stages. `attach` is called with the
    /// engine before its first task.
    pub(super) fn stage(
        subject: &'static Subject,
        plan: &Plan,
        (rank, stages): (u32, u32),
        attach: impl FnOnce(*mut c_void) -> Result<(), Fault>,
    ) -> Result<Rig, Fault> {
        let setup = Setup::new(subject, plan)?;
        setup.configure(&plan.options)?;
        setup.load_as(plan, (rank, stages))?;
        let rig = Rig::finish_setup(setup, plan)?;
        attach(rig.engine)?;
        Ok(rig)
    }

    /// Builds and warms the engine of a builder that has its weights.
    pub(super) fn finish_setup(setup: Setup, plan: &Plan) -> Result<Rig, Fault> {
        let subject = setup.subject;
        let engine = setup.build()?;
        let mut rig = Rig {
            subject,
            ear: Ear::new(),
            card: Card::default(),
            link: setup.link,
            engine,
            patience: plan.patience(),
            pace: Pace::default(),
            // Far from what an engine might count from by itself.
            next: AtomicU64::new(0x5eed_0000_0001),
            closed: AtomicBool::new(false),
        };
        drop(setup);
        note("warmup");
        let mut said = Said::default();
        let warming = rig.link.strict.enter(Call::Warmup);
        // SAFETY: the engine is fresh and only here; progress and callback outlive the call.
        let code = unsafe { (subject.engine.warmup)(rig.engine, going_on(), said.out()) };
        drop(warming);
        said.expect_ok("warmup", code)?;
        rig.card = rig.read_card()?;
        note("submit or step");
        Ok(rig)
    }

    /// The engine, for the tables of extensions.
    pub(super) fn engine(&self) -> *mut c_void {
        self.engine
    }

    /// What its steps are given, and take.
    pub(super) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// How long an engine with work may show no sign of life.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// `[drive]` Steps until every given task has a finish; after each step `look` is asked whether all is well.
    pub(super) fn walk(
        &self,
        ids: &[u64],
        mut look: impl FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        let mut last = (self.life(), Instant::now());
        while !self.ear.look(|heard| ids.iter().all(|id| heard.answers.get(id).is_some_and(Answer::is_over)))
        {
            let epoch = self.link.epoch();
            let next = self.step()?;
            look()?;
            if self.life() != last.0 {
                last = (self.life(), Instant::now());
            }
            if last.1.elapsed() > self.patience {
                return Err(self.stalled(next));
            }
            match next {
                Next::More => {}
                Next::Idle => self.link.wait(epoch, Instant::now() + Duration::from_millis(20)),
                Next::Until(at) => self.link.wait(epoch, at.min(last.1 + self.patience)),
            }
        }
        ids.iter().for_each(|id| self.link.forget(*id));
        Ok(())
    }

    /// `[any]` Hands a task over; its id.
    pub(super) fn submit(&self, ask: &Ask) -> Result<u64, Refusal> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let task = ask.wire(id);
        // SAFETY: the task views `ask`, which outlives the call.
        unsafe { self.submit_raw(id, ask.tokens.len(), &raw const task) }
    }

    /// # Safety
    /// `task` must be readable as far as its `struct_size` says, and all it views.
    pub(super) unsafe fn submit_raw(
        &self,
        id: u64,
        prompt: usize,
        task: *const cascadia_plugin_api::abi::task::Task,
    ) -> Result<u64, Refusal> {
        // SAFETY: the engine lives; the caller vouches for the task.
        self.submit_by(id, prompt, |err| unsafe { (self.subject.engine.submit)(self.engine, task, err) })
    }

    /// Hands a task over by another call than `submit`, under all the rules of that one.
    pub(super) fn submit_by(
        &self,
        id: u64,
        prompt: usize,
        call: impl FnOnce(ErrOut) -> u32,
    ) -> Result<u64, Refusal> {
        self.ear.expect(id, prompt);
        self.link.lend(id);
        let mut said = Said::default();
        let _call = self.link.strict.enter(Call::Submit);
        let code = call(said.out());
        if code == code::OK {
            self.link.wake();
            return Ok(id);
        }
        self.link.forget(id);
        self.ear.refuse(id);
        Err(Refusal { code, said })
    }

    /// An id for a task that a test builds itself.
    pub(super) fn fresh_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// `[any]` Asks for the end of a task.
    pub(super) fn cancel(&self, id: u64) {
        self.link.raise(id);
        let _call = self.link.strict.enter(Call::Cancel);
        // SAFETY: the engine lives; unknown ids are fine.
        unsafe { (self.subject.engine.cancel)(self.engine, id) };
        self.link.wake();
    }

    /// `[drive]` One step.
    pub(super) fn step(&self) -> Result<Next, String> {
        let mut out = StepOut { state: STEP_MORE, flags: 0, until_ns: 0 };
        let mut said = Said::default();
        // Some tests look at what a close beside them left; no other host steps then.
        let _call = self.link.strict.enter(Call::StepOwed);
        let sink = self.ear.enter();
        // SAFETY: the engine lives, and this thread is the only driver; all arguments outlive the call.
        let step =
            |us| unsafe { (self.subject.engine.step)(self.engine, us, sink, &raw mut out, said.out()) };
        let code = self.pace.timed(step);
        self.ear.leave();
        said.expect_ok("step", code)?;
        match out.state {
            STEP_MORE => Ok(Next::More),
            STEP_IDLE => Ok(Next::Idle),
            STEP_WAIT => Ok(Next::Until(services::instant(out.until_ns))),
            other => Err(format!("step answered the state {other}, which means nothing")),
        }
    }

    /// `[drive]` Steps until `done`; an error when the engine shows no sign of life for too long.
    pub(super) fn drive(&self, done: impl Fn(&Heard) -> bool) -> Result<(), String> {
        let mut last = (self.life(), Instant::now());
        loop {
            let epoch = self.link.epoch();
            if self.ear.look(&done) {
                return Ok(());
            }
            let next = self.step()?;
            if self.ear.look(&done) {
                return Ok(());
            }
            if self.life() != last.0 {
                last = (self.life(), Instant::now());
            }
            let give_up = last.1 + self.patience;
            match next {
                Next::More => {}
                Next::Idle => self.link.wait(epoch, give_up),
                Next::Until(at) => self.link.wait(epoch, at.min(give_up)),
            }
            // What says idle with work at hand is not stepped again: it would hide that nobody would wake it.
            let forgot = next == Next::Idle && self.link.epoch() == epoch;
            if (forgot || Instant::now() >= give_up) && !self.ear.look(&done) {
                return Err(self.stalled(next));
            }
        }
    }

    /// `[drive]` Steps as a host does that has nothing to ask, until `stop`; another thread ends it with [`Rig::wake`].
    pub(super) fn tend(&self, stop: &AtomicBool) -> Result<(), String> {
        loop {
            let epoch = self.link.epoch();
            if stop.load(Ordering::Acquire) {
                return Ok(());
            }
            match self.step()? {
                Next::More => {}
                Next::Idle => self.link.wait(epoch, Instant::now() + self.patience),
                Next::Until(at) => self.link.wait(epoch, at),
            }
        }
    }

    /// Whole frames that went over its links, sent and received.
    pub(super) fn frames(&self) -> (u64, u64) {
        self.link.ends().frames()
    }

    /// Steps until every given task has a finish.
    pub(super) fn finish(&self, ids: &[u64]) -> Result<(), String> {
        note("step");
        self.drive(|heard| ids.iter().all(|id| heard.answers.get(id).is_some_and(Answer::is_over)))?;
        ids.iter().for_each(|id| self.link.forget(*id));
        Ok(())
    }

    /// What came for a task.
    pub(super) fn answer(&self, id: u64) -> Answer {
        self.ear.look(|heard| heard.answers.get(&id).cloned().unwrap_or_default())
    }

    /// Wakes the driver, when another thread has something that [`Rig::drive`] waits for.
    pub(super) fn wake(&self) {
        self.link.wake();
    }

    fn life(&self) -> (u64, u64) {
        (self.ear.look(|heard| heard.pushes), self.link.heartbeat.load(Ordering::Relaxed))
    }

    fn stalled(&self, last: Next) -> String {
        let (open, all) = self
            .ear
            .look(|heard| (heard.answers.values().filter(|a| !a.is_over()).count(), heard.answers.len()));
        let state = match last {
            Next::More => "more",
            Next::Idle => "idle",
            Next::Until(_) => "wait",
        };
        let seconds = self.patience.as_secs_f32();
        format!("{open} of {all} tasks have no finish, and for {seconds} s nothing came; step says {state}")
    }

    /// `[any]` The load, where the engine reports it.
    pub(super) fn load(&self) -> Result<Option<LoadReport>, String> {
        let Some(table) = self.subject.report else { return Ok(None) };
        let mut out = LoadReport {
            struct_size: size_of::<LoadReport>() as u32,
            running: 0,
            waiting: 0,
            flags: 0,
            kv_blocks_used: 0,
            kv_blocks_total: 0,
            tokens_cached: 0,
        };
        let _call = self.link.strict.enter(Call::Report);
        // SAFETY: the engine lives; `out` outlives the call.
        match unsafe { (table.report)(self.engine, &raw mut out) } {
            code::OK => Ok(Some(out)),
            other => Err(format!("the load report failed: {}", code::name(other))),
        }
    }

    /// `[any]` The card as the engine gives it.
    pub(super) fn card_text(&self) -> Result<Option<Vec<u8>>, String> {
        unsafe extern "C" fn set(ctx: *mut c_void, text: Str) {
            // SAFETY: `ctx` is the vector below, alive for the call; the text is lent.
            unsafe { *ctx.cast::<Vec<u8>>() = text.bytes().to_vec() }
        }
        let Some(table) = self.subject.card else { return Ok(None) };
        note("card");
        let (mut text, mut said) = (Vec::new(), Said::default());
        let out = StrOut { ctx: std::ptr::from_mut(&mut text).cast(), set };
        let _call = self.link.strict.enter(Call::Card);
        // SAFETY: the engine lives; out and callback outlive the call.
        let code = unsafe { (table.card)(self.engine, out, said.out()) };
        said.expect_ok("card", code)?;
        Ok(Some(text))
    }

    fn read_card(&self) -> Result<Card, String> {
        match self.card_text()? {
            None => Ok(Card::default()),
            Some(text) => {
                serde_json::from_slice(&text).map_err(|e| format!("its model card is not readable: {e}"))
            }
        }
    }

    /// A task that comes after `close` has returned, as no host sends it; its refusal.
    pub(super) fn submit_late(&self, ask: &Ask) -> Result<u64, Refusal> {
        let id = self.fresh_id();
        let task = ask.wire(id);
        note("submit after close");
        let mut said = Said::default();
        let _call = self.link.strict.enter(Call::SubmitLate);
        // SAFETY: the engine lives; the task views `ask`, which outlives the call.
        match unsafe { (self.subject.engine.submit)(self.engine, &raw const task, said.out()) } {
            code::OK => Ok(id),
            code => Err(Refusal { code, said }),
        }
    }

    /// `[control]` Ends the work; how long it took. Steps may run beside it, submits may not.
    pub(super) fn close(&self, deadline: Duration) -> Result<Duration, String> {
        note("close");
        self.closed.store(true, Ordering::Relaxed);
        let millis = u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX);
        let (mut said, begun) = (Said::default(), Instant::now());
        let _call = self.link.strict.enter(Call::Close);
        // SAFETY: the engine lives; the callback outlives the call.
        let code = unsafe { (self.subject.engine.close)(self.engine, millis, said.out()) };
        self.link.wake();
        said.expect_ok("close", code)?;
        Ok(begun.elapsed())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Relaxed) {
            // The tests of close ask what it answers; here it is on the way out.
            drop(self.close(Duration::from_secs(2)));
        }
        note("destroy");
        let _call = self.link.strict.enter(Call::Destroy);
        // SAFETY: the last call on the engine, nothing else runs: the rig is owned here.
        unsafe { (self.subject.engine.destroy)(self.engine) }
        self.link.close_links();
        self.link.strict.gone();
    }
}
