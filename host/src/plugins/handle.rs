//! A running engine as safe functions. Requests go in as `generate::Request`, chunks come out as `generate::Piece`;
//! no type of the boundary leaves this file.
#![expect(unsafe_code, reason = "calls the plugin's tables")]

use core::ffi::c_void;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cascadia_plugin_api::abi::chunk as wire;
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::engine::{
    EngineV1, SINK_GO_ON, SINK_STOP, STEP_IDLE, STEP_MORE, STEP_WAIT, Sink, StepOut,
};
use cascadia_plugin_api::abi::prim::{Array, Str};
use cascadia_plugin_api::abi::task::{self, Grammar, Task, Trace};
use cascadia_plugin_api::ext::{LoadReport, ModelCardV1};
use parking_lot::RwLock;

use super::breach;
use super::failed::{Failed, failure};
use super::link::Link;
use super::load::Library;
use super::services;
use super::strict::{self, Call};
use crate::generate::{Failure, Finish, Piece, Request};

/// Takes what an engine pushes during a step.
pub trait Receiver {
    /// One chunk; quick, called with the plugin waiting.
    fn piece(&mut self, task: u64, piece: Piece<'_>);
    /// A batch is over; false when the engine should return at once.
    fn go_on(&mut self) -> bool;
    /// A chunk that could not be read.
    fn broken(&mut self);
}

/// What a step left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Step again now.
    More,
    /// Nothing until something happens.
    Idle,
    /// Nothing until then.
    Until(Instant),
}

/// A worker's load as its engine reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Tasks in generation.
    pub running: u32,
    /// Tasks accepted and not begun.
    pub waiting: u32,
    /// Blocks in use.
    pub kv_blocks_used: u64,
    /// Blocks there are.
    pub kv_blocks_total: u64,
    /// Tokens held by the prefix cache.
    pub tokens_cached: u64,
}

/// A running engine.
pub struct EngineHandle {
    library: Arc<Library>,
    link: &'static Link,
    /// None once destroyed. Calls hold it for reading; only `destroy` writes.
    engine: RwLock<Option<Engine>>,
}

struct Engine(*mut c_void);
// SAFETY: the boundary lets every call come from any thread; who may call when is kept by the lock and by the tags.
unsafe impl Send for Engine {}
// SAFETY: as above.
unsafe impl Sync for Engine {}

impl EngineHandle {
    /// # Safety
    /// `engine` must come from `build` of this library and not be destroyed.
    pub(super) unsafe fn new(
        library: Arc<Library>,
        link: &'static Link,
        engine: *mut c_void,
    ) -> EngineHandle {
        link.strict.born();
        EngineHandle { library, link, engine: RwLock::new(Some(Engine(engine))) }
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

    /// The engine's side of the wake, the flags and the heartbeat.
    pub fn link(&self) -> &'static Link {
        self.link
    }

    /// `[any]` Hands a task over under this id.
    pub fn submit(&self, id: u64, request: &Request) -> Result<(), Failure> {
        let engine = self.engine.read_recursive();
        let Some(engine) = engine.as_ref() else { return Err(closed()) };
        let task = task(id, request);
        let mut failed = Failed::default();
        let _call = self.link.strict.enter(Call::Submit);
        // SAFETY: the engine lives while the lock is held; the task views `request`, which outlives the call.
        let code = unsafe { (self.library.engine.submit)(engine.0, &raw const task, failed.out()) };
        if code == code::OK { Ok(()) } else { Err(failed.into_failure(code)) }
    }

    /// `[drive]` One step; the caller is the worker's only driving thread.
    pub fn step(&self, budget: Duration, receiver: &mut dyn Receiver) -> Result<Next, Failure> {
        let engine = self.engine.read_recursive();
        let Some(engine) = engine.as_ref() else { return Err(closed()) };
        let mut out = StepOut { state: STEP_MORE, flags: 0, until_ns: 0 };
        let mut failed = Failed::default();
        let sink = Sink { ctx: std::ptr::from_ref(self.link).cast_mut().cast(), push };
        let budget = u32::try_from(budget.as_micros()).unwrap_or(u32::MAX);
        let _call = self.link.strict.enter(Call::Step);
        let inside = Inside::enter(self.link, receiver);
        // SAFETY: the engine lives while the lock is held; sink, out and error callback outlive the call.
        let code = unsafe { (self.library.engine.step)(engine.0, budget, sink, &raw mut out, failed.out()) };
        drop(inside);
        if code != code::OK {
            return Err(failed.into_failure(code));
        }
        Ok(match out.state {
            STEP_IDLE => Next::Idle,
            STEP_WAIT => Next::Until(services::instant(out.until_ns)),
            _ => Next::More,
        })
    }

    /// `[any]` Asks for the end of a task: raises its flag, tells the engine, wakes the driver.
    pub fn cancel(&self, id: u64) {
        self.link.raise(id);
        if let Some(engine) = self.engine.read_recursive().as_ref() {
            let _call = self.link.strict.enter(Call::Cancel);
            // SAFETY: the engine lives while the lock is held. The code says nothing that matters: unknown ids are fine.
            unsafe { (self.library.engine.cancel)(engine.0, id) };
        }
        self.link.wake();
    }

