//! `cascadia.embeddings/1` for authors.
#![expect(unsafe_code, reason = "the plugin's side of the table")]

use core::ffi::c_void;

use super::with_extension;
use crate::abi::engine::SINK_STOP;
use crate::abi::prim::{Array, ErrOut, Kv, Str};
use crate::ext::draft::embeddings as wire;
use crate::sdk::{Error, Flow, Result, TraceContext};

/// How the vectors of an input's tokens become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pooling {
    /// The model's own way.
    #[default]
    Default,
    /// Their mean.
    Mean,
    /// The first token's.
    First,
    /// The last token's.
    Last,
    /// A way that this build does not know.
    Unknown(u32),
}

impl Pooling {
    fn of(number: u32) -> Pooling {
        match number {
            wire::POOLING_DEFAULT => Pooling::Default,
            wire::POOLING_MEAN => Pooling::Mean,
            wire::POOLING_FIRST => Pooling::First,
            wire::POOLING_LAST => Pooling::Last,
            other => Pooling::Unknown(other),
        }
    }

    fn number(self) -> u32 {
        match self {
            Pooling::Default => wire::POOLING_DEFAULT,
            Pooling::Mean => wire::POOLING_MEAN,
            Pooling::First => wire::POOLING_FIRST,
            Pooling::Last => wire::POOLING_LAST,
            Pooling::Unknown(other) => other,
        }
    }
}

/// One input: its tokens, or its text where the engine tokenizes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EmbedInput {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// The text.
    pub text: String,
}

/// A batch of inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbedTask {
    /// Unique among all tasks of the engine.
    pub id: u64,
    /// The client-visible request id.
    pub request_id: String,
    /// Trace to continue.
    pub trace: TraceContext,
    /// At least one.
    pub inputs: Vec<EmbedInput>,
    /// How vectors are made.
    pub pooling: Pooling,
    /// Dimensions wanted; 0 = all.
    pub dimensions: u32,
    /// Vectors have length 1.
    pub normalize: bool,
    /// Larger runs first.
    pub priority: i32,
    /// Time of [`crate::sdk::now_ns`] after which the answer is of no use.
    pub deadline_ns: Option<u64>,
    /// Adapter to apply; empty = none.
    pub adapter: String,
    /// Engine-specific options.
    pub options: Vec<(String, String)>,
}

/// What the engine embeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbedInfo {
    /// Dimensions of a whole vector.
    pub dimensions: u32,
    /// Vectors may be cut to fewer.
    pub can_shorten: bool,
    /// Most inputs of a task; 0 = no limit of its own.
    pub max_inputs: u32,
    /// Most tokens of an input; 0 = not known.
    pub max_tokens: u32,
    /// What [`Pooling::Default`] means.
    pub pooling: Pooling,
}

/// One vector.
#[derive(Debug, Clone, Copy)]
pub struct Embedding<'a> {
    /// The task it belongs to.
    pub task: u64,
    /// Place of its input.
    pub index: u32,
    /// Tokens of the input.
    pub tokens: u32,
    /// The vector.
    pub vector: &'a [f32],
}

/// An engine that embeds. A task's vectors go into the [`EmbedOut`] from inside `step`, then its finish is pushed as a
/// chunk, with the tokens of all inputs as its prompt tokens; `cancel` ends it as it ends a generation.
pub trait Embeddings {
    /// What it embeds; the same while the engine lives.
    fn info(&self) -> EmbedInfo;

    /// Says where vectors go, once, before the first submit.
    fn attach(&self, out: EmbedOut) -> Result<()>;

    /// Takes a batch; must not block. After `Ok` exactly one finish is pushed for it.
    fn submit(&self, task: EmbedTask) -> Result<()>;
}

/// Where vectors go. Use it inside `step` only.
#[derive(Clone, Copy)]
pub struct EmbedOut(wire::EmbedOut);

// SAFETY: the host's callback and context; they live as long as the engine, and the thread of `step` may change.
unsafe impl Send for EmbedOut {}
// SAFETY: as above.
unsafe impl Sync for EmbedOut {}

