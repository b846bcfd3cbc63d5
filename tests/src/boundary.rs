//! A host of a page: opens a plugin in this process, builds one engine and calls its tables, for tests that want what
//! crosses the boundary itself.
//!
//! It lends `cascadia.host.dlopen/1` and nothing else. Libraries are never closed. One engine at a time, one thread.
#![expect(unsafe_code, reason = "calls a plugin's tables as a host does")]

use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use anyhow::{Context, Result, bail, ensure};
use cascadia_plugin_api::abi::builder::{BuilderV1, Shard};
use cascadia_plugin_api::abi::chunk::Chunk;
use cascadia_plugin_api::abi::engine::{EngineV1, SINK_GO_ON, STEP_IDLE, Sink, StepOut};
use cascadia_plugin_api::abi::entry::{Entry, HostV1};
use cascadia_plugin_api::abi::host::{DLOPEN_GLOBAL, DlopenV1};
use cascadia_plugin_api::abi::plugin::PluginV1;
use cascadia_plugin_api::abi::prim::{Array, ErrOut, Kv, Progress, Str, StrOut};
use cascadia_plugin_api::abi::{code, ids};
use cascadia_plugin_api::ext::ModelCardV1;
use cascadia_plugin_api::ext::draft::embeddings::{EmbedInput, EmbedOut, EmbedTask, Embedding, EmbeddingsV1};

/// An engine behind its tables.
pub struct Bare {
    entry: &'static Entry,
    engine: *mut c_void,
}

/// A vector as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Vector {
    /// Place of its input.
    pub index: u32,
    /// Tokens of its input.
    pub tokens: u32,
    /// The numbers.
    pub numbers: Vec<f32>,
}

/// What the plugin says of a failed call.
struct Said(String);

impl Said {
    fn out(&mut self) -> ErrOut {
        unsafe extern "C" fn set(ctx: *mut c_void, _code: u32, message: Str, _details: Str) {
            // SAFETY: `ctx` is the `Said` that lives through the call; the text is lent.
            unsafe { (*ctx.cast::<Said>()).0 = message.text().into_owned() }
        }
        ErrOut { ctx: std::ptr::from_mut(self).cast(), set }
    }
}

/// Makes a call and turns its refusal into an error.
fn call(what: &str, ask: impl FnOnce(ErrOut) -> u32) -> Result<()> {
    let mut said = Said(String::new());
    match ask(said.out()) {
        code::OK => Ok(()),
        number => bail!("{what}: {} ({})", said.0, code::name(number)),
    }
}

impl Bare {
    /// Builds and warms the engine of that name.
    pub fn build(plugin: &Path, engine: &str, options: &[(&str, &str)], model: &Path) -> Result<Bare> {
        let path = CString::new(plugin.as_os_str().as_encoded_bytes())?;
        // SAFETY: a plugin that this workspace built; it stays open.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        ensure!(!library.is_null(), "dlopen {}", plugin.display());
        // SAFETY: an open library and a C string.
        let entry = unsafe { libc::dlsym(library, c"cascadia_entry".as_ptr()) };
        // SAFETY: the entry of a plugin built from this workspace has this layout.
        let entry: &'static Entry =
            unsafe { entry.cast::<Entry>().as_ref() }.context("it exports cascadia_entry")?;
        // SAFETY: the host's table lives for ever.
        call("init", |err| unsafe { (entry.init)(&raw const HOST, err) })?;
        let mut bare = Bare { entry, engine: null_mut() };
        let (plugin, tables): (&PluginV1, &BuilderV1) = (bare.table(ids::PLUGIN)?, bare.table(ids::BUILDER)?);
        let mut said = Said(String::new());
        // SAFETY: the name outlives the call.
        let builder = unsafe { (plugin.new_builder)(Str::new(engine.as_bytes()), null_mut(), said.out()) };
        ensure!(!builder.is_null(), "new_builder: {}", said.0);
        let pairs: Vec<Kv> = options
            .iter()
            .map(|(key, value)| Kv { key: Str::new(key.as_bytes()), value: Str::new(value.as_bytes()) })
            .collect();
        let shard = Shard {
            struct_size: size_of::<Shard>() as u32,
            flags: 0,
            path: Str::new(model.as_os_str().as_encoded_bytes()),
            model_id: Str::new(b"model"),
            layer_first: 0,
            layer_end: 0,
            rank: 0,
            stages: 1,
        };
        let built = (|| {
            // SAFETY: the builder lives; what is lent outlives each call.
            unsafe {
                call("configure", |err| (tables.configure)(builder, Array::new(&pairs), err))?;
                call("load", |err| (tables.load_shard)(builder, &raw const shard, going_on(), err))?;
                call("build", |err| (tables.build)(builder, &raw mut bare.engine, err))?;
                let engine: &EngineV1 = bare.table(ids::ENGINE)?;
                call("warmup", |err| (engine.warmup)(bare.engine, going_on(), err))
            }
        })();
        // SAFETY: the last call on the builder.
        unsafe { (tables.destroy)(builder) };
        built.map(|()| bare)
    }

