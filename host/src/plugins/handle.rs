//! An engine in this process as safe functions. Chunks come out as `generate::Piece`, or, for the child of an isolated
//! plugin, as the boundary's own [`wire::Chunk`]; outside `plugins` no type of the boundary is seen.
#![expect(unsafe_code, reason = "calls the plugin's tables")]

use core::ffi::c_void;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use cascadia_plugin_api::abi::chunk as wire;
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::engine::{
    EngineV1, SINK_GO_ON, SINK_STOP, STEP_IDLE, STEP_MORE, STEP_WAIT, Sink, StepOut,
};
use cascadia_plugin_api::abi::prim::{Array, Str};
use cascadia_plugin_api::abi::task::{self, Grammar, LogitBias, Task, Trace};
use cascadia_plugin_api::ext::{LoadReport, ModelCardV1};
use parking_lot::RwLock;

use super::breach;
use super::engine::{Engine, Load, Next, Receiver, Taken};
use super::failed::{Failed, failure};
use super::instance::Instance;
use super::link::Link;
use super::load::Library;
use super::services;
use super::steps::SaidOut;
use super::strict::{self, Call};
use super::words::EngineWords;
use crate::generate::{Bias, Failure, Finish, Logprobs, More, Piece, Request};
use crate::prompt::words::Words;

/// Takes the boundary's chunks as they are pushed.
///
/// # Safety
/// Each implementor has a number of its own: by it a push knows whose address it was given.
pub(super) unsafe trait Chunks {
    const KIND: u8;