impl EmbedOut {
    /// Gives vectors, of as many tasks as there are.
    pub fn take(&self, vectors: &[Embedding<'_>]) -> Flow {
        let vectors: Vec<_> = vectors
            .iter()
            .map(|v| wire::Embedding {
                task: v.task,
                index: v.index,
                tokens: v.tokens,
                vector: Array::new(v.vector),
            })
            .collect();
        // SAFETY: the host's callback; the vectors live through the call.
        let answer = unsafe { (self.0.take)(self.0.ctx, Array::new(&vectors)) };
        if answer == SINK_STOP { Flow::Stop } else { Flow::GoOn }
    }
}

pub(super) static TABLE: wire::EmbeddingsV1 = wire::EmbeddingsV1 {
    struct_size: size_of::<wire::EmbeddingsV1>() as u32,
    flags: 0,
    info,
    attach,
    submit,
};

unsafe extern "C" fn info(engine: *mut c_void, out: *mut wire::EmbedInfo) -> u32 {
    // SAFETY: the host's promise: `out` is lent and its size set.
    unsafe {
        with_extension!(engine, None, embeddings, "embeddings", |embeddings| {
            let out = out.as_mut().ok_or_else(|| Error::config("the host passed no info"))?;
            if (out.struct_size as usize) < size_of::<wire::EmbedInfo>() {
                return Err(Error::config("the host's info is too small"));
            }
            let info = embeddings.info();
            out.flags = if info.can_shorten { wire::EMBED_CAN_SHORTEN } else { 0 };
            (out.dimensions, out.max_inputs) = (info.dimensions, info.max_inputs);
            (out.max_tokens, out.pooling) = (info.max_tokens, info.pooling.number());
            Ok(())
        })
    }
}

unsafe extern "C" fn attach(engine: *mut c_void, out: wire::EmbedOut, err: ErrOut) -> u32 {
    // SAFETY: the host's promise.
    unsafe { with_extension!(engine, Some(err), embeddings, "embeddings", |e| e.attach(EmbedOut(out))) }
}

unsafe extern "C" fn submit(engine: *mut c_void, task: *const wire::EmbedTask, err: ErrOut) -> u32 {
    // SAFETY: the host's promise: the task and its views are lent for the call.
    unsafe {
        with_extension!(engine, Some(err), embeddings, "embeddings", |embeddings| {
            let task = task.as_ref().ok_or_else(|| Error::config("the host passed no task"))?;
            if (task.struct_size as usize) < size_of::<wire::EmbedTask>() {
                return Err(Error::config("the host's task is too small"));
            }
            embeddings.submit(read(task))
        })
    }
}

/// # Safety
/// `task` and everything it points to must be readable during the call.
unsafe fn read(task: &wire::EmbedTask) -> EmbedTask {
    // SAFETY: of all reads below: the caller vouches for the task and its views.
    let text = |s: Str| unsafe { s.text() }.into_owned();
    // SAFETY: as above.
    let input = |i: wire::EmbedInput| unsafe {
        EmbedInput { tokens: i.tokens.scalars::<u32>().into_owned(), text: text(i.text) }
    };
    EmbedTask {
        id: task.task,
        request_id: text(task.request_id),
        trace: TraceContext::read(&task.trace),
        // SAFETY: as above; an all-zero input is valid.
        inputs: unsafe { task.inputs.iter::<wire::EmbedInput>() }.map(input).collect(),
        pooling: Pooling::of(task.pooling),
        dimensions: task.dimensions,
        normalize: task.flags & wire::EMBED_NORMALIZE != 0,
        priority: task.priority,
        deadline_ns: (task.deadline_ns != 0).then_some(task.deadline_ns),
        adapter: text(task.adapter),
        // SAFETY: as above.
        options: unsafe { task.options.iter::<Kv>() }.map(|kv| (text(kv.key), text(kv.value))).collect(),
    }
}
