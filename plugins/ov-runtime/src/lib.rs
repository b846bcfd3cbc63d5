//! `ov-runtime`: our own continuous batching over OpenVINO's kernels.
//!
//! `ffi` and the C++ shim run a network with paged attention, `backend` is that behind a trait, `generations` is the loop
//! (plan, compute, sample, commit), `engine` its face to the host, `builder` turns options into an engine. The scheduler is
//! `plugins/batching`, the choice of tokens `plugins/sampling`.

mod asked;
mod backend;
mod builder;
mod costs;
mod draft;
mod engine;
mod ffi;
mod generation;
mod generations;
mod guess;
mod masks;
mod memory;
mod meter;
mod options;
mod speculate;
mod state;
mod tray;
mod vocabulary;
mod warm;
mod whole;
mod worth;

use cascadia_plugin_api::abi::ids;
use cascadia_plugin_api::sdk::{Builder, EngineInfo, Error, Plugin, Result, Worker};

struct OvRuntime;

const ENGINE: EngineInfo = EngineInfo {
    name: "ov-runtime",
    description: "continuous batching of our own over OpenVINO: a GGUF file, a folder with safetensors or an OpenVINO IR \
                  folder, on CPU",
};

impl Plugin for OvRuntime {
    fn engines() -> &'static [EngineInfo] {
        &[ENGINE]
    }

    fn extensions() -> &'static [&'static str] {
        &[ids::KV_EVENTS, ids::TOKEN_MASK, ids::KV_STATE]
    }

    fn builder(engine: &str, worker: Worker) -> Result<Box<dyn Builder>> {
        if engine != ENGINE.name {
            return Err(Error::config(format!(
                "this plugin has no engine {engine:?}, it has {}",
                ENGINE.name
            )));
        }
        Ok(Box::new(builder::Runtime::new(worker)))
    }
}

cascadia_plugin_api::export_plugin! {
    plugin: OvRuntime,
    id: "ov-runtime",
    about: include_str!("../manifest.json"),
}
