//! What a call answers when it fails: a code of the boundary, one line for people, details for programs.

use crate::abi::code;

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// A code of [`crate::abi::code`].
    pub code: u32,
    /// One line, lower case, naming the value and the way out.
    pub message: String,
    /// A JSON object, or empty.
    pub details: String,
}

/// The SDK's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of any code.
    pub fn new(code: u32, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), details: String::new() }
    }

    /// The engine's queue is full.
    pub fn queue_full(waiting: usize) -> Error {
        Error::new(code::QUEUE_FULL, format!("{waiting} tasks wait already"))
    }

    /// The prompt does not fit; both counts are in tokens.
    pub fn prompt_too_long(have: usize, max: usize) -> Error {
        let message = format!("the prompt has {have} tokens, the engine takes {max}");
        Error { code: code::PROMPT_TOO_LONG, message, details: format!("{{\"have\":{have},\"max\":{max}}}") }
    }

    /// An option has a value the engine cannot take.
    pub fn config(message: impl Into<String>) -> Error {
        Error::new(code::INVALID_CONFIG, message)
    }

    /// Something below the engine failed.
    pub fn backend(message: impl Into<String>) -> Error {
        Error::new(code::BACKEND, message)
    }

    /// The engine lacks the function.
    pub fn unsupported(what: &str) -> Error {
        Error::new(code::UNSUPPORTED, format!("this engine has no {what}"))
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, code::name(self.code))
    }
}

impl std::error::Error for Error {}
