//! Opens a plugin: file checks, manifest, dlopen, entry, proof, init; each with its own error.
#![expect(unsafe_code, reason = "opens libraries and reads their entry")]

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use cascadia_plugin_api::abi::builder::BuilderV1;
use cascadia_plugin_api::abi::engine::EngineV1;
use cascadia_plugin_api::abi::entry::{ABI_MAJOR, Entry, MAGIC, SYMBOL};
use cascadia_plugin_api::abi::ids;
use cascadia_plugin_api::abi::plugin::{EngineInfo, PluginV1};
use cascadia_plugin_api::abi::prim::Str;
use cascadia_plugin_api::ext::draft::tokenize::TokenizeV1;
use cascadia_plugin_api::ext::{LoadReportV1, ModelCardV1};
use libloading::os::unix::{Library as Dynamic, RTLD_LOCAL, RTLD_NOW};

use super::copy::Copy;
use super::elf::Elf;
use super::error::LoadError;
use super::failed::Failed;
use super::heap;
use super::manifest::{self, Manifest};
use super::{precheck, proof, services};
use crate::telemetry::labels::LoadStage;

/// A plugin whose file and manifest were checked and whose code has not run.
#[derive(Debug)]
pub struct Candidate {
    /// The file.
    pub path: PathBuf,
    /// What it says about itself.
    pub manifest: Manifest,
    needed: Vec<String>,
    /// The bytes that were checked: these are opened, whatever the file has become since.
    pub(super) image: Vec<u8>,
    /// Where a private copy may lie when it may not lie beside the file.
    pub cache: Option<PathBuf>,
}

/// An opened plugin. Its library stays for the life of the process: closing code that may still run is unsound.
pub struct Library {
    /// The file.
    pub path: PathBuf,
    /// What it says about itself.
    pub manifest: Manifest,
    /// Whether it carried a layout proof.
    pub proved: bool,
    pub(super) plugin: &'static PluginV1,
    pub(super) builder: &'static BuilderV1,
    pub(super) engine: &'static EngineV1,
    pub(super) card: Option<&'static ModelCardV1>,
    pub(super) report: Option<&'static LoadReportV1>,
    pub(super) tokenize: Option<&'static TokenizeV1>,
    _library: ManuallyDrop<Dynamic>,
}

/// Checks the file and reads its manifest; runs nothing of it.
pub fn inspect(path: &Path) -> Result<Candidate, LoadError> {
    let (elf, image) = precheck::check(path)?;
    candidate(path, elf, image)
}

/// As [`inspect`], of bytes that were read from `path` before.
pub(super) fn inspect_image(path: &Path, image: Vec<u8>) -> Result<Candidate, LoadError> {
    let elf = precheck::parse(path, &image)?;
    candidate(path, elf, image)
}

fn candidate(path: &Path, elf: Elf, image: Vec<u8>) -> Result<Candidate, LoadError> {
    let fault = |message: String| LoadError::file(path, LoadStage::Manifest, message);
    let section = elf.manifest.ok_or_else(|| LoadError {
        no_plugin: true,
        ..fault(format!(
            "is no plugin: it has no section {}; what a plugin needs goes into a folder with it",
            cascadia_plugin_api::manifest::SECTION
        ))
    })?;
    let manifest = manifest::read(&section).map_err(fault)?;
    if manifest.about.engines.is_empty() {
        return Err(fault("its manifest names no engine".to_owned()));
    }
    Ok(Candidate { path: path.to_path_buf(), manifest, needed: elf.needed, image, cache: None })
}

