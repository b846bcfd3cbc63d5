//! Downloads what builds and tests need, once, into the target folder.
//!
//! Holds: an artefact is either whole under its final name or absent; a part is never mistaken for it. One process
//! fetches at a time, the others wait for it and then find everything there. What is there costs no network.

mod bundle;
mod clients;
mod peers;
mod prometheus;
mod venv;
mod wheel;

pub(crate) use peers::{ENGINES, SERVERS, peers};

use crate::place::Place;
use anyhow::{Context, Result, bail};
use std::fs::{File, TryLockError};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Artefact {
    Openvino,
    Model,
    Prometheus,
    Clients,
}

pub(crate) const ALL: [Artefact; 4] =
    [Artefact::Openvino, Artefact::Model, Artefact::Prometheus, Artefact::Clients];

impl Artefact {
    pub(crate) fn parse(word: &str) -> Result<Artefact> {
        match ALL.into_iter().find(|one| one.name() == word) {
            Some(found) => Ok(found),
            None => bail!("fetch does not know {word}; it takes openvino, model, prometheus, clients"),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Artefact::Openvino => "openvino",
            Artefact::Model => "model",
            Artefact::Prometheus => "prometheus",
            Artefact::Clients => "clients",
        }
    }

    /// Whole and as pinned? Looks at stamps and sizes only.
    fn is_there(self, place: &Place) -> bool {
        match self {
            Artefact::Openvino => bundle::is_there(place.pins.openvino(), &place.openvino()),
            Artefact::Model => bundle::is_there(place.pins.model(), &place.models()),
            Artefact::Prometheus => prometheus::is_there(place),
            Artefact::Clients => clients::is_there(place),
        }
    }

    fn fetch(self, place: &Place) -> Result<()> {
        match self {
            Artefact::Openvino => bundle::fetch(place, place.pins.openvino(), &place.openvino()),
            Artefact::Model => bundle::fetch(place, place.pins.model(), &place.models()),
            Artefact::Prometheus => prometheus::fetch(place),
            Artefact::Clients => clients::fetch(place),
        }
    }
}

/// The command: what was named, or everything; says where each thing lies.
pub(crate) fn all(place: &Place, wanted: &[Artefact]) -> Result<()> {
    let wanted = if wanted.is_empty() { wanted_by_default() } else { wanted.to_vec() };
    need(place, &wanted)?;
    for one in wanted {
        let path = match one {
            Artefact::Openvino => place.openvino(),
            Artefact::Model => place.gguf(),
            Artefact::Prometheus => prometheus::folder(place),
            Artefact::Clients => place.clients_python(),
        };
        println!("{:<10} {}", one.name(), path.display());
    }
    Ok(())
}

/// Everything but what `CLIENTS=none` leaves out.
pub(crate) fn wanted_by_default() -> Vec<Artefact> {
    ALL.into_iter().filter(|one| *one != Artefact::Clients || !clients::left_out()).collect()
}

/// Fetches those of `wanted` that are missing.
pub(crate) fn need(place: &Place, wanted: &[Artefact]) -> Result<()> {
    if wanted.iter().all(|one| one.is_there(place)) {
        return Ok(());
    }
    let _lock = lock(&place.fetched())?;
    for one in wanted {
        if !one.is_there(place) {
            one.fetch(place).with_context(|| format!("fetch {}", one.name()))?;
        }
    }
    Ok(())
}

/// Fails if one of `wanted` is missing, naming the command that brings it.
pub(crate) fn demand(place: &Place, wanted: &[Artefact]) -> Result<()> {
    match wanted.iter().find(|one| !one.is_there(place)) {
        Some(one) => {
            bail!("{0} is not fetched and --no-fetch was given; run cargo xtask fetch {0}", one.name())
        }
        None => Ok(()),
    }
}

/// `CLIENTS=none` was given.
pub(crate) fn clients_left_out() -> bool {
    clients::left_out()
}

/// Folder with `prometheus` and `promtool`.
pub(crate) fn prometheus_folder(place: &Place) -> std::path::PathBuf {
    prometheus::folder(place)
}

/// Held while the file is open; the system lets go of it when a process dies.
fn lock(folder: &Path) -> Result<File> {
    std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let path = folder.join(".lock");
    let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => eprintln!("another fetch is running; waiting for it"),
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("lock {}", path.display()));
        }
    }
    file.lock().with_context(|| format!("lock {}", path.display()))?;
    Ok(file)
}

/// An empty folder at `path`, whatever an earlier run left there.
fn fresh(path: &Path) -> Result<()> {
    if path.exists() {
        std::fs::remove_dir_all(path).with_context(|| format!("remove {}", path.display()))?;
    }
    std::fs::create_dir_all(path).with_context(|| format!("make {}", path.display()))
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).with_context(|| format!("rename {} to {}", from.display(), to.display()))
}
