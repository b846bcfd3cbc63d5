//! What can go wrong at the edge: one error type, from a closed list of codes.
//!
//! Knows nothing of HTTP bodies; `http/respond.rs` turns an [`ApiError`] into one, for plain answers and for streams.

pub mod codes;
pub mod reference;

pub use codes::{Code, Kind};

/// A refusal or a failure as a client will see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// Which of the known errors it is; gives status, type and code.
    pub code: Code,
    /// One line: names the value and the way out.
    pub message: String,
    /// The request field at fault, as a path.
    pub param: Option<String>,
    /// When to ask again, in seconds, where that is known.
    pub after: Option<u64>,
}

impl ApiError {
    /// An error of that code.
    pub fn new(code: Code, message: impl Into<String>) -> ApiError {
        ApiError { code, message: message.into(), param: None, after: None }
    }

    /// The same, to be asked again after so many seconds.
    pub fn after(mut self, seconds: u64) -> ApiError {
        self.after = Some(seconds);
        self
    }

    /// The same, naming the field at fault.
    pub fn param(mut self, param: impl Into<String>) -> ApiError {
        self.param = Some(param.into());
        self
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}
