//! The checks on a plugin's file before anything is opened: who may write it, whether it is whole, what it says.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cascadia_plugin_api::manifest::SECTION;

use super::elf::{self, Elf};
use super::error::LoadError;
use crate::telemetry::labels::LoadStage;

/// No plugin file is near this; it bounds what a scan reads into memory.
const MAX_FILE: u64 = 1 << 30;

/// Reads and checks the file at `path`; answers its parts and its bytes.
pub fn check(path: &Path) -> Result<(Elf, Vec<u8>), LoadError> {
    let fault = |message: String| LoadError::file(path, LoadStage::Precheck, message);
    let meta = path.metadata().map_err(|e| fault(format!("cannot be read: {e}")))?;
    if !meta.is_file() {
        return Err(fault("is not a file".into()));
    }
    if meta.len() > MAX_FILE {
        return Err(fault(format!("has {} bytes; a plugin has at most {MAX_FILE}", meta.len())));
    }
    writable_by_others(path, &meta).map_err(&fault)?;
    if let Some(dir) = path.parent() {
        let meta = dir.metadata().map_err(|e| fault(format!("its folder cannot be read: {e}")))?;
        writable_by_others(dir, &meta).map_err(&fault)?;
    }
    let bytes = std::fs::read(path).map_err(|e| fault(format!("cannot be read: {e}")))?;
    let elf = parse(path, &bytes)?;
    Ok((elf, bytes))
}

/// How much of a file is read to see whether it is whole, in bytes: its header and, in all but odd files, its segments.
const HEAD: u64 = 4096;

/// Whether the file is shorter than its own header says, or has no whole header yet: a copy that is not at its end, or one
/// that was cut. Only time tells which.
pub fn is_unfinished(path: &Path) -> bool {
    let Ok(file) = std::fs::File::open(path) else { return false };
    let mut head = Vec::new();
    let (Ok(_), Ok(meta)) = ((&file).take(HEAD).read_to_end(&mut head), file.metadata()) else {
        return false;
    };
    match elf::length(&head) {
        Some(least) => least > meta.len() && least <= MAX_FILE,
        None => head.len() < 64 && b"\x7fELF".starts_with(&head[..head.len().min(4)]),
    }
}

/// Checks bytes that were read from `path`.
pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Elf, LoadError> {
    let fault = |message: String| LoadError::file(path, LoadStage::Precheck, message);
    if bytes.is_empty() {
        return Err(fault("is empty".into()));
    }
    elf::read(bytes, SECTION).map_err(fault)
}

/// A file that other users may write is not loaded: it could become anything between check and use.
fn writable_by_others(path: &Path, meta: &std::fs::Metadata) -> Result<(), String> {
    // A sticky folder (like /tmp) lets others add files, not replace ours.
    let sticky = meta.is_dir() && meta.mode() & 0o1000 != 0;
    if meta.mode() & 0o002 != 0 && !sticky {
        return Err(format!("{} is writable by other users; run chmod o-w on it", path.display()));
    }
    // SAFETY: geteuid has no preconditions and cannot fail.
    #[expect(unsafe_code, reason = "the effective user of this process")]
    let me = unsafe { libc::geteuid() };
    if meta.uid() != me && meta.uid() != 0 {
        return Err(format!("{} belongs to user {}, neither you nor root", path.display(), meta.uid()));
    }
    Ok(())
}
