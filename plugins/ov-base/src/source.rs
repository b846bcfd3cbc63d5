//! From what `--model` names to what the library opens: a network that is there, one that we compile, or, where asked for,
//! a GGUF file for the library's own loader.
//!
//! What must hold: what is not supported is refused by name before the runtime is opened; nothing is handed to the
//! library that a digest or a length has found damaged. Knows nothing of the runtime.

use std::path::{Path, PathBuf};

use cascadia_ov_ir::{self as ov_ir, Inspection, MANIFEST, Manifest, XML};
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Error, Progress, Result};

mod compiled;

/// Where compiled models are kept, and what they are compiled for.
#[derive(Debug, Clone, Default)]
pub struct Keep {
    /// The folder; the user's own cache folder where none.
    pub cache_dir: Option<PathBuf>,
    /// GB that they may have together; 0: no bound.
    pub cache_limit: u64,
    /// Most tokens of prompt and answer together; 0: what the model's files say.
    pub context_length: u32,
    /// See [`ov_ir::Request::symmetric`].
    pub symmetric: bool,
}

/// What is to be done where no model is found.
const NAME: &str = "; name a GGUF file, a folder with safetensors or an OpenVINO IR folder with --model";

/// Who reads GGUF files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loader {
    /// We compile them, exactly.
    Own,
    /// The library, which rounds some weights; for families that we do not have.
    Library,
}

/// What a model path turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A folder with a network.
    Network,
    /// A GGUF file for the library's own loader.
    Library,
    /// A GGUF model or a folder with safetensors, to be compiled.
    Compile,
}

/// A model that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub source: Source,
    /// It embeds texts, and generates nothing.
    pub embeds: bool,
    /// Our compiler draws its network, or has drawn it.
    pub ours: bool,
    /// Its family, where that caps its attention scores: paged attention would compute something else.
    pub capped: Option<String>,
}

impl From<Source> for Found {
    /// Of a family that paged attention has, as far as can be told.
    fn from(source: Source) -> Found {
        Found { source, embeds: false, ours: false, capped: None }
    }
}

/// What the library opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    pub path: PathBuf,
    /// What an operator should know of the weights.
    pub note: Option<String>,
}

impl Source {
    /// Finds out what a path is, from its headers.
    ///
    /// # Errors
    /// It is nothing of that kind, is cut short, or is a model that this engine cannot serve; with the way out.
    pub fn of(path: &Path, loader: Loader) -> Result<Found> {
        if path.as_os_str().is_empty() {
            return Err(Error::config(format!("no model given{NAME}")));
        }
        if path.is_dir() {
            return folder(path);
        }
        // The library maps the file and reads where its header points, beyond the end too: a file cut short is a crash there.
        match ov_ir::parts(path) {
            Ok(_) => {}
            Err(ov_ir::Error::Gguf { source: cascadia_gguf::Error::Magic { .. }, .. }) => {
                return Err(missing(
                    path,
                    "is neither a GGUF file nor a folder with an OpenVINO network or safetensors",
                ));
            }
            Err(error) => return Err(refused(&error)),
        }
        match loader {
            Loader::Library => Ok(Source::Library.into()),
            Loader::Own => compilable(path),
        }
    }

    /// Compiles where that is needed; may take minutes, and gives up when the host says so.
    ///
    /// # Errors
    /// Something cannot be read or written, or the host wants the build to end.
    pub fn ready(self, path: &Path, keep: &Keep, progress: &Progress) -> Result<Ready> {
        let note = match self {
            Source::Network => None,
            Source::Library => Some(
                "the GGUF file is read by the library's own loader, which rounds the zero points of some quantized \
                 weights (Q4_1 among them): answers differ from those of engines that read them exactly"
                    .to_owned(),
            ),
            Source::Compile => return compiled::ready(path, keep, progress),
        };
        Ok(Ready { path: path.to_owned(), note })
    }
}

fn folder(path: &Path) -> Result<Found> {
    if path.join(MANIFEST).is_file() {
        let manifest = Manifest::open(path).map_err(|e| refused(&e))?;
        let model = &manifest.model;
        if (model.first, model.end) != (0, model.layers) {
            let what = format!("layers {}..{} of {}", model.first, model.end, model.layers);
            return Err(missing(path, &format!("has {what} only; this engine serves whole models")));
        }
        let capped = (!model.paged).then(|| model.family.clone());
        return Ok(Found { ours: true, capped, ..Source::Network.into() });
    }
    if path.join(XML).is_file() {
        return Ok(Found { embeds: embeds(path), capped: capped(path), ..Source::Network.into() });
    }
    if path.join("config.json").is_file() {
        return compilable(path);
    }
    Err(missing(
        path,
        "the folder has neither openvino_model.xml nor config.json with safetensors; give one of these or a GGUF file",
    ))
}

fn compilable(path: &Path) -> Result<Found> {
    match ov_ir::inspect(path).map_err(|e| refused(&e))? {
        Inspection::Source(model) => {
            let capped = (!model.paged).then_some(model.family);
            Ok(Found { ours: true, capped, ..Source::Compile.into() })
        }
        Inspection::Compiled(_) | Inspection::Network { .. } => Ok(Source::Network.into()),
    }
}

/// Whether a folder's network gives states and no logits: then it embeds.
fn embeds(folder: &Path) -> bool {
    let Ok(network) = std::fs::read(folder.join(XML)) else { return false };
    let has = |name: &str| {
        let name = format!("names=\"{name}\"");
        network.windows(name.len()).any(|at| at == name.as_bytes())
    };
    has("last_hidden_state") && !has("logits")
}

/// The family of another maker's network, where its `config.json` says that it caps attention scores.
fn capped(folder: &Path) -> Option<String> {
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("config.json")).ok()?).ok()?;
    let text = config.get("text_config").unwrap_or(&config);
    text.get("attn_logit_softcapping")?.as_f64()?;
    Some(config.get("model_type").and_then(|kind| kind.as_str()).unwrap_or("its family").to_owned())
}

fn missing(path: &Path, what: &str) -> Error {
    Error::new(code::MODEL_NOT_FOUND, format!("model {}: {what}", path.display()))
}

/// The compiler's refusal, with the way out that only we know.
fn refused(error: &ov_ir::Error) -> Error {
    let (code, hint) = match error {
        ov_ir::Error::Unsupported { .. } => {
            (code::UNSUPPORTED, "; a folder that OpenVINO's own tools have converted is served as it is")
        }
        ov_ir::Error::Cancelled { .. } => (code::CANCELLED, ""),
        ov_ir::Error::Io { source, .. } => match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => (
                code::BACKEND,
                "; free space, lower --cache-limit, or name a folder on a larger disk with --cache-dir",
            ),
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                (code::BACKEND, "; name a folder that this user may write with --cache-dir")
            }
            std::io::ErrorKind::NotFound => (code::MODEL_NOT_FOUND, NAME),
            _ => (code::BACKEND, ""),
        },
        ov_ir::Error::Gguf { .. }
        | ov_ir::Error::Damaged { .. }
        | ov_ir::Error::Tensor { .. }
        | ov_ir::Error::Verify { .. } => (code::MODEL_NOT_FOUND, ""),
        ov_ir::Error::Request(_) => (code::INVALID_CONFIG, ""),
    };
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    Error::new(code, format!("{text}{hint}"))
}

#[cfg(test)]
mod tests;
