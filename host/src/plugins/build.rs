//! From an opened plugin to a warm engine: options, weights, build, warm-up, card. Blocking; runs off the runtime.
#![expect(unsafe_code, reason = "calls the plugin's builder")]

use core::ffi::c_void;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cascadia_plugin_api::abi::builder::Shard;
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::prim::{Array, Kv, Progress, Str, StrOut};
use serde::{Deserialize, Serialize};

use super::engine::Engine;
use super::error::LoadError;
use super::failed::Failed;
use super::handle::EngineHandle;
use super::link::Link;
use super::load::Library;
use super::strict::Call;
use crate::telemetry::labels::LoadStage;

/// What to build.
pub struct Order<'a> {
    /// Engine name within the plugin.
    pub engine: &'a str,
    /// Options, checked and completed.
    pub options: &'a BTreeMap<String, String>,
    /// File or folder of the model; some engines need none.
    pub path: Option<&'a Path>,
    /// The served name.
    pub model: &'a str,
    /// Turns true when the build should be given up.
    pub give_up: &'a AtomicBool,
    /// Where it is there, the load is given up as soon as the plugin reports a phase other than `runtime`, in which it
    /// opens its libraries; it turns true then. In this process only.
    pub stop_before_weights: Option<&'a AtomicBool>,
}

/// A warm engine and what is known about it.
pub struct Built<E = Box<dyn Engine>> {
    /// The engine.
    pub engine: E,
    /// What it is and can do.
    pub card: Card,
    /// Whether its library carried a layout proof.
    pub proved: bool,
    /// Time to load the weights and build.
    pub load: Duration,
    /// Time of the warm-up.
    pub warmup: Duration,
}

/// What a loaded model is and can do, as its engine says. Unknown keys are for newer hosts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Card {
    /// Most tokens of prompt and answer together; 0 = not known.
    pub context_length: u64,
    /// Most tasks at once; 0 = no limit of its own.
    pub max_tasks: u64,
    /// Size of the vocabulary; 0 = not known.
    pub vocab_size: u64,
    /// Full name of the device.
    pub device: String,
    /// How weights and cache are stored.
    pub quantization: String,
    /// `bytes`, `engine` for the one that the engine offers, or empty for that of the model's files.
    pub tokenizer: String,
    /// Chat template where the model's files have none.
    pub chat_template: String,
    /// What it can do.
    pub features: Vec<String>,
    /// Lines for the operator.
    pub notes: Vec<String>,
}

impl Card {
    /// Whether the engine declares a feature.
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|f| f == feature)
    }
}

/// Builds and warms an engine in this process, which the worker knows as `link`.
pub(super) fn build(
    library: &Arc<Library>,
    order: &Order<'_>,
    link: &'static Link,
) -> Result<Built<EngineHandle>, LoadError> {
    let id = &library.manifest.id;
    let fault = |stage: LoadStage, code: u32, failed: Failed| LoadError {
        code: Some(code),
        ..LoadError::new(format!("{id}/{}", order.engine), stage, failed.into_message(code))
    };
    // SAFETY: the text outlives the call.
    if unsafe { (library.plugin.score)(Str::new(order.engine.as_bytes())) } == 0 {
        let message = "says that it does not run on this machine";
        return Err(LoadError::new(format!("{id}/{}", order.engine), LoadStage::Build, message));
    }
    let begun = Instant::now();
    let unbuilt = link.until_built();
    let builder =
        Builder::new(library, order.engine, link).map_err(|(c, f)| fault(LoadStage::Build, c, f))?;
    builder.configure(order.options).map_err(|(c, f)| fault(LoadStage::Options, c, f))?;
    let watch = Watch { model: order.model, give_up: order.give_up, stop: order.stop_before_weights };
    builder.load(order, &watch).map_err(|(c, f)| fault(LoadStage::Build, c, f))?;
    let handle = builder.build(link).map_err(|(c, f)| fault(LoadStage::Build, c, f))?;
    drop(builder);
    let load = begun.elapsed();
    let warm = Instant::now();
    // SAFETY: the handle is fresh: nothing else calls the engine, so its lock may be gone around.
    unsafe { handle.warmup(watch.progress()) }.map_err(|(c, f)| fault(LoadStage::Warmup, c, f))?;
    let card = handle.card().map_err(|message| LoadError::new(id.clone(), LoadStage::Build, message))?;
    unbuilt.built();
    Ok(Built { engine: handle, card, proved: library.proved, load, warmup: warm.elapsed() })
}

type Step<T> = Result<T, (u32, Failed)>;

fn done(code: u32, failed: Failed) -> Step<()> {
    if code == code::OK { Ok(()) } else { Err((code, failed)) }
}

/// A builder; destroyed when dropped.
struct Builder<'a> {
    library: &'a Arc<Library>,
    builder: *mut c_void,
    link: &'static Link,
}

