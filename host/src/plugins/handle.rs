//! An engine in this process as safe functions. What it pushes comes out through `receive`; outside `plugins` no type of
//! the boundary is seen.
#![expect(unsafe_code, reason = "calls the plugin's tables")]

use core::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::engine::{EngineV1, STEP_IDLE, STEP_MORE, STEP_WAIT, Sink, StepOut};
use cascadia_plugin_api::abi::prim::{Array, Str};
use cascadia_plugin_api::abi::task::{self, Grammar, LogitBias, Task, Trace};
use cascadia_plugin_api::ext::{LoadReport, ModelCardV1};
use parking_lot::RwLock;

use super::engine::{Engine, Load, Next, Receiver, Taken};
use super::failed::Failed;
use super::instance::Instance;
use super::link::Link;
use super::load::Library;
use super::receive::{Chunks, Inside, Pieces, push};
use super::services;
use super::steps::SaidOut;
use super::strict::Call;
use super::words::EngineWords;
use crate::generate::{Bias, Failure, Request};
use crate::prompt::words::Words;

/// How long a step should take where an engine can split its work: a hint, no deadline.
const STEP_BUDGET_US: u32 = 50_000;

/// An engine in this process.
pub(super) struct EngineHandle {
    library: Arc<Library>,
    link: &'static Link,
    /// None once destroyed. Calls hold it for reading; only `destroy` writes.
    engine: Arc<RwLock<Option<Instance>>>,
    /// The same for the driving thread, which alone closes the engine and so needs no lock to step it: two locked
    /// instructions a step are a third of what a step costs at batch 1. Null once closing has begun.
    driven: AtomicPtr<c_void>,
    /// Where a failing step says why.
    said: SaidOut,
}

impl EngineHandle {
    /// # Safety
    /// `engine` must come from `build` of this library and not be destroyed.
    pub(super) unsafe fn new(
        library: Arc<Library>,
        link: &'static Link,
        engine: *mut c_void,
    ) -> EngineHandle {
        link.strict.born();
        EngineHandle {
            library,
            link,
            engine: Arc::new(RwLock::new(Some(Instance(engine)))),
            driven: AtomicPtr::new(engine),
            said: link.steps.said_out(),
        }
    }

    /// Calls a function of the engine's table; none after it was closed.
    ///
    /// # Safety
    /// The call must be allowed by its tag at this moment.
    pub(super) unsafe fn call<T>(&self, call: impl FnOnce(&EngineV1, *mut c_void) -> T) -> Option<T> {
        self.engine.read_recursive().as_ref().map(|engine| call(self.library.engine, engine.0))
    }

    pub(super) fn card_table(&self) -> Option<&'static ModelCardV1> {
        self.library.card
    }

    /// `[any]` Hands a task over as the boundary knows it.
    ///
    /// # Safety
    /// What the task views must be readable for the call.
    pub(super) unsafe fn submit_task(&self, task: &Task) -> Result<(), (u32, Failed)> {
        let engine = self.engine.read_recursive();
        let Some(engine) = engine.as_ref() else {
            return Err(closed());
        };
        let mut failed = Failed::default();
        let _call = self.link.strict.enter(Call::Submit);
        // SAFETY: the engine lives while the lock is held; the caller vouches for what the task views.
        let code = unsafe { (self.library.engine.submit)(engine.0, task, failed.out()) };
        if code == code::OK { Ok(()) } else { Err((code, failed)) }
    }

    /// `[drive]` One step whose chunks go to `chunks`; the caller is the only driving thread.
    #[inline]
    pub(super) fn step_chunks<C: Chunks>(&self, chunks: &mut C) -> Result<Next, Box<(u32, Failed)>> {
        let (engine, link) = (self.driven.load(Ordering::Relaxed), self.link);
        if engine.is_null() {
            return Err(Box::new(closed()));
        }
        let mut out = StepOut { state: STEP_MORE, flags: 0, until_ns: 0 };
        let sink = Sink { ctx: std::ptr::from_ref(link).cast_mut().cast(), push: push::<C> };
        let _call = link.strict.enter(Call::Step);
        link.steps.add(1);
        let inside = Inside::enter(link, chunks);
        // SAFETY: the engine lives until the driving thread, which this is, closes it (held by the strict shim in debug
        // builds); the sink's context lives for ever, `out` outlives the call.
        let code =
            unsafe { (self.library.engine.step)(engine, STEP_BUDGET_US, sink, &raw mut out, self.said.0) };
        drop(inside);
        if code != code::OK {
            return Err(failed_step(link, code));
        }
        // Field by field: the whole of it, read at once, would wait for the plugin's write of a part.
        Ok(match out.state {
            STEP_IDLE => Next::Idle,
            STEP_WAIT => until(out.until_ns),
            _ => Next::More,
        })
    }

    /// `[control]` As [`Engine::close`], with the plugin's own words about a failure.
    pub(super) fn end(&self, deadline: Duration) -> Result<(), (u32, Failed)> {
        let millis = u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX);
        let mut failed = Failed::default();
        self.driven.store(std::ptr::null_mut(), Ordering::Relaxed);
        let Some(engine) = self.engine.write().take() else { return Ok(()) };
        // SAFETY: taken out under the write lock: no call is running and none will begin.
        let code = unsafe {
            let closing = self.link.strict.enter(Call::Close);
            let code = (self.library.engine.close)(engine.0, millis, failed.out());
            drop(closing);
            let _call = self.link.strict.enter(Call::Destroy);
            (self.library.engine.destroy)(engine.0);
            code
        };
        self.link.close_links();
        self.link.strict.gone();
        if code == code::OK { Ok(()) } else { Err((code, failed)) }
    }
}

