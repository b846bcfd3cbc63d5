//! Which weights a model has: a digest that is equal where they are.

use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cascadia_ov_ir::{BIN, MANIFEST, Manifest, XML};
use cascadia_plugin_api::sdk::{Error, Result};
use sha2::{Digest, Sha256};

/// Bytes of a file that are read at a time.
const PIECE: usize = 1 << 20;

/// The files of a model's network. A manifest of ours has their digests; a network of another maker is read when the digest is
/// first wanted.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    /// The network's files, and what they were like when they were loaded.
    files: Vec<(PathBuf, Option<Stamp>)>,
    digest: OnceLock<String>,
}

/// Another one, and the file has changed: its length, and the time of its last change in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp(u64, u128);

impl Weights {
    /// Of the network in a folder, to be called when it was just loaded.
    pub(crate) fn of(folder: &Path) -> Weights {
        let weights = Weights {
            files: [XML, BIN].map(|name| (folder.join(name), stamp(&folder.join(name)))).into(),
            digest: OnceLock::new(),
        };
        let manifest = folder.join(MANIFEST).is_file().then(|| Manifest::open(folder).ok()).flatten();
        if let Some(manifest) = manifest
            && let (Some(xml), Some(bin)) = (manifest.files.get(XML), manifest.files.get(BIN))
        {
            weights.digest.get_or_init(|| joined(&[xml.sha256.clone(), bin.sha256.clone()]));
        }
        weights
    }

    /// Of made-up weights.
    #[cfg(test)]
    pub(crate) fn made_up(name: &str) -> Weights {
        Weights { files: Vec::new(), digest: OnceLock::from(name.to_owned()) }
    }

    /// The digest. May read the whole model.
    ///
    /// # Errors
    /// The files are not there any more, or not those that were loaded.
    pub(crate) fn digest(&self) -> Result<&str> {
        if let Some(digest) = self.digest.get() {
            return Ok(digest);
        }
        let digests = self.files.iter().map(|(path, loaded)| {
            let digest = file(path).map_err(|e| Error::backend(format!("read {}: {e}", path.display())))?;
            if loaded.is_none() || stamp(path) != *loaded {
                let changed = format!("{} is another than was loaded; its state cannot move", path.display());
                return Err(Error::backend(changed));
            }
            Ok(digest)
        });
        let digest = joined(&digests.collect::<Result<Vec<_>>>()?);
        Ok(self.digest.get_or_init(|| digest))
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let meta: Metadata = std::fs::metadata(path).ok()?;
    let changed = meta.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Stamp(meta.len(), changed.as_nanos()))
}

fn file(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hex(&digest.finalize())),
            read => digest.update(&piece[..read]),
        }
    }
}

fn joined(digests: &[String]) -> String {
    hex(&Sha256::digest(digests.join("\n").as_bytes()))
}

/// Bytes as hexadecimal text.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|n| char::from_digit(n.into(), 16))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_another_maker_is_known_by_its_bytes_and_a_changed_one_is_refused() {
        let folder = std::env::temp_dir().join(format!("ov-runtime-weights-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(XML), "x").unwrap();
        std::fs::write(folder.join(BIN), "abc").unwrap();
        let (first, same, late) = (Weights::of(&folder), Weights::of(&folder), Weights::of(&folder));
        assert_eq!(first.digest(), same.digest());
        assert!(first.digest().is_ok_and(|digest| digest.len() == 64));
        std::fs::write(folder.join(BIN), "abcd").unwrap();
        assert!(late.digest().is_err_and(|e| e.message.contains("another than was loaded")));
        assert_ne!(Weights::of(&folder).digest(), first.digest());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(late.digest().is_err_and(|e| e.message.contains(XML)));
    }

    #[test]
    fn the_digest_of_abc_is_that_of_the_standard() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(&Sha256::digest(b"abc")), expected);
    }
}