impl<'a> Builder<'a> {
    fn new(library: &'a Arc<Library>, engine: &str, link: &'static Link) -> Step<Builder<'a>> {
        let mut failed = Failed::default();
        let worker = std::ptr::from_ref(link).cast_mut().cast();
        // SAFETY: the text and the callback outlive the call; the link lives for ever.
        let builder =
            unsafe { (library.plugin.new_builder)(Str::new(engine.as_bytes()), worker, failed.out()) };
        if builder.is_null() {
            Err((code::BACKEND, failed.or_saying("new_builder answered nothing and gave no reason")))
        } else {
            Ok(Builder { library, builder, link })
        }
    }

    fn configure(&self, options: &BTreeMap<String, String>) -> Step<()> {
        let text = |s: &String| Str::new(s.as_bytes());
        let pairs: Vec<_> = options.iter().map(|(k, v)| Kv { key: text(k), value: text(v) }).collect();
        let mut failed = Failed::default();
        let _call = self.link.strict.enter(Call::Configure);
        // SAFETY: the builder is alive and used by this thread only; the pairs outlive the call.
        done(
            unsafe { (self.library.builder.configure)(self.builder, Array::new(&pairs), failed.out()) },
            failed,
        )
    }

    fn load(&self, order: &Order<'_>, watch: &Watch<'_>) -> Step<()> {
        let path = order.path.map(|p| p.as_os_str().as_encoded_bytes()).unwrap_or_default();
        let shard = Shard {
            struct_size: size_of::<Shard>() as u32,
            flags: 0,
            path: Str::new(path),
            model_id: Str::new(order.model.as_bytes()),
            layer_first: 0,
            layer_end: 0,
            rank: 0,
            stages: 1,
        };
        let mut failed = Failed::default();
        let _call = self.link.strict.enter(Call::LoadShard);
        // SAFETY: as above; shard, progress and callback outlive the call.
        let code = unsafe {
            (self.library.builder.load_shard)(self.builder, &raw const shard, watch.progress(), failed.out())
        };
        done(code, failed)
    }

    fn build(&self, link: &'static Link) -> Step<EngineHandle> {
        let mut failed = Failed::default();
        let mut engine = core::ptr::null_mut();
        let building = self.link.strict.enter(Call::Build);
        // SAFETY: as above; `engine` outlives the call.
        let code = unsafe { (self.library.builder.build)(self.builder, &raw mut engine, failed.out()) };
        drop(building);
        done(code, failed)?;
        if engine.is_null() {
            return Err((code::BACKEND, Failed::saying("build answered success and no engine")));
        }
        // SAFETY: the engine was just built by this library.
        Ok(unsafe { EngineHandle::new(Arc::clone(self.library), link, engine) })
    }
}

impl Drop for Builder<'_> {
    fn drop(&mut self) {
        let _call = self.link.strict.enter(Call::DestroyBuilder);
        // SAFETY: made by `new_builder`, destroyed once.
        unsafe { (self.library.builder.destroy)(self.builder) }
        self.link.strict.builder_gone();
    }
}

/// Follows a long call: a line in the log now and then, and the wish to give up.
struct Watch<'a> {
    model: &'a str,
    give_up: &'a AtomicBool,
    stop: Option<&'a AtomicBool>,
}

impl Watch<'_> {
    fn progress(&self) -> Progress {
        unsafe extern "C" fn report(ctx: *mut c_void, phase: Str, done: u64, total: u64) -> u32 {
            // SAFETY: `ctx` is the watch, alive for the call it was passed to; the text is lent.
            let (watch, phase) = unsafe { (&*ctx.cast::<Watch<'_>>(), phase.text()) };
            let phase = phase.replace(['\n', '\r'], " ");
            tracing::debug!(model = watch.model, phase, done, total, "engine is being built");
            let stop = watch.stop.filter(|_| phase != "runtime");
            if let Some(stopped) = stop {
                stopped.store(true, Ordering::Relaxed);
            }
            u32::from(stop.is_some() || watch.give_up.load(Ordering::Relaxed))
        }
        Progress { ctx: std::ptr::from_ref(self).cast_mut().cast(), report }
    }
}

impl EngineHandle {
    /// # Safety
    /// Nothing else may call the engine.
    unsafe fn warmup(&self, progress: Progress) -> Step<()> {
        let mut failed = Failed::default();
        let _call = self.link().strict.enter(Call::Warmup);
        // SAFETY: the caller's promise; progress and callback outlive the call.
        let code = unsafe { self.call(|table, engine| (table.warmup)(engine, progress, failed.out())) };
        done(code.unwrap_or(code::CLOSED), failed)
    }

    /// `[any]` The engine's card; an engine without one has an empty card.
    fn card(&self) -> Result<Card, String> {
        unsafe extern "C" fn set(ctx: *mut c_void, text: Str) {
            // SAFETY: `ctx` is the vector below, alive for the call; the text is lent.
            unsafe { *ctx.cast::<Vec<u8>>() = text.bytes().to_vec() }
        }
        let Some(table) = self.card_table() else { return Ok(Card::default()) };
        let mut text = Vec::new();
        let mut failed = Failed::default();
        let out = StrOut { ctx: std::ptr::from_mut(&mut text).cast(), set };
        let _call = self.link().strict.enter(Call::Card);
        // SAFETY: `out` and the callback outlive the call.
        let code =
            unsafe { self.call(|_, engine| (table.card)(engine, out, failed.out())) }.unwrap_or(code::CLOSED);
        done(code, failed).map_err(|(code, failed)| failed.into_message(code))?;
        serde_json::from_slice(&text).map_err(|e| format!("its model card is not readable: {e}"))
    }
}
