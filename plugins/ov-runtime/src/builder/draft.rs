//! Loads the draft model beside the model that it guesses for.

use std::path::Path;
use std::sync::Arc;

use cascadia_ov_base::source::{Keep, Loader, Ready, Source};
use cascadia_ov_ir::XML;
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Error, Progress, Result};

use super::{context, served};
use crate::draft::Sizes;
use crate::ffi::{Model, Shim};
use crate::memory::{self, Cache, Needs};
use crate::options::Options;
use crate::vocabulary;

/// A draft model that is ready to guess.
pub(super) struct Loaded {
    pub(super) model: Model,
    pub(super) sizes: Sizes,
    pub(super) note: String,
}

/// What it must fit.
pub(super) struct Beside<'a> {
    /// The file or folder of the model.
    pub(super) path: &'a Path,
    pub(super) vocabulary: usize,
    /// Tokens that its cache holds.
    pub(super) positions: usize,
}

/// What its path is.
///
/// # Errors
/// Nothing that can be served; the option is named.
pub(super) fn source(path: &Path) -> Result<Source> {
    if !path.exists() {
        let message = format!(
            "draft-model {}: no such file or folder; name a GGUF file, a folder with safetensors or an OpenVINO IR folder",
            path.display()
        );
        return Err(Error::config(message));
    }
    served(path, Source::of(path, Loader::Own)?)
}

/// # Errors
/// It cannot be read, compiled or opened, its vocabulary is another, or there is no memory for its cache.
pub(super) fn load(
    shim: &Arc<Shim>,
    path: &Path,
    beside: &Beside<'_>,
    options: &Options,
    progress: &Progress,
) -> Result<Loaded> {
    let other = |how: String| {
        Error::config(format!(
            "draft model {} has another vocabulary than the model: {how}; give one of the same family",
            path.display()
        ))
    };
    let source = source(path)?;
    if let Some(how) = vocabulary::difference(beside.path, path) {
        return Err(other(how));
    }
    // How long the model's texts may be says nothing of this one's files.
    let keep = Keep { context_length: 0, ..options.keep.clone() };
    let Ready { path: folder, note: _ } = source.ready(path, &keep, progress)?;
    let failed = |e: String| Error::backend(format!("open the draft model {}: {e}", folder.display()));
    let properties = options.device_properties(&folder);
    let mut model = Model::open(shim, &folder.join(XML), &options.device, &properties).map_err(failed)?;
    let facts = model.facts();
    if facts.vocabulary != beside.vocabulary {
        return Err(other(format!("it has {} tokens, the model {}", facts.vocabulary, beside.vocabulary)));
    }
    let context = context(0, &folder);
    // As many texts as the model holds, within half of what that may take.
    let sizes = Cache::Fitting.sizes(Needs {
        context: Some(beside.positions),
        sequences: 1,
        block_tokens: facts.block_tokens,
        block_bytes: facts.block_bytes,
        memory: memory::available().map(|bytes| bytes / 2),
    })?;
    model.allocate(sizes.blocks).map_err(|e| Error::new(code::OUT_OF_MEMORY, e))?;
    let note = format!(
        "draft model {}, KV cache of {} blocks of {} tokens, {} MB in all, taken as they are used",
        path.display(),
        sizes.blocks,
        facts.block_tokens,
        (sizes.blocks as u64).saturating_mul(facts.block_bytes as u64) / 1_000_000
    );
    let window = context.map_or(sizes.window, |context| context.min(sizes.window));
    Ok(Loaded { model, sizes: Sizes { blocks: sizes.blocks, window, rows: options.rows }, note })
}
