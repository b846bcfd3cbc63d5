//! `ov-genai`: whole models through OpenVINO GenAI.
//!
//! `ffi` and the C++ shim speak with the runtime, `pipeline` makes that plain Rust, `builder` turns options into an `engine`.
//! What finds the runtime and compiles what is no network yet is `plugins/ov-base`.

mod builder;
mod cache;
mod embed;
mod engine;
mod ffi;
mod folder;
#[cfg(test)]
mod live;
mod logits;
mod options;
mod pipeline;
mod prefix;
mod speculate;
mod way;
mod whole;
mod words;

use cascadia_plugin_api::abi::ids;
use cascadia_plugin_api::sdk::{Builder, EngineInfo, Error, Plugin, Result, Worker};

struct OvGenai;

const ENGINE: EngineInfo = EngineInfo {
    name: "ov-genai",
    description: "OpenVINO GenAI: a GGUF file, a folder with safetensors or an OpenVINO IR folder, on CPU, GPU or NPU",
};

impl Plugin for OvGenai {
    fn engines() -> &'static [EngineInfo] {
        &[ENGINE]
    }

    fn extensions() -> &'static [&'static str] {
        &[ids::TOKENIZE, ids::EMBEDDINGS]
    }

    fn builder(engine: &str, worker: Worker) -> Result<Box<dyn Builder>> {
        if engine != ENGINE.name {
            return Err(Error::config(format!(
                "this plugin has no engine {engine:?}, it has {}",
                ENGINE.name
            )));
        }
        Ok(Box::new(builder::Genai::new(worker)))
    }
}

cascadia_plugin_api::export_plugin! {
    plugin: OvGenai,
    id: "ov-genai",
    about: include_str!("../manifest.json"),
}
