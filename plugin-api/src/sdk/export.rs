//! The tables of a Rust plugin, made generic over its [`Plugin`] type, and the macro that exports them.
#![expect(unsafe_code, reason = "the plugin's side of every ABI function")]

use core::ffi::c_void;
use std::time::Duration;

use super::guard::{guard, guard_value};
use super::{Builder, Engine, Error, Next, Plugin, Progress, Shard, Sink, Task, Worker};
use crate::abi::prim::{Array, ErrOut, Kv, Str, StrOut};
use crate::abi::{self, builder::BuilderV1, code, engine::EngineV1, entry::HostV1, ids, plugin::PluginV1};
use crate::ext::{LoadReport, LoadReportV1, ModelCardV1};

type BuilderBox = Option<Box<dyn Builder>>;
type EngineBox = Box<dyn Engine>;

const fn size<T>() -> u32 {
    size_of::<T>() as u32
}

/// `init` of the entry.
///
/// # Safety
/// As [`abi::entry::Entry::init`].
pub unsafe fn init<P: Plugin>(plugin: &'static str, host: *const HostV1, err: ErrOut) -> u32 {
    guard(Some(err), || {
        // SAFETY: the host's promise.
        unsafe { super::host::init(plugin, host) }?;
        super::guard::tell_panics();
        P::start()
    })
}

/// `get_extension` of the entry.
///
/// # Safety
/// `id` must be readable.
pub unsafe extern "C" fn get_extension<P: Plugin>(id: Str) -> *const c_void {
    // SAFETY: the host's promise.
    let id = unsafe { id.bytes() };
    let is = |known: &str| id == known.as_bytes();
    if is(ids::PLUGIN) {
        (&raw const *Tables::<P>::PLUGIN).cast()
    } else if is(ids::BUILDER) {
        (&raw const BUILDER).cast()
    } else if is(ids::ENGINE) {
        (&raw const ENGINE).cast()
    } else if is(ids::MODEL_CARD) {
        (&raw const CARD).cast()
    } else if is(ids::LOAD_REPORT) {
        (&raw const LOAD).cast()
    } else {
        let offered = || P::extensions().iter().any(|known| known.as_bytes() == id);
        let table = super::ext::table(id).filter(|_| guard_value(false, offered));
        table.unwrap_or(core::ptr::null())
    }
}

struct Tables<P>(core::marker::PhantomData<P>);

impl<P: Plugin> Tables<P> {
    const PLUGIN: &'static PluginV1 = &PluginV1 {
        struct_size: size::<PluginV1>(),
        flags: 0,
        engine_count: engine_count::<P>,
        engine_info: engine_info::<P>,
        score: score::<P>,
        new_builder: new_builder::<P>,
    };
}

unsafe extern "C" fn engine_count<P: Plugin>() -> u32 {
    guard_value(0, || u32::try_from(P::engines().len()).unwrap_or(u32::MAX))
}

unsafe extern "C" fn engine_info<P: Plugin>(index: u32, out: *mut abi::plugin::EngineInfo) -> u32 {
    guard(None, || {
        let info =
            P::engines().get(index as usize).ok_or_else(|| Error::config(format!("no engine {index}")))?;
        // SAFETY: the host lends `out` and has set its size.
        unsafe {
            if (*out).struct_size < size::<abi::plugin::EngineInfo>() {
                return Err(Error::config("the host's engine info is too small"));
            }
            (*out).name = info.name.into();
            (*out).description = info.description.into();
        }
        Ok(())
    })
}

unsafe extern "C" fn score<P: Plugin>(engine: Str) -> u32 {
    // SAFETY: the host's promise.
    guard_value(0, || P::score(&unsafe { engine.text() }))
}

unsafe extern "C" fn new_builder<P: Plugin>(engine: Str, worker: *mut c_void, err: ErrOut) -> *mut c_void {
    let mut made = core::ptr::null_mut();
    guard(Some(err), || {
        // SAFETY: the host's promise.
        let builder = P::builder(&unsafe { engine.text() }, Worker(worker))?;
        made = Box::into_raw(Box::new(Some(builder) as BuilderBox)).cast();
        Ok(())
    });
    made
}

static BUILDER: BuilderV1 = BuilderV1 {
    struct_size: size::<BuilderV1>(),
    flags: 0,
    configure,
    listen,
    connect_peers,
    load_shard,
    build,
    destroy: builder_destroy,
};

/// # Safety
/// `builder` must come from `new_builder` and not be destroyed; `[control]` makes the access exclusive.
unsafe fn with_builder(
    builder: *mut c_void,
    err: ErrOut,
    body: impl FnOnce(&mut BuilderBox) -> super::Result<()>,
) -> u32 {
    // SAFETY: the caller's promise.
    guard(Some(err), || match unsafe { builder.cast::<BuilderBox>().as_mut() } {
        Some(slot) => body(slot),
        None => Err(Error::new(code::CLOSED, "the host passed no builder")),
    })
}

