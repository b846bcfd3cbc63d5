//! A plugin whose start goes as the variable `START` says: `panic`, `error`, else well. It gives no engine.
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Builder, EngineInfo, Error, Plugin, Result, Worker};

struct Starter;

impl Plugin for Starter {
    fn engines() -> &'static [EngineInfo] {
        &[EngineInfo { name: "none", description: "no engine" }]
    }

    fn start() -> Result<()> {
        match std::env::var("START").as_deref() {
            Ok("panic") => panic!("the start was told to panic"),
            Ok("error") => Err(Error::new(code::INVALID_CONFIG, "licence file missing; put it beside the plugin")),
            _ => Ok(()),
        }
    }

    fn builder(_engine: &str, _worker: Worker) -> Result<Box<dyn Builder>> {
        Err(Error::new(code::UNSUPPORTED, "this plugin gives no engine"))
    }
}

cascadia_plugin_api::export_plugin! { plugin: Starter, id: env!("CARGO_PKG_NAME"), about: include_str!("../manifest.json") }
