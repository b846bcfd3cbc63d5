//! The library under test as its tables, opened once per process the way the host does it, without the host's checks
//! that would hide a fault from the test that is to name it.
#![expect(unsafe_code, reason = "opens the library and reads its tables")]

use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};

use cascadia_plugin_api::abi::builder::BuilderV1;
use cascadia_plugin_api::abi::engine::EngineV1;
use cascadia_plugin_api::abi::entry::{ABI_MAJOR, Entry, HostV1, MAGIC, SYMBOL};
use cascadia_plugin_api::abi::ids;
use cascadia_plugin_api::abi::plugin::PluginV1;
use cascadia_plugin_api::abi::prim::Str;
use cascadia_plugin_api::ext::{LoadReportV1, ModelCardV1};
use libloading::os::unix::{Library as Dynamic, RTLD_LOCAL, RTLD_NOW};

use super::note::note;
use super::said::Said;
use super::{Fault, Plan};
use crate::plugins::load;
use crate::plugins::manifest::Manifest;
use crate::plugins::services;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::plugin_metrics::PluginMetrics;

/// An opened plugin.
pub(super) struct Subject {
    pub(super) manifest: Manifest,
    pub(super) entry: &'static Entry,
    pub(super) plugin: &'static PluginV1,
    pub(super) builder: &'static BuilderV1,
    pub(super) engine: &'static EngineV1,
    pub(super) card: Option<&'static ModelCardV1>,
    pub(super) report: Option<&'static LoadReportV1>,
}

static OPENED: OnceLock<Subject> = OnceLock::new();

impl Subject {
    /// The plugin, opened with the host's services. That it does not open is the fault of another test.
    pub(super) fn open(plan: &Plan) -> Result<&'static Subject, Fault> {
        Subject::try_open(plan).map_err(|why| Fault::from(why).elsewhere("it does not open"))
    }

    /// The plugin, opened with the host's services.
    pub(super) fn try_open(plan: &Plan) -> Result<&'static Subject, String> {
        Subject::open_with(plan, services::table())
    }

    /// The plugin, opened with these services; a plugin that is open already stays as it is.
    pub(super) fn open_with(plan: &Plan, host: *const HostV1) -> Result<&'static Subject, String> {
        if let Some(subject) = OPENED.get() {
            return Ok(subject);
        }
        services::start(Arc::new(PluginMetrics::new(Arc::new(Metrics::new()))), tracing::Level::INFO);
        let manifest = load::inspect(&plan.library).map_err(|e| e.message)?.manifest;
        note("dlopen");
        // SAFETY: the file was checked; running its initialisers is what the test is for.
        let library = unsafe { Dynamic::open(Some(&plan.library), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|e| services::dlopen::reason(&e))?;
        let library = ManuallyDrop::new(library);
        let entry = entry(&library)?;
        note("init");
        let mut said = Said::default();
        // SAFETY: the entry was checked; the host table lives for ever.
        let code = unsafe { (entry.init)(host, said.out()) };
        said.expect_ok("init", code)?;
        note("get_extension");
        // SAFETY: each id names the type of the field beside it.
        let subject = unsafe {
            Subject {
                manifest,
                entry,
                plugin: needed(entry, ids::PLUGIN)?,
                builder: needed(entry, ids::BUILDER)?,
                engine: needed(entry, ids::ENGINE)?,
                card: table(entry, ids::MODEL_CARD)?,
                report: table(entry, ids::LOAD_REPORT)?,
            }
        };
        Ok(OPENED.get_or_init(|| subject))
    }

    /// The engine that the plan names, or the first.
    pub(super) fn engine_name(&self, plan: &Plan) -> Result<String, Fault> {
        let engines = &self.manifest.about.engines;
        let name = match &plan.engine {
            Some(name) => name.clone(),
            None => engines.first().map(|e| e.name.clone()).ok_or("its manifest names no engine")?,
        };
        note("score");
        // SAFETY: the text outlives the call.
        if unsafe { (self.plugin.score)(Str::new(name.as_bytes())) } == 0 {
            return Err(Fault::Skipped(format!("engine {name} says that it does not run on this machine")));
        }
        Ok(name)
    }

    /// The table of an extension; skips the test where the plugin offers none.
    ///
    /// # Safety
    /// `T` must be the type of the id, beginning with `struct_size: u32`.
    pub(super) unsafe fn offered<T>(&self, id: &str) -> Result<&'static T, Fault> {
        // SAFETY: passed on to the caller.
        let table = unsafe { table(self.entry, id) }?;
        table.ok_or_else(|| Fault::Skipped(format!("it does not offer {id}")))
    }

    /// What `get_extension` answers to an id.
    pub(super) fn extension(&self, id: &[u8]) -> *const core::ffi::c_void {
        // SAFETY: the text outlives the call.
        unsafe { (self.entry.get_extension)(Str::new(id)) }
    }
}

fn entry(library: &Dynamic) -> Result<&'static Entry, String> {
    // SAFETY: the symbol is a constant of that type by the contract; magic and size are checked before more is read.
    let entry = unsafe { library.get::<*const Entry>(SYMBOL) }
        .map_err(|_| "it does not export cascadia_entry".to_owned())?;
    // SAFETY: the library is never closed, so the constant lives for ever.
    let entry: &'static Entry = unsafe { &**entry };
    match () {
        () if entry.magic != MAGIC => Err("its entry has the wrong magic number".to_owned()),
        () if (entry.struct_size as usize) < size_of::<Entry>() => {
            Err(format!("its entry has {} bytes, {} are needed", entry.struct_size, size_of::<Entry>()))
        }
        () if entry.abi_major != ABI_MAJOR => {
            Err(format!("its entry speaks ABI {}, this host speaks {ABI_MAJOR}", entry.abi_major))
        }
        () => Ok(entry),
    }
}

/// # Safety
/// As [`table`].
unsafe fn needed<T>(entry: &Entry, id: &str) -> Result<&'static T, String> {
    // SAFETY: passed on to the caller.
    unsafe { table(entry, id) }?.ok_or_else(|| format!("it has no table {id}"))
}

/// The table of that id, when there is one.
///
/// # Safety
/// `T` must be the type of the id, beginning with `struct_size: u32`.
unsafe fn table<T>(entry: &Entry, id: &str) -> Result<Option<&'static T>, String> {
    // SAFETY: the id is text for the call; tables live as long as the library, for ever.
    unsafe {
        let table = (entry.get_extension)(Str::new(id.as_bytes())).cast::<T>();
        if table.is_null() {
            return Ok(None);
        }
        let size = *table.cast::<u32>() as usize;
        if size < size_of::<T>() {
            return Err(format!("its table {id} says {size} bytes, {} are needed", size_of::<T>()));
        }
        Ok(Some(&*table))
    }
}
