//! `cascadia.host.dlopen/1`, and the one lock under which anything is opened.
//!
//! A second build of a library that is already loaded under the same SONAME would silently be the first one; it is
//! refused, naming both files.

use core::ffi::c_void;
use std::error::Error;
use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
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
    for loaded in loaded_files() {
        let name = loaded.path.file_name();
        if name != path.file_name() && name != Some(OsStr::new(soname)) {
            continue;
        }
        if loaded.is(path) {
            return Ok(());
        }
        // Of a file that is gone the name must do.
        let theirs = || std::fs::read(&loaded.path).ok().and_then(|bytes| elf::read(&bytes, "").ok()?.soname);
        if loaded.is_gone || theirs().as_deref() == Some(soname) {
            return Err(format!(
                "{} is already loaded as {soname} from {}{}: a second build in one process would silently be the first \
                 one; use --isolate for it, or one build for all plugins",
                path.display(),
                loaded.path.display(),
                if loaded.is_gone { ", which was replaced since" } else { "" }
            ));
        }
    }
    Ok(())
}

/// A file that is mapped into this process.
#[derive(Debug, PartialEq, Eq)]
struct Loaded {
    path: PathBuf,
    inode: u64,
    /// Another file may have its path now.
    is_gone: bool,
}

impl Loaded {
    /// Reads a line of `/proc/self/maps`; none of memory without a file.
    fn read(line: &[u8]) -> Option<Loaded> {
        let path = &line[line.iter().position(|b| *b == b'/')?..];
        let inode = line.split(|b| *b == b' ').nth(4)?;
        let inode = std::str::from_utf8(inode).ok()?.parse().ok()?;
        let (path, is_gone) = path.strip_suffix(b" (deleted)").map_or((path, false), |path| (path, true));
        Some(Loaded { path: PathBuf::from(OsStr::from_bytes(path)), inode, is_gone })
    }

    /// Whether `path` is this file.
    fn is(&self, path: &Path) -> bool {
        let Ok(there) = path.metadata() else { return false };
        if self.is_gone {
            return there.ino() == self.inode;
        }
        self.path.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
    }
}

/// The files mapped into this process.
fn loaded_files() -> Vec<Loaded> {
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    let mut files: Vec<Loaded> = maps.split(|b| *b == b'\n').filter_map(Loaded::read).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_map_tell_a_file_that_is_gone() {
        let line = |end: &str| {
            format!("7f0000000000-7f0000001000 r--p 00002000 fe:01 4711                     {end}")
        };
        let read = |end: &str| Loaded::read(line(end).as_bytes());
        let loaded = |path: &str, is_gone| Some(Loaded { path: path.into(), inode: 4711, is_gone });
        assert_eq!(read("/a b/libx.so.1"), loaded("/a b/libx.so.1", false));
        assert_eq!(read("/a b/libx.so.1 (deleted)"), loaded("/a b/libx.so.1", true));
        assert_eq!(read(""), None);
        assert_eq!(read("[heap]"), None);
    }

    #[test]
    fn a_library_that_took_the_place_of_a_loaded_one_is_not_that_one() {
        let c =
            loaded_files().into_iter().find(|f| f.path.to_string_lossy().contains("/libc.so")).expect("libc");
        assert!(c.is(&c.path), "{c:?}");
        let other = Loaded { is_gone: true, inode: c.inode + 1, path: c.path.clone() };
        assert!(!other.is(&c.path), "{other:?}");
        assert_eq!(refuse_second_build(&c.path, Some("libc.so.6")), Ok(()));
    }
}