    /// A batch, lent for the call; false when the engine should return at once.
    ///
    /// # Safety
    /// Every chunk must view memory that is readable for the call.
    unsafe fn chunks(&mut self, chunks: &Array) -> bool;
}

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
    pub(super) fn step_chunks<C: Chunks>(
        &self,
        budget: Duration,
        chunks: &mut C,
    ) -> Result<StepOut, (u32, Failed)> {
        let engine = self.driven.load(Ordering::Relaxed);
        if engine.is_null() {
            return Err(closed());
        }
        let mut out = StepOut { state: STEP_MORE, flags: 0, until_ns: 0 };
        let sink = Sink { ctx: std::ptr::from_ref(self.link).cast_mut().cast(), push: push::<C> };
        let _call = self.link.strict.enter(Call::Step);
        self.link.steps.add(1);
        let inside = Inside::enter(self.link, chunks);
        // SAFETY: the engine lives until the driving thread, which this is, closes it (held by the strict shim in debug
        // builds); the sink's context lives for ever, `out` outlives the call.
        let code =
            unsafe { (self.library.engine.step)(engine, micros(budget), sink, &raw mut out, self.said.0) };
        drop(inside);
        if code == code::OK { Ok(out) } else { Err(self.said(code)) }
    }

    /// What the step that just ended said of its failure.
    #[cold]
    #[inline(never)]
    fn said(&self, code: u32) -> (u32, Failed) {
        (code, self.link.steps.said())
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

    fn step(&self, budget: Duration, receiver: &mut dyn Receiver) -> Result<Next, Failure> {
        let out = self.step_chunks(budget, &mut Pieces(receiver)).map_err(failure_of)?;
        Ok(match out.state {
            STEP_IDLE => Next::Idle,
            STEP_WAIT => Next::Until(services::instant(out.until_ns)),
            _ => Next::More,
        })
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

/// As the boundary counts a budget. Below a second, as all are, without the arithmetic of wide numbers.
#[inline]
fn micros(budget: Duration) -> u32 {
    match budget.as_secs() {
        0 => budget.subsec_micros(),
        _ => u32::try_from(budget.as_micros()).unwrap_or(u32::MAX),
    }
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
        typical_p: 1.0,
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

/// Who receives on this thread. A plugin that pushes outside `step`, or from another thread, finds nobody: the address
/// it holds is the link's, which lives for ever, and never that of something on a stack.
#[derive(Clone, Copy)]
struct Inside {
    link: &'static Link,
    kind: u8,
    receiver: *mut c_void,
}

thread_local! {
    static INSIDE: Cell<Option<Inside>> = const { Cell::new(None) };
}

/// Ends the reception when the step returns.
struct Leave(&'static Link);

impl Inside {
    #[inline]
    fn enter<C: Chunks>(link: &'static Link, receiver: &mut C) -> Leave {
        link.strict.stepping(true);
        INSIDE.set(Some(Inside { link, kind: C::KIND, receiver: std::ptr::from_mut(receiver).cast() }));
        Leave(link)
    }
}

impl Drop for Leave {
    #[inline]
    fn drop(&mut self) {
        INSIDE.set(None);
        self.0.strict.stepping(false);
    }
}

/// The sink of the steps whose chunks go to a `C`: the whole way of a batch is one function.
unsafe extern "C" fn push<C: Chunks>(ctx: *mut c_void, chunks: Array) -> u32 {
    let pushed = catch_unwind(AssertUnwindSafe(|| {
        let _push = strict::pushing();
        match INSIDE.get() {
            Some(inside) if std::ptr::eq(inside.link, ctx.cast::<Link>()) && inside.kind == C::KIND => {
                // SAFETY: set by `enter` on this thread for a `C`, whose number it is, and unset before the step ends
                // that the receiver is borrowed for.
                let receiver = unsafe { &mut *inside.receiver.cast::<C>() };
                // SAFETY: the plugin lends the array for the call.
                if unsafe { receiver.chunks(&chunks) } { SINK_GO_ON } else { SINK_STOP }
            }
            _ => {
                breach::stray_push(ctx as usize);
                SINK_STOP
            }
        }
    }));
    pushed.unwrap_or(SINK_STOP)
}

/// Gives a receiver the pieces of the chunks.
pub(super) struct Pieces<'a>(pub(super) &'a mut dyn Receiver);

// SAFETY: the number is no other's.
unsafe impl Chunks for Pieces<'_> {
    const KIND: u8 = 0;

    #[inline]
    unsafe fn chunks(&mut self, chunks: &Array) -> bool {
        // SAFETY: the caller vouches for the array and for what each chunk views; an all-zero chunk is valid.
        unsafe {
            match chunks.places::<wire::Chunk>() {
                Some(places) => places.for_each(|place| deliver_at(self.0, place)),
                None => deliver_older(self.0, *chunks),
            }
        }
        self.0.go_on()
    }
}

/// Chunks that are shorter than the host's: an older plugin's.
///
/// # Safety
/// The caller vouches for the array and for what each chunk views.
#[cold]
#[inline(never)]
unsafe fn deliver_older(receiver: &mut dyn Receiver, chunks: Array) {
    // SAFETY: the caller vouches for it; an all-zero chunk is valid.
    unsafe { chunks.iter::<wire::Chunk>().for_each(|chunk| deliver(receiver, &chunk)) }
}

/// What the chunk at a place says, in the host's terms. Only what is looked at is read: nearly every chunk is tokens and
/// nothing else, and its nearly three hundred bytes stay where they are.
///
/// # Safety
/// A whole chunk must be readable there, aligned or not, and what it views.
#[inline(always)]
unsafe fn deliver_at(receiver: &mut dyn Receiver, place: *const wire::Chunk) {
    macro_rules! read {
        ($field:ident $(. $inner:ident)*) => {
            // SAFETY: the caller vouches for the chunk.
            unsafe { (&raw const (*place).$field $(. $inner)*).read_unaligned() }
        };
    }
    const RARE: u32 = wire::HAS_PROMPT_TOKENS | wire::HAS_CACHED_TOKENS;
    let plain = read!(finish) == wire::FINISH_NONE
        && read!(flags) & RARE == 0
        && read!(logprobs.len) == 0
        && read!(prompt_logprobs.len) == 0;
    let (tokens, bytes) = (read!(tokens), read!(bytes));
    // SAFETY: the caller vouches for what the chunk views.
    match unsafe { tokens.slice::<u32>() } {
        Some(tokens) if plain => {
            // SAFETY: as above.
            let bytes = unsafe { bytes.bytes() };
            receiver.piece(read!(task), Piece { tokens, bytes, more: More::NONE });
        }
        // SAFETY: as above.
        _ => unsafe { deliver_rare(receiver, place) },
    }
}

/// As [`deliver`], of a chunk that lies anywhere.
///
/// # Safety
/// As [`deliver_at`].
#[cold]
#[inline(never)]
unsafe fn deliver_rare(receiver: &mut dyn Receiver, place: *const wire::Chunk) {
    // SAFETY: the caller vouches for it.
    unsafe { deliver(receiver, &place.read_unaligned()) }
}

/// What a chunk says, in the host's terms.
///
/// # Safety
/// What the chunk views must be readable for the call.
#[cold]
pub(super) unsafe fn deliver(receiver: &mut dyn Receiver, chunk: &wire::Chunk) {
    // SAFETY: the caller vouches for it.
    let (tokens, bytes) = unsafe { (chunk.tokens.scalars::<u32>(), chunk.bytes.bytes()) };
    // SAFETY: as above.
    let (chosen, top_ids, top, prompt_logprobs) = unsafe {
        let (ids, top) = (chunk.top_ids.scalars::<u32>(), chunk.top_logprobs.scalars::<f32>());
        (chunk.logprobs.scalars::<f32>(), ids, top, chunk.prompt_logprobs.scalars::<f32>())
    };
    let has = |bit: u32| chunk.flags & bit != 0;
    let finish = match chunk.finish {
        wire::FINISH_NONE => None,
        // SAFETY: as above.
        number => match unsafe { finish(number, chunk.error, chunk.error_message, chunk.error_details) } {
            None => return receiver.broken(),
            some => some,
        },
    };
    let more = More {
        prompt_tokens: has(wire::HAS_PROMPT_TOKENS).then_some(chunk.prompt_tokens),
        cached_tokens: has(wire::HAS_CACHED_TOKENS).then_some(chunk.cached_tokens),
        logprobs: Logprobs { chosen: &chosen, top_ids: &top_ids, top: &top, k: chunk.top_k as usize },
        prompt_logprobs: &prompt_logprobs,
        finish,
    };
    receiver.piece(chunk.task, Piece { tokens: &tokens, bytes, more: &more });
}

/// How a chunk ends its task; none for a number that is none of the boundary's.
///
/// # Safety
/// Both texts must be readable for the call.
#[cold]
unsafe fn finish(number: u32, error: u32, message: Str, details: Str) -> Option<Finish> {
    Some(match number {
        wire::FINISH_STOP => Finish::Stop,
        wire::FINISH_LENGTH => Finish::Length,
        wire::FINISH_CANCELLED => Finish::Cancelled,
        wire::FINISH_ERROR => {
            // SAFETY: the caller vouches for it.
            let (message, details) = unsafe { (message.text(), details.text()) };
            let number = if error == code::OK { code::BACKEND } else { error };
            Finish::Error(failure(number, message.into_owned(), details.into_owned()))
        }
        _ => return None,
    })
}
