//! The manifest beside a compiled model: what it was made of, what was lost, and the digests by which it is verified.
//!
//! What must hold: a folder with a manifest is complete, since the manifest is written last and the folder gets its
//! name after that.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::digest;
use crate::error::Error;
use crate::opened::Kind;

/// The network's text.
pub const XML: &str = "openvino_model.xml";
/// The network's constants.
pub const BIN: &str = "openvino_model.bin";
/// The manifest.
pub const MANIFEST: &str = "cascadia-manifest.json";

/// Counts changes of what is written for the same source; older folders are then compiled anew.
pub const WRITER: u32 = 1;

/// Bytes of a manifest.
const MAX: u64 = 16 << 20;

/// See the module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`WRITER`] at the time.
    pub writer: u32,
    /// Names everything that decides the content: source, layers, options, writer.
    pub key: String,
    /// Where it came from.
    pub source: Origin,
    /// What it is.
    pub model: Shape,
    /// What became of the weights.
    pub weights: Weights,
    /// Files by name.
    pub files: BTreeMap<String, Entry>,
}

/// The source of a compiled model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Its last path component.
    pub name: String,
    /// What it came as.
    pub kind: Kind,
    /// SHA-256 of the file; of several, over their digests, one a line.
    pub sha256: String,
}

/// What users of a compiled model need to know of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// The family as the source names it.
    pub family: String,
    /// Width of the residual stream: of `inputs_embeds` and `hidden_out`.
    pub hidden: usize,
    /// Length of a row of logits.
    pub vocab: usize,
    /// Positions that the model was trained for.
    pub context: Option<u64>,
    /// Layers of the whole model.
    pub layers: usize,
    /// The first layer of this part.
    pub first: usize,
    /// The first layer behind this part.
    pub end: usize,
    /// Whether OpenVINO can rewrite it to paged attention, which continuous batching needs.
    pub paged: bool,
}

/// What became of the weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// Matrices by how the source stored them.
    pub formats: BTreeMap<String, Stored>,
    /// Matrices whose offsets became zero points rounded to f32: by at most 2^-24 of the offset. All other stored
    /// integers and scales are exact.
    pub rounded_zeros: usize,
    /// Matrices that were rounded on request.
    pub quantized: Vec<Quantized>,
    /// Parts of the source that are not here, as what takes pictures: their names, and what they have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, Stored>,
}

/// Matrices of one storage format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// How many.
    pub tensors: usize,
    /// Their bytes in the source.
    pub bytes: u64,
}

/// A matrix that was rounded on request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quantized {
    /// Its name in the source.
    pub tensor: String,
    /// Sum of squared differences over the sum of squares.
    pub error: f64,
}

/// A file of a compiled model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its length.
    pub bytes: u64,
    /// Its digest.
    pub sha256: String,
}

impl Manifest {
    /// Reads a folder's manifest and checks that each file is there and has its length.
    ///
    /// # Errors
    /// There is no manifest, it is damaged or of a later writer, or a file is missing or has another length.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(MANIFEST);
        let mut text = Vec::new();
        let file = match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::verify(
                    folder,
                    format!("has no {MANIFEST}; it is none that was compiled here"),
                ));
            }
            file => file.map_err(Error::io("open", &path))?,
        };
        file.take(MAX).read_to_end(&mut text).map_err(Error::io("read", &path))?;
        let manifest: Self = serde_json::from_slice(&text)
            .map_err(|e| Error::verify(&path, format!("is no manifest: {e}; compile the model again")))?;
        if manifest.writer > WRITER {
            let problem =
                format!("was written by writer {}, this is {WRITER}; use that one", manifest.writer);
            return Err(Error::verify(&path, problem));
        }
        for (name, entry) in &manifest.files {
            let path = folder.join(name);
            if Path::new(name).file_name().is_none_or(|last| last != name.as_str()) {
                return Err(Error::verify(&path, "is no plain file name; compile the model again"));
            }
            let found = match std::fs::metadata(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Err(Error::verify(&path, "is missing; compile the model again"));
                }
                found => found.map_err(Error::io("open", &path))?.len(),
            };
            if found != entry.bytes {
                let problem =
                    format!("has {found} bytes, {} were written; compile the model again", entry.bytes);
                return Err(Error::verify(&path, problem));
            }
        }
        Ok(manifest)
    }

    /// Compares the digest of each file.
    ///
    /// # Errors
    /// A file cannot be read or differs, or `count` says stop.
    pub(crate) fn compare(
        &self,
        folder: &Path,
        count: &mut dyn FnMut(u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for (name, entry) in &self.files {
            let path = folder.join(name);
            let found = digest::file(&path, count)?;
            if found != entry.sha256 {
                let problem =
                    format!("has the digest {found}, {} was written; compile the model again", entry.sha256);
                return Err(Error::verify(&path, problem));
            }
        }
        Ok(())
    }

    /// All bytes that [`Manifest::compare`] reads.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.values().map(|entry| entry.bytes).sum()
    }
}
