//! A network that embeds, open: token ids in, a vector out.

use std::sync::Arc;

use super::fault::Error;
use super::setup::{Opening, Options};
use crate::ffi::{Shim, embedder};

pub(crate) struct Embedder {
    inner: embedder::Embedder,
}

impl Embedder {
    /// Loads the network.
    ///
    /// # Errors
    /// What the library says of the path, the device or a property; that its version is unknown; or that the network is
    /// of another kind.
    pub(crate) fn open(shim: &Arc<Shim>, options: &Options) -> Result<Self, Error> {
        let Opening { path, device, properties } = options.opening()?;
        embedder::Embedder::open(shim, &path, &device, &properties, options.allow_untested)
            .map(|inner| Self { inner })
            .map_err(|reason| options.fault(reason))
    }

    /// Length of a vector.
    pub(crate) fn dimensions(&self) -> usize {
        self.inner.dimensions()
    }

    /// The vector of one input, as long as it comes.
    ///
    /// # Errors
    /// When the inference fails.
    pub(crate) fn run(&mut self, ids: &[u32], pooling: embedder::Pooling) -> Result<Vec<f32>, Error> {
        let ids: Vec<i64> = ids.iter().copied().map(i64::from).collect();
        self.inner.run(&ids, pooling).map_err(|reason| Error::Step { reason })
    }
}