fn used_up() -> Error {
    Error::new(code::CLOSED, "the builder is used up")
}

unsafe extern "C" fn configure(builder: *mut c_void, options: Array, err: ErrOut) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_builder(builder, err, |slot| {
            let texts: Vec<_> = options.iter::<Kv>().map(|kv| (kv.key.text(), kv.value.text())).collect();
            let pairs: Vec<_> = texts.iter().map(|(k, v)| (k.as_ref(), v.as_ref())).collect();
            slot.as_mut().ok_or_else(used_up)?.configure(&pairs)
        })
    }
}

unsafe extern "C" fn listen(builder: *mut c_void, address: Str, bound: StrOut, err: ErrOut) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_builder(builder, err, |slot| {
            let address = slot.as_mut().ok_or_else(used_up)?.listen(&address.text())?;
            (bound.set)(bound.ctx, Str::new(address.as_bytes()));
            Ok(())
        })
    }
}

unsafe extern "C" fn connect_peers(builder: *mut c_void, peers: Array, err: ErrOut) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_builder(builder, err, |slot| {
            let peers: Vec<_> =
                peers.iter::<abi::builder::Peer>().map(|p| (p.rank, p.address.text().into_owned())).collect();
            slot.as_mut().ok_or_else(used_up)?.connect_peers(&peers)
        })
    }
}

unsafe extern "C" fn load_shard(
    builder: *mut c_void,
    shard: *const abi::builder::Shard,
    progress: abi::prim::Progress,
    err: ErrOut,
) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_builder(builder, err, |slot| {
            let shard = shard.as_ref().ok_or_else(|| Error::config("the host passed no shard"))?;
            if shard.struct_size < size::<abi::builder::Shard>() {
                return Err(Error::config("the host's shard is too small"));
            }
            let shard = Shard {
                path: shard.path.text().into_owned().into(),
                model_id: shard.model_id.text().into_owned(),
                layers: (shard.layer_first, shard.layer_end),
                rank: (shard.rank, shard.stages),
            };
            slot.as_mut().ok_or_else(used_up)?.load(&shard, &Progress(progress))
        })
    }
}

unsafe extern "C" fn build(builder: *mut c_void, out: *mut *mut c_void, err: ErrOut) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_builder(builder, err, |slot| {
            let engine = slot.take().ok_or_else(used_up)?.build()?;
            *out = Box::into_raw(Box::new(engine)).cast();
            Ok(())
        })
    }
}

unsafe extern "C" fn builder_destroy(builder: *mut c_void) {
    if !builder.is_null() {
        // SAFETY: made by `new_builder`, destroyed once: the host's promise.
        guard_value((), || drop(unsafe { Box::from_raw(builder.cast::<BuilderBox>()) }));
    }
}

static ENGINE: EngineV1 =
    EngineV1 { struct_size: size::<EngineV1>(), flags: 0, warmup, submit, step, cancel, close, destroy };

/// # Safety
/// `engine` must come from `build` and not be destroyed.
pub(super) unsafe fn with_engine(
    engine: *mut c_void,
    err: Option<ErrOut>,
    body: impl FnOnce(&dyn Engine) -> super::Result<()>,
) -> u32 {
    // SAFETY: the caller's promise; engines are Sync.
    guard(err, || match unsafe { engine.cast::<EngineBox>().as_ref() } {
        Some(engine) => body(engine.as_ref()),
        None => Err(Error::new(code::CLOSED, "the host passed no engine")),
    })
}

unsafe extern "C" fn warmup(engine: *mut c_void, progress: abi::prim::Progress, err: ErrOut) -> u32 {
    // SAFETY: the host's promise.
    unsafe { with_engine(engine, Some(err), |engine| engine.warmup(&Progress(progress))) }
}

unsafe extern "C" fn submit(engine: *mut c_void, task: *const abi::task::Task, err: ErrOut) -> u32 {
    // SAFETY: the host's promise: the task and its views are lent for the call.
    unsafe { with_engine(engine, Some(err), |engine| engine.submit(Task::sized(task)?)) }
}

