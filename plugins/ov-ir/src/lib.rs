//! Compiles language models for OpenVINO without OpenVINO: a GGUF file, or a Hugging Face folder with safetensors,
//! becomes `openvino_model.xml` and `openvino_model.bin`, whole or some layers of it.
//!
//! ```text
//! source (tensors) ─▶ families (what they mean) ─▶ model ─▶ graph (operations, quant) ─▶ ir (text and data)
//!        └──────────────────────── compile: digest, lock, partial folder, manifest ────────────────┘
//! ```
//!
//! Quantized weights stay what they are: see `quant` for what becomes of each type. What the library offers:
//! [`compile()`], [`verify()`], [`inspect()`], [`prune()`], [`parts()`]. It reads and writes files and blocks while it does; call it from a thread
//! that may. It knows neither plugins nor the host.

mod compile;
mod cut;
mod digest;
mod error;
mod families;
mod float;
mod graph;
mod inspect;
mod ir;
mod manifest;
mod model;
mod opened;
mod progress;
mod prune;
mod quant;
mod source;
mod verify;

pub use compile::{Bits, Quantize, Report, Request, Target, compile};
pub use error::Error;
pub use inspect::{Description, Inspection, inspect};
pub use manifest::{BIN, Entry, MANIFEST, Manifest, Origin, Quantized, Shape, Stored, WRITER, Weights, XML};
pub use opened::Kind;
pub use progress::{Progress, Step};
pub use prune::{Pruned, prune};
pub use source::gguf::parts;
pub use verify::verify;
