//! x
mod error;
mod float;
mod quant;
mod source;
pub use error::Error;
pub use source::Format;
