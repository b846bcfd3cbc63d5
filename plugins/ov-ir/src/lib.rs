//! x
mod error;
mod families;
mod float;
pub mod model;
mod quant;
mod source;
pub use error::Error;
pub use source::Format;
