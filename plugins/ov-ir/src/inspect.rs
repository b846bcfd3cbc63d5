//! Says what a path holds without compiling it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::error::Error;
use crate::families::Choices;
use crate::manifest::{MANIFEST, Manifest, Stored};
use crate::opened::{Content, Kind, open};

/// What a path holds.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Inspection {
    /// A model that can be compiled.
    Source(Box<Description>),
    /// A compiled model, complete by the lengths of its files.
    Compiled(Box<Manifest>),
    /// A network of another maker, which can be cut.
    Network {
        /// Layers.
        layers: usize,
        /// Width of the state between layers; 0 where there is one layer only.
        hidden: usize,
        /// Length of a row of logits.
        vocab: usize,
    },
}

/// A model that can be compiled.
#[derive(Debug, Clone, Serialize)]
pub struct Description {
    /// What it comes as.
    pub kind: Kind,
    /// The family as the file names it.
    pub family: String,
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads of the first layer.
    pub heads: usize,
    /// Key and value heads of the first layer.
    pub kv_heads: usize,
    /// Width of a head of the first layer.
    pub head_dim: usize,
    /// Rows of the embedding table.
    pub vocab: usize,
    /// Positions that the model was trained for.
    pub context: Option<u64>,
    /// Whether the head is the embedding table.
    pub tied: bool,
    /// Whether OpenVINO can rewrite it to paged attention.
    pub paged: bool,
    /// Lengths of windows, and how many layers see no more than them.
    pub windows: BTreeMap<usize, usize>,
    /// All tensors by how they are stored.
    pub formats: BTreeMap<String, Stored>,
    /// Parts that would be left out, as what takes pictures, and what they have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, Stored>,
}

/// Describes a GGUF file, a Hugging Face folder, a compiled model or a ready-made network.
///
/// # Errors
/// It is none of these, is damaged, or is a model that cannot be compiled; the message names the family or feature.
pub fn inspect(path: &Path) -> Result<Inspection, Error> {
    if path.join(MANIFEST).exists() {
        return Ok(Inspection::Compiled(Box::new(Manifest::open(path)?)));
    }
    let opened = open(path, Choices::default())?;
    let (model, source) = match &opened.content {
        Content::Model(model, source) => (model, source),
        Content::Network(ready) => {
            let (layers, hidden, vocab) = (ready.layers, ready.hidden, ready.vocab);
            return Ok(Inspection::Network { layers, hidden, vocab });
        }
    };
    let mut formats: BTreeMap<String, Stored> = BTreeMap::new();
    for name in source.names() {
        let Ok(info) = source.get(name) else { continue };
        let entry = formats.entry(info.format.name()).or_insert(Stored { tensors: 0, bytes: 0 });
        entry.tensors += 1;
        entry.bytes += info.bytes();
    }
    let mut windows = BTreeMap::new();
    for window in model.blocks.iter().filter_map(|block| block.attention.window) {
        *windows.entry(window).or_insert(0) += 1;
    }
    let first = model.blocks.first().map(|block| &block.attention);
    Ok(Inspection::Source(Box::new(Description {
        kind: opened.kind,
        family: model.family.clone(),
        layers: model.blocks.len(),
        hidden: model.hidden,
        heads: first.map_or(0, |a| a.heads),
        kv_heads: first.map_or(0, |a| a.kv_heads),
        head_dim: first.map_or(0, |a| a.head_dim),
        vocab: model.vocab,
        context: model.context,
        tied: model.is_tied(),
        paged: !model.caps_scores(),
        windows,
        formats,
        left_out: model.left_out.clone(),
    })))
}
