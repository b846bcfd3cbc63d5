//! The checks on a plugin's file before anything is opened: who may write it, whether it is whole, what it says.

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
