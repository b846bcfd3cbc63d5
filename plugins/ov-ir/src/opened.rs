//! A model file or folder, opened and described.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::families::{Choices, from_gguf, from_hf};
use crate::model::Model;
use crate::source::{Source, gguf, safetensors};

/// What a model came as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One GGUF file.
    Gguf,
    /// A Hugging Face folder with `config.json` and safetensors.
    Safetensors,
}

/// The model with the tensors that it is made of.
pub(crate) struct Opened {
    pub(crate) kind: Kind,
    pub(crate) model: Model,
    pub(crate) source: Source,
    /// Everything that decides what is written: weights and configuration.
    pub(crate) files: Vec<PathBuf>,
}

/// The configuration of a Hugging Face folder.
pub(crate) const CONFIG: &str = "config.json";

/// Opens a GGUF file, or a folder with `config.json` and safetensors.
pub(crate) fn open(path: &Path, choices: Choices) -> Result<Opened, Error> {
    let metadata = std::fs::metadata(path).map_err(Error::io("open", path))?;
    if metadata.is_file() {
        let (header, source) = gguf::open(path)?;
        let model = from_gguf(&header, &source, choices)?;
        return Ok(Opened { kind: Kind::Gguf, model, files: source.files().to_vec(), source });
    }
    let config = path.join(CONFIG);
    if !config.exists() {
        let problem = "has no config.json; give a gguf file or a folder with config.json and safetensors";
        return Err(Error::damaged(path, problem));
    }
    let json = safetensors::json(&config)?;
    let source = safetensors::open(path)?;
    let model = from_hf(&config, &json, &source, choices)?;
    let files = std::iter::once(config).chain(source.files().iter().cloned()).collect();
    Ok(Opened { kind: Kind::Safetensors, model, source, files })
}