unsafe extern "C" fn step(
    engine: *mut c_void,
    budget_us: u32,
    sink: abi::engine::Sink,
    out: *mut abi::engine::StepOut,
    err: ErrOut,
) -> u32 {
    use abi::engine::{STEP_IDLE, STEP_MORE, STEP_WAIT};
    // SAFETY: the host's promise: sink and out are lent for the call.
    unsafe {
        with_engine(engine, Some(err), |engine| {
            let next = engine.step(Duration::from_micros(budget_us.into()), &mut Sink::new(sink))?;
            if let Some(out) = out.as_mut() {
                (out.state, out.until_ns) = match next {
                    Next::More => (STEP_MORE, 0),
                    Next::Idle => (STEP_IDLE, 0),
                    Next::Until(at) => (STEP_WAIT, at),
                };
            }
            Ok(())
        })
    }
}

unsafe extern "C" fn cancel(engine: *mut c_void, task: u64) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_engine(engine, None, |engine| {
            engine.cancel(task);
            Ok(())
        })
    }
}

unsafe extern "C" fn close(engine: *mut c_void, deadline_ms: u32, err: ErrOut) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_engine(engine, Some(err), |engine| engine.close(Duration::from_millis(deadline_ms.into())))
    }
}

unsafe extern "C" fn destroy(engine: *mut c_void) {
    if !engine.is_null() {
        // SAFETY: made by `build`, destroyed once, no call running: the host's promise.
        guard_value((), || drop(unsafe { Box::from_raw(engine.cast::<EngineBox>()) }));
    }
}

static CARD: ModelCardV1 = ModelCardV1 { struct_size: size::<ModelCardV1>(), flags: 0, card };

unsafe extern "C" fn card(engine: *mut c_void, out: StrOut, err: ErrOut) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_engine(engine, Some(err), |engine| {
            (out.set)(out.ctx, Str::new(engine.card().to_json().as_bytes()));
            Ok(())
        })
    }
}

static LOAD: LoadReportV1 = LoadReportV1 { struct_size: size::<LoadReportV1>(), flags: 0, report };

unsafe extern "C" fn report(engine: *mut c_void, out: *mut LoadReport) -> u32 {
    // SAFETY: the host's promise: `out` is lent and its size set.
    unsafe {
        with_engine(engine, None, |engine| {
            let out = out.as_mut().ok_or_else(|| Error::config("the host passed no report"))?;
            if out.struct_size < size::<LoadReport>() {
                return Err(Error::config("the host's report is too small"));
            }
            let load = engine.load();
            (out.running, out.waiting) = (load.running, load.waiting);
            (out.kv_blocks_used, out.kv_blocks_total) = (load.kv_blocks_used, load.kv_blocks_total);
            out.tokens_cached = load.tokens_cached;
            Ok(())
        })
    }
}

/// Exports a plugin: the entry, the manifest section and, with the feature `proof`, the layout proof.
///
/// ```ignore
/// cascadia_plugin_api::export_plugin! { plugin: MyPlugin, id: "my-engine", about: include_str!("../manifest.json") }
/// ```
/// `about` is the author's part of the manifest, see [`crate::manifest`]. The version is the crate's.
#[macro_export]
macro_rules! export_plugin {
    (plugin: $plugin:ty, id: $id:expr, about: $about:expr $(,)?) => {
        #[cfg(panic = "abort")]
        compile_error!("a plugin must unwind: panics are caught at its edge; remove panic = \"abort\"");

        const _: () = {
            const PARTS: [&[u8]; 9] = $crate::manifest::parts($id, env!("CARGO_PKG_VERSION"), $about);

            #[used]
            #[unsafe(link_section = ".cascadia.manifest")]
            static MANIFEST: [u8; $crate::manifest::len(&PARTS)] = $crate::manifest::join(&PARTS);

            unsafe extern "C" fn init(
                host: *const $crate::abi::entry::HostV1,
                err: $crate::abi::prim::ErrOut,
            ) -> u32 {
                // SAFETY: passed on to the host.
                unsafe { $crate::sdk::export::init::<$plugin>($id, host, err) }
            }

            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals)]
            pub static cascadia_entry: $crate::abi::entry::Entry = $crate::abi::entry::Entry {
                magic: $crate::abi::entry::MAGIC,
                struct_size: size_of::<$crate::abi::entry::Entry>() as u32,
                abi_major: $crate::abi::entry::ABI_MAJOR,
                abi_minor: $crate::abi::entry::ABI_MINOR,
                flags: 0,
                init,
                get_extension: $crate::sdk::export::get_extension::<$plugin>,
            };
        };
        $crate::__export_proof!();
    };
}

#[cfg(feature = "proof")]
#[doc(hidden)]
#[macro_export]
macro_rules! __export_proof {
    () => {
        const _: () = {
            #[unsafe(export_name = "_1as_0lib_1header_0root_bmodule_bloader")]
            pub static PROOF: $crate::proof::Header = $crate::proof::HEADER;
        };
    };
}

#[cfg(not(feature = "proof"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __export_proof {
    () => {};
}