    /// `[any]` The load, where the engine reports it.
    pub fn load(&self) -> Load {
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

    /// `[control]` Ends all work and frees the engine; called by the driving thread after its last step.
    pub fn close(&self, deadline: Duration) -> Result<(), Failure> {
        let millis = u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX);
        let mut failed = Failed::default();
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
        self.link.strict.gone();
        if code == code::OK { Ok(()) } else { Err(failed.into_failure(code)) }
    }
}

/// An engine that was never handed to a worker, as after a failed warm-up, must not stay in memory.
impl Drop for EngineHandle {
    fn drop(&mut self) {
        if let Err(failure) = self.close(Duration::from_secs(5)) {
            tracing::warn!(
                plugin = self.link.plugin,
                error = failure.message,
                "engine did not close cleanly"
            );
        }
    }
}

fn closed() -> Failure {
    failure(code::CLOSED, "the engine is closed".into(), String::new())
}

fn task(id: u64, r: &Request) -> Task {
    let text = |s: &str| Str::new(s.as_bytes());
    let flag = |on: bool, bit: u32| if on { bit } else { 0 };
    let s = &r.sampling;
    Task {
        struct_size: size_of::<Task>() as u32,
        flags: flag(r.ignore_eos, task::IGNORE_EOS) | flag(s.seed.is_some(), task::HAS_SEED),
        task: id,
        group: id,
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
        typical_p: 1.0,
        top_k: s.top_k,
        repetition_penalty: s.repetition_penalty,
        frequency_penalty: s.frequency_penalty,
        presence_penalty: s.presence_penalty,
        seed: s.seed.unwrap_or(0),
        logit_bias: Array::EMPTY,
        banned: Array::EMPTY,
        allowed: Array::EMPTY,
        stop_tokens: Array::new(&r.stop_tokens),
        top_logprobs: 0,
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

/// Who receives on this thread. A plugin that pushes outside `step`, or from another thread, finds nobody: the address
/// it holds is the link's, which lives for ever, and never that of something on a stack.
struct Inside {
    link: &'static Link,
    receiver: *mut dyn Receiver,
}

thread_local! {
    static INSIDE: Cell<Option<*mut Inside>> = const { Cell::new(None) };
}

/// Ends the reception when the step returns.
struct Leave(Box<Inside>);

impl Inside {
    fn enter(link: &'static Link, receiver: &mut dyn Receiver) -> Leave {
        // SAFETY: only the lifetime is changed; `Leave` ends the reception before the borrow ends.
        let receiver = unsafe {
            std::mem::transmute::<*mut (dyn Receiver + '_), *mut (dyn Receiver + 'static)>(receiver)
        };
        let mut inside = Box::new(Inside { link, receiver });
        link.strict.stepping(true);
        INSIDE.set(Some(&raw mut *inside));
        Leave(inside)
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        INSIDE.set(None);
        self.0.link.strict.stepping(false);
    }
}

unsafe extern "C" fn push(ctx: *mut c_void, chunks: Array) -> u32 {
    let pushed = catch_unwind(AssertUnwindSafe(|| {
        let _push = strict::pushing();
        let Some(inside) = INSIDE.get() else {
            breach::stray_push(ctx as usize);
            return SINK_STOP;
        };
        // SAFETY: set by `enter` on this thread and unset before it ends.
        let inside = unsafe { &mut *inside };
        if !std::ptr::eq(inside.link, ctx.cast::<Link>()) {
            breach::stray_push(ctx as usize);
            return SINK_STOP;
        }
        // SAFETY: as above; the receiver is borrowed for the step that is running.
        let receiver = unsafe { &mut *inside.receiver };
        // SAFETY: the plugin lends the array for the call; an all-zero chunk is valid.
        for chunk in unsafe { chunks.iter::<wire::Chunk>() } {
            deliver(receiver, &chunk);
        }
        if receiver.go_on() { SINK_GO_ON } else { SINK_STOP }
    }));
    pushed.unwrap_or(SINK_STOP)
}

fn deliver(receiver: &mut dyn Receiver, chunk: &wire::Chunk) {
    // SAFETY: what the chunk views is lent for the push that is running.
    let (tokens, bytes) = unsafe { (chunk.tokens.scalars::<u32>(), chunk.bytes.bytes()) };
    let has = |bit: u32| chunk.flags & bit != 0;
    let finish = match chunk.finish {
        wire::FINISH_NONE => None,
        wire::FINISH_STOP => Some(Finish::Stop),
        wire::FINISH_LENGTH => Some(Finish::Length),
        wire::FINISH_CANCELLED => Some(Finish::Cancelled),
        wire::FINISH_ERROR => {
            // SAFETY: as above.
            let (message, details) = unsafe { (chunk.error_message.text(), chunk.error_details.text()) };
            let number = if chunk.error == code::OK { code::BACKEND } else { chunk.error };
            Some(Finish::Error(failure(number, message.into_owned(), details.into_owned())))
        }
        _ => return receiver.broken(),
    };
    let piece = Piece {
        tokens: &tokens,
        bytes,
        prompt_tokens: has(wire::HAS_PROMPT_TOKENS).then_some(chunk.prompt_tokens),
        cached_tokens: has(wire::HAS_CACHED_TOKENS).then_some(chunk.cached_tokens),
        finish,
    };
    receiver.piece(chunk.task, piece);
}
