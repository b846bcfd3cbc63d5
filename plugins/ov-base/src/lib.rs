//! What the OpenVINO plugins share: `surroundings` knows this machine's folders, `locate` finds the runtime in them, `open`
//! opens it through the host, `source` has models compiled by `ov-ir`, `shim` finds a shim's functions,
//! `options` and `profile` read what plugins are told (`processor` and `weights` help it), `text` takes the words of C.
//!
//! Knows nothing of engines, shims' functions or generations.

pub mod locate;
pub mod open;
pub mod options;
mod processor;
pub mod profile;
pub mod shim;
pub mod source;
pub mod surroundings;
pub mod system;
pub mod text;
mod weights;