/// Opens a checked plugin.
pub fn open(candidate: Candidate) -> Result<Library, LoadError> {
    let Candidate { path, manifest, needed, image, cache } = candidate;
    let fault = |stage: LoadStage, message: String| LoadError::file(&path, stage, message);
    let _lock = services::dlopen::lock();
    own_dependencies(&path, &needed).map_err(|m| fault(LoadStage::Open, m))?;
    let copy = Copy::make(&path, &image, cache.as_deref()).map_err(|m| fault(LoadStage::Open, m))?;
    drop(image);
    // It was the largest block of the heap.
    heap::give_back();
    // SAFETY: the file was checked to be a whole library of this machine; running its initialisers is what loading a
    // trusted plugin means. NOW: a missing symbol is an error here and not a crash later.
    let library = unsafe { Dynamic::open(Some(copy.path()), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|e| fault(LoadStage::Open, copy.unnamed(&services::dlopen::reason(&e))))?;
    let library = ManuallyDrop::new(library);
    drop(copy);
    let entry = entry(&library).map_err(|m| fault(LoadStage::Entry, m))?;
    let proved = proof::check(&library).map_err(|m| fault(LoadStage::Proof, m))?;
    let mut failed = Failed::default();
    // SAFETY: the entry was checked; the host table lives for ever.
    let code = unsafe { (entry.init)(services::table(), failed.out()) };
    if code != 0 {
        return Err(LoadError { code: Some(code), ..fault(LoadStage::Init, failed.into_message(code)) });
    }
    let missing = |message: String| fault(LoadStage::Entry, message);
    // SAFETY: the id names the type, and the size is checked in `table`.
    let plugin = unsafe { table::<PluginV1>(entry, ids::PLUGIN) }.map_err(&missing)?;
    same_engines(plugin, &manifest).map_err(|m| fault(LoadStage::Entry, m))?;
    // SAFETY: each id names the type beside it, and the sizes are checked in `table`.
    unsafe {
        Ok(Library {
            plugin,
            builder: table(entry, ids::BUILDER).map_err(&missing)?,
            engine: table(entry, ids::ENGINE).map_err(&missing)?,
            card: table(entry, ids::MODEL_CARD).ok(),
            report: table(entry, ids::LOAD_REPORT).ok(),
            tokenize: table(entry, ids::TOKENIZE).ok(),
            path,
            manifest,
            proved,
            _library: library,
        })
    }
}

/// A plugin must not bring its own build of a library that is loaded already: it would silently get the loaded one.
fn own_dependencies(path: &Path, needed: &[String]) -> Result<(), String> {
    for soname in needed {
        let own = path.with_file_name(soname);
        if own.is_file() {
            services::dlopen::refuse_second_build(&own, Some(soname))?;
        }
    }
    Ok(())
}

fn entry(library: &Dynamic) -> Result<&'static Entry, String> {
    // SAFETY: the symbol is a constant of that type by the contract; magic and size are checked before more is read.
    let entry = unsafe { library.get::<*const Entry>(SYMBOL) }
        .map_err(|_| "is no plugin: it does not export cascadia_entry".to_owned())?;
    // SAFETY: the library is never closed, so the constant lives for ever; dlsym does not give null for a data symbol.
    let entry: &'static Entry = unsafe { &**entry };
    if entry.magic != MAGIC {
        return Err(
            "its entry has the wrong magic number; build it with this host's header or SDK".to_owned()
        );
    }
    if (entry.struct_size as usize) < size_of::<Entry>() {
        return Err(format!("its entry has {} bytes, {} are needed", entry.struct_size, size_of::<Entry>()));
    }
    if entry.abi_major != ABI_MAJOR {
        let (major, minor) = (entry.abi_major, entry.abi_minor);
        return Err(format!("speaks ABI {major}.{minor}, this host speaks {ABI_MAJOR}.x"));
    }
    Ok(entry)
}

/// What was decided from the manifest must hold for the code.
fn same_engines(plugin: &PluginV1, manifest: &Manifest) -> Result<(), String> {
    // SAFETY: a function of the plugin without arguments.
    let count = unsafe { (plugin.engine_count)() };
    let mut names = Vec::new();
    for index in 0..count.min(64) {
        let mut info = EngineInfo {
            struct_size: size_of::<EngineInfo>() as u32,
            flags: 0,
            name: Str::EMPTY,
            description: Str::EMPTY,
        };
        // SAFETY: `info` outlives the call; the texts live as long as the library.
        unsafe {
            if (plugin.engine_info)(index, &raw mut info) != 0 {
                return Err(format!("does not say what its engine {index} is"));
            }
            names.push(info.name.text().into_owned());
        }
    }
    let mut said: Vec<_> = manifest.about.engines.iter().map(|e| e.name.clone()).collect();
    names.sort();
    said.sort();
    if names == said {
        return Ok(());
    }
    Err(format!("its manifest names the engines {}, its code {}", said.join(", "), names.join(", ")))
}

/// The plugin's table of that id.
///
/// # Safety
/// `T` must be the type of the id, beginning with `struct_size: u32`.
unsafe fn table<T>(entry: &Entry, id: &'static str) -> Result<&'static T, String> {
    // SAFETY: the id is text for the call; tables live as long as the library, for ever.
    let table = unsafe { (entry.get_extension)(Str::new(id.as_bytes())) }.cast::<T>();
    if table.is_null() {
        return Err(format!("has no table {id}"));
    }
    // SAFETY: as above; every table begins with its size.
    let size = unsafe { *table.cast::<u32>() } as usize;
    if size < size_of::<T>() {
        return Err(format!(
            "its table {id} has {size} bytes, {} are needed; rebuild it for this host",
            size_of::<T>()
        ));
    }
    // SAFETY: as above, and it is as large as the type.
    Ok(unsafe { &*table })
}
