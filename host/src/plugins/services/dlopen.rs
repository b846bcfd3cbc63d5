//! `cascadia.host.dlopen/1`, and the one lock under which anything is opened.
//!
//! A second build of a library that is already loaded under the same SONAME would silently be the first one; it is
//! refused, naming both files.

use core::ffi::c_void;
use std::error::Error;
use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::host::{DLOPEN_GLOBAL, DlopenV1};
use cascadia_plugin_api::abi::prim::{ErrOut, Str};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};
use parking_lot::{Mutex, MutexGuard};

use super::{fail, guarded};
use crate::plugins::elf;

pub(super) static TABLE: DlopenV1 =
    DlopenV1 { struct_size: size_of::<DlopenV1>() as u32, flags: 0, open, symbol };

static LOADER: Mutex<()> = Mutex::new(());

/// The loader lock: two dlopens at once have met bugs in every loader.
pub fn lock() -> MutexGuard<'static, ()> {
    LOADER.lock()
}

/// What the linker says; libloading's own text leaves it out.
pub fn reason(error: &libloading::Error) -> String {
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    format!("cannot be opened: {}", text.replace('\n', " "))
}

/// Refuses `path` when a library of the same SONAME is loaded from another file.
pub fn refuse_second_build(path: &Path, soname: Option<&str>) -> Result<(), String> {
    let Some(soname) = soname else { return Ok(()) };
    let same = |loaded: &Path| identity(loaded).is_some() && identity(loaded) == identity(path);
    for loaded in loaded_files() {
        if loaded.file_name() != path.file_name() && loaded.file_name() != Some(OsStr::new(soname)) {
            continue;
        }
        if same(&loaded) {
            return Ok(());
        }
        let theirs =
            std::fs::read(&loaded).ok().and_then(|bytes| elf::read(&bytes, "").ok()).and_then(|e| e.soname);
        if theirs.as_deref() == Some(soname) {
            return Err(format!(
                "{} is already loaded as {soname} from {}: a second build in one process would silently be the first \
                 one; use --isolate for it, or one build for all plugins",
                path.display(),
                loaded.display()
            ));
        }
    }
    Ok(())
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    path.metadata().ok().map(|m| (m.dev(), m.ino()))
}

/// The files mapped into this process.
fn loaded_files() -> Vec<PathBuf> {
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    let mut files: Vec<PathBuf> = maps
        .split(|b| *b == b'\n')
        .filter_map(|line| {
            line.iter().position(|b| *b == b'/').map(|at| PathBuf::from(OsStr::from_bytes(&line[at..])))
        })
        .collect();
    files.dedup();
    files
}

unsafe extern "C" fn open(path: Str, flags: u32, err: ErrOut) -> *mut c_void {
    guarded("dlopen", core::ptr::null_mut(), || {
        // SAFETY: the plugin lends the path for the call.
        let path = PathBuf::from(OsStr::from_bytes(unsafe { path.bytes() }));
        if !path.is_absolute() {
            fail(err, code::INVALID_CONFIG, &format!("{} is not a full path", path.display()));
            return core::ptr::null_mut();
        }
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) => {
                fail(err, code::BACKEND, &format!("{} cannot be read: {e}", path.display()));
                return core::ptr::null_mut();
            }
        };
        let opened =
            elf::read(&bytes, "").map_err(|fault| format!("{} {fault}", path.display())).and_then(|elf| {
                let _lock = lock();
                refuse_second_build(&path, elf.soname.as_deref())?;
                let visibility = if flags & DLOPEN_GLOBAL != 0 { RTLD_GLOBAL } else { RTLD_LOCAL };
                // SAFETY: the file is a whole library of this machine; a trusted plugin asks for it.
                unsafe { Library::open(Some(&path), RTLD_NOW | visibility) }
                    .map_err(|e| format!("{} {}", path.display(), reason(&e)))
            });
        match opened {
            Ok(library) => library.into_raw(),
            Err(message) => {
                fail(err, code::BACKEND, &message);
                core::ptr::null_mut()
            }
        }
    })
}

unsafe extern "C" fn symbol(library: *mut c_void, name: Str) -> *mut c_void {
    guarded("dlopen", core::ptr::null_mut(), || {
        if library.is_null() {
            return core::ptr::null_mut();
        }
        // SAFETY: the handle came from `open` and is never closed; `ManuallyDrop` keeps it so. The name is lent.
        unsafe {
            let library = ManuallyDrop::new(Library::from_raw(library));
            library.get::<*mut c_void>(name.bytes()).map_or(core::ptr::null_mut(), |s| s.as_raw_ptr())
        }
    })
}
