//! Reads the header of a GGUF file: metadata, tensor table, where the tensor data begins.
//!
//! Pure: takes any `Read` (a `File`, or a `&[u8]` that holds at least the header) and opens nothing itself. What must
//! hold: no input makes it panic, and it never holds much more memory than it has read bytes, because every count,
//! length and depth is bounded by [`Limits`]. It knows nothing of engines, tokenizers or what a key means.

mod error;
mod file;
mod input;
mod parse;
mod split;
mod tensor;
mod value;

#[cfg(test)]
mod tests;

/// How a file is called that has the vocabulary of the model in its folder: metadata as [`Gguf::copy_metadata`] writes them.
pub const VOCABULARY: &str = "vocabulary.gguf";

pub use error::Error;
pub use file::Gguf;
pub use parse::Limits;
pub use split::{Split, model_name, part_names};
pub use tensor::{Layout, Tensor, TensorType};
pub use value::{Array, Value};
