//! Compares a compiled model with its manifest.

use std::path::Path;

use crate::error::Error;
use crate::manifest::Manifest;
use crate::progress::{Progress, Step, Work};

/// Reads all files of a compiled model and compares lengths and digests.
///
/// # Errors
/// The folder has no manifest, a file is missing, shortened or another, or `progress` said stop.
pub fn verify(folder: &Path, progress: &mut dyn Progress) -> Result<Manifest, Error> {
    whole(folder, &mut Work::new(progress, folder))
}

/// The same, as a part of some work.
pub(crate) fn whole(folder: &Path, work: &mut Work) -> Result<Manifest, Error> {
    let manifest = Manifest::open(folder)?;
    work.begin(Step::Digest, manifest.bytes())?;
    manifest.compare(folder, &mut |bytes| work.add(bytes))?;
    Ok(manifest)
}
