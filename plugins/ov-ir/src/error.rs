//! What can go wrong. Each message names the file, and the tensor, key or feature, with the way out.

use std::path::{Path, PathBuf};

/// Why a model was not compiled, cut or verified.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{what} {path}")]
    Io {
        /// What was tried: `open`, `read`, `write`, ...
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A GGUF header is damaged.
    #[error("read {path}")]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: cascadia_gguf::Error,
    },
    /// A safetensors header or a configuration is damaged, or lacks what is needed.
    #[error("{path}: {problem}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, with values and the way out.
        problem: String,
    },
    /// A tensor is missing, has the wrong shape or impossible contents.
    #[error("{path}: tensor {name} {problem}")]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A family, a feature or a type that this compiler does not write.
    #[error("{path}: {what} is not supported, nothing was written; {instead}")]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The family or feature, by its name in the file.
        what: String,
        /// The way out.
        instead: String,
    },
    /// The caller asked for something impossible.
    #[error("{0}")]
    Request(String),
    /// An output folder is not what its manifest says.
    #[error("{path}: {problem}")]
    Verify {
        /// The file.
        path: PathBuf,
        /// What differs, and the way out.
        problem: String,
    },
    /// The caller's progress callback said stop.
    #[error("compilation of {path} was cancelled")]
    Cancelled {
        /// The source.
        path: PathBuf,
    },
}

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }

    pub(crate) fn damaged(path: &Path, problem: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn tensor(path: &Path, name: &str, problem: impl Into<String>) -> Self {
        Self::Tensor { path: path.to_owned(), name: name.to_owned(), problem: problem.into() }
    }

    pub(crate) fn verify(path: &Path, problem: impl Into<String>) -> Self {
        Self::Verify { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn unsupported(path: &Path, what: impl Into<String>, instead: impl Into<String>) -> Self {
        Self::Unsupported { path: path.to_owned(), what: what.into(), instead: instead.into() }
    }

    /// A feature of a family that we have in part, for which there is no value to choose instead.
    pub(crate) fn feature(path: &Path, what: impl Into<String>) -> Self {
        Self::unsupported(
            path,
            what,
            "take another model of the family, or convert this one with OpenVINO's tools",
        )
    }
}
