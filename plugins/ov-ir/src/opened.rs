//! A model file or folder, opened and described.

use std::path::{Path, PathBuf};

use crate::cut::Ready;
use crate::error::Error;
use crate::families::{Choices, TextConfig, from_gguf, from_hf};
use crate::manifest::XML;
use crate::model::Model;
use crate::source::{Source, gguf, packed, safetensors};

/// What a model came as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A GGUF file, or several that a model is split over.
    Gguf,
    /// A Hugging Face folder with `config.json` and safetensors.
    Safetensors,
    /// A folder with `openvino_model.xml` and `openvino_model.bin`, to be cut.
    Network,
}

/// What was opened.
pub(crate) struct Opened {
    pub(crate) kind: Kind,
    pub(crate) content: Content,
    /// Everything that decides what is written: weights, configuration and what is copied.
    pub(crate) files: Vec<PathBuf>,
    /// Those of them that are copied.
    pub(crate) copied: Vec<PathBuf>,
}

/// What there is to compile.
pub(crate) enum Content {
    /// A model with the tensors that it is made of.
    Model(Box<Model>, Source),
    /// A network to cut.
    Network(Ready),
}

impl Opened {
    pub(crate) fn layers(&self) -> usize {
        match &self.content {
            Content::Model(model, _) => model.blocks.len(),
            Content::Network(ready) => ready.layers,
        }
    }
}

/// The configuration of a Hugging Face folder.
pub(crate) const CONFIG: &str = "config.json";

/// Small files of a Hugging Face folder that go with the model, where they are there: with them the compiled folder can
/// be served by itself.
const COPIED: [&str; 9] = [
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
];

/// Opens a GGUF file (the first, where there are several), a folder with `config.json` and safetensors, or one with a network.
pub(crate) fn open(path: &Path, choices: Choices) -> Result<Opened, Error> {
    let metadata = std::fs::metadata(path).map_err(Error::io("open", path))?;
    if metadata.is_file() {
        let (header, source) = gguf::open(path)?;
        let model = from_gguf(&header, &source, choices)?;
        let files = source.files().to_vec();
        let content = Content::Model(Box::new(model), source);
        return Ok(Opened { kind: Kind::Gguf, content, files, copied: Vec::new() });
    }
    if path.join(XML).exists() {
        let ready = Ready::open(path)?;
        let files = vec![ready.xml.clone(), ready.bin.clone()];
        let content = Content::Network(ready);
        return Ok(Opened { kind: Kind::Network, content, files, copied: Vec::new() });
    }
    let config = path.join(CONFIG);
    if !config.exists() {
        let problem = "has no config.json; give a gguf file, or a folder with config.json and safetensors or with a network";
        return Err(Error::damaged(path, problem));
    }
    let json = safetensors::json(&config)?;
    let text = TextConfig::of(&config, &json)?;
    let mut source = safetensors::open(path)?;
    if let Some(packing) = text.packing {
        packed::resolve(&mut source, packing)?;
    }
    let model = from_hf(&config, &text, &source, choices)?;
    let copied: Vec<PathBuf> =
        COPIED.iter().map(|name| path.join(name)).filter(|path| path.is_file()).collect();
    let files = source.files().iter().chain(&copied).cloned().collect();
    let content = Content::Model(Box::new(model), source);
    Ok(Opened { kind: Kind::Safetensors, content, files, copied })
}
