//! Where weights come from: named tensors of a GGUF file or of a Hugging Face folder, read row by row.
//!
//! Invariant: a range that is read lies inside its file; the file's length was checked when the source was opened.
//! Knows nothing of models: what a tensor is for is said in `families`.

pub(crate) mod gguf;
pub(crate) mod packed;
pub(crate) mod safetensors;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::Error;
use packed::Packed;

/// How a tensor's numbers are stored. Block layouts are ggml's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, non_camel_case_types)] // the formats' own names
pub(crate) enum Format {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    /// Integers of 4 bits that GPTQ, AWQ or compressed-tensors packed: per group an f32 scale, a byte for the zero point, and
    /// the integers as two in a byte, the first in the low half. The parts are brought into this form as they are read.
    Int4 {
        /// Elements of a group.
        group: usize,
        /// Zero points differ from 8.
        zeros: bool,
    },
}

impl Format {
    /// All of them, for messages.
    const KNOWN: &str = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL and IQ4_XS (safetensors: the first three)";

    /// Elements and bytes of a block; plain numbers are blocks of one.
    pub(crate) fn layout(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::BF16 => (1, 2),
            Self::Q4_0 | Self::IQ4_NL => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q2_K => (256, 84),
            Self::Q3_K => (256, 110),
            Self::Q4_K => (256, 144),
            Self::Q5_K => (256, 176),
            Self::Q6_K => (256, 210),
            Self::IQ4_XS => (256, 136),
            Self::Int4 { group, .. } => (group, 5 + group / 2),
        }
    }

    /// As manifests name it.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Int4 { group, zeros } => {
                format!("INT4 in groups of {group}{}", if zeros { " with zero points" } else { "" })
            }
            other => format!("{other:?}"),
        }
    }

    /// Whether it is a plain floating-point type.
    pub(crate) fn is_plain(self) -> bool {
        self.layout().0 == 1
    }
}

/// One tensor of a source.
#[derive(Debug, Clone)]
pub(crate) struct Info {
    /// Elements per dimension, the slowest-moving one first: `[rows, columns]` of a matrix.
    pub(crate) shape: Vec<usize>,
    /// How its numbers are stored.
    pub(crate) format: Format,
    place: Place,
    row_bytes: usize,
}

/// Where the rows of a tensor are.
#[derive(Debug, Clone)]
enum Place {
    /// One behind the other.
    File { file: usize, start: u64 },
    /// In several tensors.
    Packed(Packed),
}

impl Info {
    /// Rows: the product of all dimensions but the last.
    pub(crate) fn rows(&self) -> usize {
        // A dimension of 0 lets the others be anything.
        self.shape.iter().rev().skip(1).fold(1, |product, dim| product.saturating_mul(*dim))
    }

    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Bytes of all rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.rows().saturating_mul(self.row_bytes) as u64
    }

    /// Elements of a row.
    pub(crate) fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }
}

/// The tensors of a model's files.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    files: Vec<PathBuf>,
    tensors: BTreeMap<String, Info>,
    /// Tensors of a type that cannot be read; named in the error only if a model needs one.
    unreadable: BTreeMap<String, String>,
    /// Those of them that hold integers of 32 bits.
    integers: BTreeMap<String, Integers>,
    /// Scales of packed matrices, by the names of these.
    scales: BTreeMap<String, Info>,
}

/// A matrix, or a vector, of 32-bit integers.
#[derive(Debug, Clone)]
struct Integers {
    shape: Vec<usize>,
    file: usize,
    start: u64,
}

impl Source {
    /// The file or folder that was opened, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The files that hold weights.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// All names, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().chain(self.unreadable.keys()).map(String::as_str)
    }

    /// Whether there is a tensor of that name, readable or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name) || self.unreadable.contains_key(name)
    }

    /// The tensor of that name.
    ///
    /// # Errors
    /// There is none, or its type is unknown.
    pub(crate) fn get(&self, name: &str) -> Result<&Info, Error> {
        if let Some(format) = self.unreadable.get(name) {
            let what = format!("type {format} of tensor {name}");
            let instead = format!("take a file of other types; known are {}", Format::KNOWN);
            return Err(Error::unsupported(&self.path, what, instead));
        }
        self.tensors.get(name).ok_or_else(|| {
            Error::tensor(
                &self.path,
                name,
                "is missing; the model is cut or of another family, fetch all of it again",
            )
        })
    }

    /// The bytes of some rows.
    ///
    /// # Errors
    /// The tensor is missing or has fewer rows, or its file cannot be read.
    pub(crate) fn read(&self, name: &str, rows: Range<usize>) -> Result<Vec<u8>, Error> {
        let info = self.get(name)?;
        if rows.start > rows.end || rows.end > info.rows() {
            let problem = format!("has {} rows, rows {rows:?} are needed", info.rows());
            return Err(Error::tensor(&self.path, name, problem));
        }
        match &info.place {
            Place::Packed(packed) => packed.read(self, name, rows),
            Place::File { file, start } => {
                let mut bytes = vec![0; rows.len() * info.row_bytes];
                let start = start + (rows.start * info.row_bytes) as u64;
                self.file(*file)?.fill(name, start, &mut bytes)?;
                Ok(bytes)
            }
        }
    }

    /// One of the files, to be read.
    fn file(&self, number: usize) -> Result<Reader<'_>, Error> {
        let path = &self.files[number];
        Ok(Reader { path, file: File::open(path).map_err(Error::io("open", path))? })
    }

    fn new(path: &Path, files: Vec<PathBuf>) -> Self {
        Self {
            path: path.to_owned(),
            files,
            tensors: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            integers: BTreeMap::new(),
            scales: BTreeMap::new(),
        }
    }

    /// Adds a tensor whose bytes were checked against the file's length by the caller.
    fn add(&mut self, name: String, shape: Vec<usize>, format: Format, file: usize, start: u64) {
        let (block, bytes) = format.layout();
        let row_bytes = (shape.last().copied().unwrap_or(1) / block).saturating_mul(bytes);
        self.tensors.insert(name, Info { shape, format, place: Place::File { file, start }, row_bytes });
    }
}

/// A file of a source.
struct Reader<'a> {
    path: &'a Path,
    file: File,
}

impl Reader<'_> {
    /// Reads bytes for the tensor of that name.
    fn fill(&mut self, name: &str, start: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.file.seek(SeekFrom::Start(start)).map_err(Error::io("read", self.path))?;
        self.file.read_exact(bytes).map_err(|source| {
            if source.kind() == std::io::ErrorKind::UnexpectedEof {
                Error::tensor(self.path, name, "reaches behind the end of the file; fetch the file again")
            } else {
                Error::Io { what: "read", path: self.path.to_owned(), source }
            }
        })
    }
}