    /// A table of the plugin; the id names its type.
    fn table<T>(&self, id: &str) -> Result<&'static T> {
        // SAFETY: a plugin of this workspace has a table of this type, valid for ever, under this id.
        let table = unsafe { (self.entry.get_extension)(Str::new(id.as_bytes())).cast::<T>().as_ref() };
        table.with_context(|| format!("the plugin has {id}"))
    }

    /// Its model card.
    pub fn card(&self) -> Result<serde_json::Value> {
        unsafe extern "C" fn set(ctx: *mut c_void, text: Str) {
            // SAFETY: `ctx` is the string below; the text is lent.
            unsafe { *ctx.cast::<String>() = text.text().into_owned() }
        }
        let (table, mut text): (&ModelCardV1, _) = (self.table(ids::MODEL_CARD)?, String::new());
        let out = StrOut { ctx: (&raw mut text).cast(), set };
        // SAFETY: the engine lives, and the string outlives the call.
        call("card", |err| unsafe { (table.card)(self.engine, out, err) })?;
        Ok(serde_json::from_str(&text)?)
    }

    /// The vectors of one batch, in their inputs' order; `change` may ask for more than the usual.
    pub fn embed(&self, inputs: &[Vec<u32>], change: impl FnOnce(&mut EmbedTask)) -> Result<Vec<Vector>> {
        unsafe extern "C" fn take(ctx: *mut c_void, vectors: Array) -> u32 {
            // SAFETY: `ctx` is the vector below; what comes is lent, and an all-zero embedding is valid.
            unsafe {
                let got = &mut *ctx.cast::<Vec<Vector>>();
                got.extend(vectors.iter::<Embedding>().map(|e| Vector {
                    index: e.index,
                    tokens: e.tokens,
                    numbers: e.vector.scalars::<f32>().into_owned(),
                }));
            }
            SINK_GO_ON
        }
        let (table, engine): (&EmbeddingsV1, &EngineV1) =
            (self.table(ids::EMBEDDINGS)?, self.table(ids::ENGINE)?);
        // It lives as long as the engine may use it: for ever.
        let got: *mut Vec<Vector> = Box::into_raw(Box::default());
        let out = EmbedOut { ctx: got.cast(), take };
        // SAFETY: the engine lives; `got` lives for ever. A second time it is refused, which is asked for here.
        call("attach", |err| unsafe { (table.attach)(self.engine, out, err) })?;
        let wire: Vec<_> =
            inputs.iter().map(|ids| EmbedInput { tokens: Array::new(ids), text: Str::EMPTY }).collect();
        // SAFETY: all-zero is valid: no flags, no texts, the model's own pooling.
        let mut task: EmbedTask = unsafe { std::mem::zeroed() };
        task.struct_size = size_of::<EmbedTask>() as u32;
        (task.task, task.inputs) = (1, Array::new(&wire));
        change(&mut task);
        // SAFETY: the engine lives; the task and what it views outlive the call.
        call("submit", |err| unsafe { (table.submit)(self.engine, &raw const task, err) })?;
        let mut finishes: Vec<u32> = Vec::new();
        let sink = Sink { ctx: (&raw mut finishes).cast(), push };
        for _ in 0..10_000 {
            let mut out = StepOut { state: 0, flags: 0, until_ns: 0 };
            // SAFETY: the engine lives, and sink and result outlive the call.
            call("step", |err| unsafe { (engine.step)(self.engine, 10_000, sink, &raw mut out, err) })?;
            if out.state == STEP_IDLE {
                break;
            }
        }
        ensure!(finishes == [cascadia_plugin_api::abi::chunk::FINISH_STOP], "finishes: {finishes:?}");
        // SAFETY: the engine is idle, so nobody writes.
        let mut vectors = unsafe { (*got).clone() };
        vectors.sort_by_key(|v| v.index);
        Ok(vectors)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let Ok(engine) = self.table::<EngineV1>(ids::ENGINE) else { return };
        if !self.engine.is_null() {
            // SAFETY: the last call on the engine.
            unsafe { (engine.destroy)(self.engine) }
        }
    }
}

unsafe extern "C" fn push(ctx: *mut c_void, chunks: Array) -> u32 {
    // SAFETY: `ctx` is the list of finishes; the chunks are lent, and an all-zero one is valid.
    unsafe {
        let finishes = &mut *ctx.cast::<Vec<u32>>();
        finishes.extend(chunks.iter::<Chunk>().map(|chunk| chunk.finish).filter(|finish| *finish != 0));
    }
    SINK_GO_ON
}

fn going_on() -> Progress {
    unsafe extern "C" fn report(_: *mut c_void, _phase: Str, _done: u64, _total: u64) -> u32 {
        0
    }
    Progress { ctx: null_mut(), report }
}

static HOST: HostV1 = HostV1 { struct_size: size_of::<HostV1>() as u32, flags: 0, get_service: service };

static DLOPEN: DlopenV1 =
    DlopenV1 { struct_size: size_of::<DlopenV1>() as u32, flags: 0, open: open_library, symbol };

unsafe extern "C" fn service(id: Str) -> *const c_void {
    // SAFETY: the plugin's text is lent for the call.
    match unsafe { id.bytes() } == ids::HOST_DLOPEN.as_bytes() {
        true => (&raw const DLOPEN).cast(),
        false => null(),
    }
}

unsafe extern "C" fn open_library(path: Str, flags: u32, err: ErrOut) -> *mut c_void {
    // SAFETY: the plugin's text is lent for the call.
    let Ok(path) = CString::new(unsafe { path.bytes() }) else { return null_mut() };
    let global = if flags & DLOPEN_GLOBAL != 0 { libc::RTLD_GLOBAL } else { libc::RTLD_LOCAL };
    // SAFETY: a C string; the library's constructors are trusted.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | global) };
    if library.is_null() {
        // SAFETY: set by the failed dlopen of this thread; the plugin's callback takes a lent text.
        unsafe {
            let why = CStr::from_ptr(libc::dlerror()).to_bytes();
            (err.set)(err.ctx, code::BACKEND, Str::new(why), Str::EMPTY);
        }
    }
    library
}

unsafe extern "C" fn symbol(library: *mut c_void, name: Str) -> *mut c_void {
    // SAFETY: the plugin's text is lent for the call.
    let Ok(name) = CString::new(unsafe { name.bytes() }) else { return null_mut() };
    // SAFETY: a library that `open_library` opened, and a C string.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}
