//! The plugin and the way from options to an engine: configure, load, build, each of which can be told to fail.

use std::time::Duration;

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{
    Builder, Engine, EngineInfo, Error, Level, Plugin, Progress, Result, Shard, Worker, log,
};

use crate::breach;
use crate::control::{fail_if, panic_if, spend};
use crate::engine::Mock as MockEngine;
use crate::ext::stage::Stages;
use crate::options::Options;
use crate::relay::Relay;

/// The plugin.
pub(crate) struct Mock;

impl Plugin for Mock {
    fn engines() -> &'static [EngineInfo] {
        &[EngineInfo {
            name: "mock",
            description: "scripted engine: repeats the prompt's words, or plays a script, with every fault on demand",
        }]
    }

    fn extensions() -> &'static [&'static str] {
        crate::ext::IDS
    }

    fn builder(engine: &str, worker: Worker) -> Result<Box<dyn Builder>> {
        if engine != "mock" {
            return Err(Error::new(code::UNSUPPORTED, format!("no engine {engine}; this plugin has mock")));
        }
        Ok(Box::new(Setup { worker, options: Options::default(), place: (0, 1), relay: Relay::new(worker) }))
    }
}

/// What is known before there is an engine.
struct Setup {
    worker: Worker,
    options: Options,
    /// Rank and number of stages.
    place: (u32, u32),
    relay: Relay,
}

impl Builder for Setup {
    fn configure(&mut self, options: &[(&str, &str)]) -> Result<()> {
        self.options = Options::read(options)?;
        let limit = Duration::from_millis(self.options.relay_timeout_ms);
        self.relay.configure(limit, self.options.relay);
        panic_if(&self.options, "configure");
        Ok(())
    }

    fn listen(&mut self, address: &str) -> Result<String> {
        self.relay.listen(address)
    }

    fn connect_peers(&mut self, peers: &[(u32, String)]) -> Result<()> {
        self.relay.connect(peers)
    }

    /// There are no weights: the path is not looked at, and need not exist.
    fn load(&mut self, shard: &Shard, progress: &Progress) -> Result<()> {
        panic_if(&self.options, "load");
        if self.options.list_devices {
            list_devices(&self.options.devices);
        }
        spend(self.options.load_delay_ms, "load", progress)?;
        fail_if(&self.options.fail_load)?;
        let (rank, stages) = shard.rank;
        if rank >= stages.max(1) {
            let message = format!("rank {rank} is none of {stages} stages");
            return Err(Error::new(code::SHARD_REJECTED, message));
        }
        self.place = (rank, stages.max(1));
        let slots = self.options.slots.to_string();
        log(Level::Info, "load", "mock model loaded", &[("model", &shard.model_id), ("slots", &slots)]);
        Ok(())
    }

    fn build(mut self: Box<Self>) -> Result<Box<dyn Engine>> {
        panic_if(&self.options, "build");
        if self.options.self_link {
            self.relay.link_to_itself()?;
        }
        fail_if(&self.options.fail_build)?;
        let before = breach::one_before(self.worker);
        if let Some(gone) = before.filter(|_| self.options.stale_worker) {
            breach::haunt(gone);
        }
        match self.place {
            (_, stages) if stages > 1 && !self.relay.is_used() => {
                Ok(Box::new(Stages::new(self.worker, &self.options, self.place)?))
            }
            _ => Ok(Box::new(MockEngine::new(self.worker, self.options, self.relay)?)),
        }
    }
}

/// As an engine whose libraries list what there is; or as one whose driver is broken.
fn list_devices(devices: &str) {
    if devices == "crash" {
        std::process::abort();
    }
    for device in devices.split(';').map(str::trim).filter(|d| !d.is_empty()) {
        log(Level::Info, "devices", device, &[]);
    }
}
