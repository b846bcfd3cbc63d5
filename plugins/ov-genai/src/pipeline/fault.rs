//! Why the library did not do something, in words for an operator.

use std::ffi::CString;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why the library did not do it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Error {
    Open {
        model: PathBuf,
        device: String,
        reason: String,
    },
    Add {
        reason: String,
    },
    Step {
        reason: String,
    },
    /// The library gave an id that is none.
    Token {
        id: i64,
    },
    /// C ends a text at its first zero byte.
    Nul {
        what: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { model, device, reason } => {
                write!(f, "open {} on {device}: {reason}", model.display())
            }
            Self::Add { reason } => write!(f, "OpenVINO GenAI refuses the request: {reason}"),
            Self::Step { reason } => write!(f, "OpenVINO GenAI failed: {reason}"),
            Self::Token { id } => write!(f, "OpenVINO GenAI gave token id {id}"),
            Self::Nul { what } => write!(f, "{what} has a zero byte in it"),
        }
    }
}

impl std::error::Error for Error {}

pub(super) fn c_string(what: &str, text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::Nul { what: what.to_owned() })
}

pub(super) fn c_path(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Error::Nul { what: "model".to_owned() })
}
