//! A plugin that engines can be built from: opened in this process, or to be opened in one of its own for each engine.

use std::path::PathBuf;
use std::sync::Arc;

use super::build::{self, Built, Order};
use super::error::LoadError;
use super::isolate::{self, Apart};
use super::link::Link;
use super::load::{self, Candidate, Library};
use super::manifest::Manifest;

/// A plugin that engines can be built from.
pub struct Opened {
    /// The file.
    pub path: PathBuf,
    /// What it says about itself.
    pub manifest: Manifest,
    home: Home,
}

enum Home {
    Here(Arc<Library>),
    Apart(Apart),
}

impl Opened {
    /// Opens it in this process, where it stays.
    pub fn here(candidate: Candidate) -> Result<Opened, LoadError> {
        let library = Arc::new(load::open(candidate)?);
        let (path, manifest) = (library.path.clone(), library.manifest.clone());
        Ok(Opened { path, manifest, home: Home::Here(library) })
    }

    /// Keeps what was checked; each engine gets a process of its own that opens it.
    pub fn apart(
        candidate: Candidate,
        memory: Option<u64>,
        level: tracing::Level,
    ) -> Result<Opened, LoadError> {
        let (path, manifest) = (candidate.path.clone(), candidate.manifest.clone());
        Ok(Opened { path, manifest, home: Home::Apart(Apart::new(candidate, memory, level)?) })
    }

    /// Whether its engines run in processes of their own.
    pub fn is_apart(&self) -> bool {
        matches!(self.home, Home::Apart(_))
    }

    /// Builds and warms an engine. Blocking.
    pub fn build(&self, order: &Order<'_>) -> Result<Built, LoadError> {
        let link = Link::new(&self.manifest.id);
        match &self.home {
            Home::Apart(apart) => isolate::build(apart, &self.manifest, order, link),
            Home::Here(library) => {
                let Built { engine, card, proved, load, warmup } = build::build(library, order, link)?;
                Ok(Built { engine: Box::new(engine), card, proved, load, warmup })
            }
        }
    }
}