/// What the step that just ended said of its failure.
#[cold]
#[inline(never)]
fn failed_step(link: &Link, code: u32) -> Box<(u32, Failed)> {
    Box::new((code, link.steps.said()))
}

/// Nothing is to be done until then. Out of the way of steps that have more to do.
#[cold]
#[inline(never)]
fn until(at_ns: u64) -> Next {
    Next::Until(services::instant(at_ns))
}

impl Drop for EngineHandle {
    /// An engine that no worker took over does not stay with its weights.
    fn drop(&mut self) {
        if self.end(Duration::from_secs(1)).is_err() {
            tracing::debug!("an engine that was given up did not close cleanly");
        }
    }
}

impl Engine for EngineHandle {
    fn link(&self) -> &'static Link {
        self.link
    }

    fn submit(&self, id: u64, request: &Request) -> Result<Taken, Failure> {
        // SAFETY: the task views `request`, which outlives the call.
        let taken = unsafe { self.submit_task(&task(id, request)) };
        taken.map(|()| Taken::Now).map_err(|(code, failed)| failed.into_failure(code))
    }

    fn step(&self, receiver: &mut dyn Receiver) -> Result<Next, Box<Failure>> {
        self.step_chunks(&mut Pieces(receiver)).map_err(|failed| Box::new(failure_of(*failed)))
    }

    /// Raises the task's flag, tells the engine, wakes the driver.
    fn cancel(&self, id: u64) {
        self.link.raise(id);
        if let Some(engine) = self.engine.read_recursive().as_ref() {
            let _call = self.link.strict.enter(Call::Cancel);
            // SAFETY: the engine lives while the lock is held. The code says nothing that matters: unknown ids are fine.
            unsafe { (self.library.engine.cancel)(engine.0, id) };
        }
        self.link.wake();
    }

    fn load(&self) -> Load {
        let engine = self.engine.read_recursive();
        let (Some(engine), Some(table)) = (engine.as_ref(), self.library.report) else {
            return Load::default();
        };
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
        // SAFETY: the engine lives while the lock is held; `out` outlives the call.
        if unsafe { (table.report)(engine.0, &raw mut out) } != code::OK {
            return Load::default();
        }
        Load {
            running: out.running,
            waiting: out.waiting,
            kv_blocks_used: out.kv_blocks_used,
            kv_blocks_total: out.kv_blocks_total,
            tokens_cached: out.tokens_cached,
        }
    }

    fn words(&self) -> Option<Arc<dyn Words>> {
        let table = self.library.tokenize?;
        Some(Arc::new(EngineWords::new(table, Arc::clone(&self.engine))))
    }

    fn close(&self, deadline: Duration) -> Result<(), Failure> {
        self.end(deadline).map_err(failure_of)
    }
}

#[cold]
#[inline(never)]
fn closed() -> (u32, Failed) {
    (code::CLOSED, Failed::saying("the engine is closed"))
}

#[cold]
#[inline(never)]
fn failure_of((code, failed): (u32, Failed)) -> Failure {
    failed.into_failure(code)
}

// A bias of the host is one of the boundary.
const _: () = assert!(
    size_of::<Bias>() == size_of::<LogitBias>()
        && core::mem::offset_of!(Bias, bias) == core::mem::offset_of!(LogitBias, bias)
);

/// The request as the boundary's task; it views `r`.
pub(super) fn task(id: u64, r: &Request) -> Task {
    let text = |s: &str| Str::new(s.as_bytes());
    let flag = |on: bool, bit: u32| if on { bit } else { 0 };
    let s = &r.sampling;
    Task {
        struct_size: size_of::<Task>() as u32,
        flags: flag(r.ignore_eos, task::IGNORE_EOS)
            | flag(s.seed.is_some(), task::HAS_SEED)
            | flag(r.logprobs.is_some(), task::LOGPROBS)
            | flag(r.prompt_logprobs, task::PROMPT_LOGPROBS),
        task: id,
        group: r.group,
        request_id: text(&r.id),
        session_id: Str::EMPTY,
        trace: Trace { trace_id: [0; 16], span_id: [0; 8], flags: 0 },
        model: text(&r.model),
        tokens: Array::new(&r.tokens),
        text: Str::EMPTY,
        max_tokens: r.max_tokens,
        min_tokens: r.min_tokens,
        temperature: s.temperature,
        top_p: s.top_p,
        min_p: s.min_p,
        typical_p: s.typical_p,
        top_k: s.top_k,
        repetition_penalty: s.repetition_penalty,
        frequency_penalty: s.frequency_penalty,
        presence_penalty: s.presence_penalty,
        seed: s.seed.unwrap_or(0),
        logit_bias: Array::new(&r.logit_bias),
        banned: Array::EMPTY,
        allowed: Array::new(&r.allowed),
        stop_tokens: Array::new(&r.stop_tokens),
        top_logprobs: r.logprobs.unwrap_or(0),
        prompt_top_logprobs: 0,
        generated_from: r.tokens.len() as u64,
        grammar: Grammar { kind: task::GRAMMAR_NONE, flags: 0, text: Str::EMPTY },
        priority: 0,
        reserved: 0,
        deadline_ns: 0,
        cache_salt: Str::EMPTY,
        adapter: Str::EMPTY,
        attachments: Array::EMPTY,
        options: Array::EMPTY,
    }
}
