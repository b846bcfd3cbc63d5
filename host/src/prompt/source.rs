//! The only file of `prompt` that opens files: turns a model path into the data that the rest works on.
//!
//! A file is read as GGUF (its header only). A folder is read as a Hugging Face model, whose `tokenizer.json` is required and
//! its neighbours are optional; without that, by the vocabulary of the GGUF file that it was compiled from. Every file is read up
//! to a bound.

use std::fs::File;
use std::io::Read;

use cascadia_gguf::{Gguf, VOCABULARY};
use serde_json::Value;

use super::{Path, PathBuf};

/// Bytes of `tokenizer.json` (the largest public ones are near 35 MB).
const MAX_TOKENIZER: u64 = 256 << 20;
/// Bytes of any other file.
const MAX_SIDE: u64 = 16 << 20;

/// Why a model's files could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file system refused.
    #[error("read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// A file is larger than any real one.
    #[error("{} is larger than {limit} bytes; this is no tokenizer file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The bound in bytes.
        limit: u64,
    },
    /// The folder has no tokenizer.
    #[error("{} has no tokenizer.json and no vocabulary.gguf; add the tokenizer.json of the original model, or name a .gguf file", path.display())]
    NoTokenizer {
        /// The folder.
        path: PathBuf,
    },
    /// Not a GGUF header.
    #[error("{}", path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: cascadia_gguf::Error,
    },
    /// A JSON file is malformed.
    #[error("{} is not valid json", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// A text file is not UTF-8.
    #[error("{} is not utf-8", path.display())]
    Utf8 {
        /// The file.
        path: PathBuf,
    },
}

/// What a model path holds.
#[derive(Debug)]
pub enum Source {
    /// The header of a GGUF file.
    Gguf(Box<Gguf>),
    /// The text files of a model folder.
    Folder(Box<Folder>),
}

/// The text files of a model folder. JSON documents that are absent are `Value::Null`.
#[derive(Debug, Default)]
pub struct Folder {
    /// The folder's own name.
    pub name: Option<String>,
    /// `tokenizer.json`, unparsed.
    pub tokenizer: Vec<u8>,
    /// `tokenizer_config.json`.
    pub tokenizer_config: Value,
    /// `special_tokens_map.json`.
    pub special_tokens: Value,
    /// `config.json`.
    pub config: Value,
    /// `generation_config.json`.
    pub generation_config: Value,
    /// `chat_template.jinja`.
    pub template_file: Option<String>,
    /// `chat_template.json`.
    pub template_json: Value,
}

/// Reads a model path.
///
/// # Errors
/// [`SourceError`], naming the file.
pub fn read(path: &Path) -> Result<Source, SourceError> {
    let info = std::fs::metadata(path).map_err(|source| io(path, source))?;
    if info.is_dir() {
        let vocabulary = path.join(VOCABULARY);
        if !path.join("tokenizer.json").exists() && vocabulary.exists() {
            return read(&vocabulary);
        }
        return Ok(Source::Folder(Box::new(read_folder(path)?)));
    }
    let file = File::open(path).map_err(|source| io(path, source))?;
    let wrong = |source| SourceError::Gguf { path: path.to_owned(), source };
    let gguf = Gguf::read(file).map_err(wrong)?;
    // Of a model split over several files only the first part has the tokenizer.
    gguf.opening().map_err(wrong)?;
    Ok(Source::Gguf(Box::new(gguf)))
}

fn read_folder(path: &Path) -> Result<Folder, SourceError> {
    let tokenizer = bytes(&path.join("tokenizer.json"), MAX_TOKENIZER)?
        .ok_or_else(|| SourceError::NoTokenizer { path: path.to_owned() })?;
    Ok(Folder { tokenizer, ..beside(path)? })
}

/// What a folder has beside a tokenizer, which is left empty; of a file, nothing.
pub(super) fn beside(path: &Path) -> Result<Folder, SourceError> {
    if !path.is_dir() {
        return Ok(Folder::default());
    }
    Ok(Folder {
        name: path.file_name().map(|name| name.to_string_lossy().into_owned()),
        tokenizer: Vec::new(),
        tokenizer_config: json(&path.join("tokenizer_config.json"))?,
        special_tokens: json(&path.join("special_tokens_map.json"))?,
        config: json(&path.join("config.json"))?,
        generation_config: json(&path.join("generation_config.json"))?,
        template_file: text(&path.join("chat_template.jinja"))?,
        template_json: json(&path.join("chat_template.json"))?,
    })
}

fn json(path: &Path) -> Result<Value, SourceError> {
    let Some(bytes) = bytes(path, MAX_SIDE)? else { return Ok(Value::Null) };
    serde_json::from_slice(&bytes).map_err(|source| SourceError::Json { path: path.to_owned(), source })
}

fn text(path: &Path) -> Result<Option<String>, SourceError> {
    let Some(bytes) = bytes(path, MAX_SIDE)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|_| SourceError::Utf8 { path: path.to_owned() })
}

/// The content of a file; none if there is no such file.
fn bytes(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, SourceError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(io(path, source)),
    };
    let mut out = Vec::new();
    file.take(limit + 1).read_to_end(&mut out).map_err(|source| io(path, source))?;
    if out.len() as u64 > limit {
        return Err(SourceError::TooLarge { path: path.to_owned(), limit });
    }
    Ok(Some(out))
}

fn io(path: &Path, source: std::io::Error) -> SourceError {
    SourceError::Io { path: path.to_owned(), source }
}
