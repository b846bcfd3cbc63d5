//! From options and a model path to an engine: finds the runtime, opens it through the host, loads the model.

use std::path::PathBuf;
use std::sync::Arc;

use cascadia_ov_base::locate::{self, Runtime, Search};
use cascadia_ov_base::open::Host;
use cascadia_ov_base::source::{Keep, Ready, Source};
use cascadia_ov_base::surroundings;
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{
    Builder, Engine, Error, Level, Progress, Result, Serial, Shard, Worker, log, spawn,
};

use crate::embed::Embeds;
use crate::engine::single::Single;
use crate::engine::{Batch, Facts};
use crate::ffi::{Shim, devices};
use crate::folder::Folder;
use crate::logits;
use crate::options::Options;
use crate::pipeline::embedder::Embedder;
use crate::pipeline::stateful::Stateful;
use crate::pipeline::{Pipeline, fault, setup};
use crate::way::Way;
use crate::whole::Whole;
use crate::words::{self, Tokenizer};

/// Builds one engine.
pub(crate) struct Genai {
    worker: Worker,
    options: Options,
    loaded: Option<Loaded>,
}

struct Loaded {
    path: PathBuf,
    model: Model,
    facts: Facts,
    tokenizer: Option<Tokenizer>,
}

enum Model {
    Paged(Pipeline),
    /// With the reason, for the operator.
    Stateful(Stateful, String),
    Embeds(Embedder),
}

impl Genai {
    pub(crate) fn new(worker: Worker) -> Genai {
        Genai { worker, options: Options::default(), loaded: None }
    }
}

impl Builder for Genai {
    fn configure(&mut self, options: &[(&str, &str)]) -> Result<()> {
        self.options = Options::read(options)?;
        Ok(())
    }

    fn load(&mut self, shard: &Shard, progress: &Progress) -> Result<()> {
        if self.options.list_devices {
            // First: what the machine has does not depend on the model's files.
            progress.report("runtime", 0, 2)?;
            list_devices(&open_runtime(&self.options)?.2)?;
        }
        let found = Source::of(&shard.path, self.options.gguf_loader).map_err(with_library)?;
        let way = match found.embeds {
            true => None,
            false => Some(Way::choose(&self.options, &shard.path, &found)?),
        };
        progress.report("runtime", 0, 2)?;
        let (shim, version, runtime) = open_runtime(&self.options)?;
        let keep = Keep {
            cache_dir: self.options.cache_dir.clone(),
            cache_limit: self.options.cache_limit,
            context_length: self.options.context_length,
            // A GPU has kernels of its own for what the file has.
            symmetric: self.options.profile.rounds() && self.options.device == "CPU",
        };
        let Ready { path, note } = found.source.ready(&shard.path, &keep, progress).map_err(with_library)?;
        progress.report("model", 1, 2)?;
        let o = &self.options;
        let opened = setup::Options {
            model: path,
            device: o.device.clone(),
            profile: o.profile,
            scheduler: o.scheduler,
            properties: o.properties.clone(),
            proposer: o.proposer.clone(),
            allow_untested: o.allow_untested,
        };
        let failed = |e: fault::Error| Error::backend(e.to_string());
        let (model, has_vocabulary) = match way {
            None => (Model::Embeds(Embedder::open(&shim, &opened).map_err(failed)?), false),
            Some(Way::Paged) => {
                let mut pipeline = Pipeline::open(&shim, &opened).map_err(failed)?;
                let has_vocabulary = pipeline.has_vocabulary().map_err(failed)?;
                (Model::Paged(pipeline), has_vocabulary)
            }
            Some(Way::Stateful(why)) => {
                let worker = self.worker;
                let model = Stateful::open(&shim, &opened, |body| spawn(worker, "generate", body));
                (Model::Stateful(model.map_err(failed)?, why), false)
            }
        };
        progress.report("model", 2, 2)?;
        let tokenizer = match Tokenizer::is_needed(&shard.path) {
            // The host reads its tokenizer.json; texts are not asked of it.
            true if !found.embeds => {
                Some(Tokenizer::open(&shim, &shard.path, &runtime.genai.with_file_name(words::EXTENSION))?)
            }
            _ => None,
        };
        let vocabulary = logits::fewest(&opened);
        let facts = Facts { version, weights: note, has_vocabulary, vocabulary, computes: opened.computes() };
        self.loaded = Some(Loaded { path: shard.path.clone(), model, facts, tokenizer });
        Ok(())
    }

    fn build(self: Box<Self>) -> Result<Box<dyn Engine>> {
        let Loaded { path, model, facts, tokenizer } =
            self.loaded.ok_or_else(|| Error::new(code::CLOSED, "the model was not loaded before build"))?;
        let max_waiting = self.options.max_waiting;
        let (options, worker) = (self.options, self.worker);
        let generator: Box<dyn Engine> = match model {
            Model::Paged(pipeline) => {
                Box::new(Serial::new(Batch::new(pipeline, options, facts, worker), max_waiting))
            }
            Model::Embeds(model) => {
                let folder = Folder::read(&path, options.pooling);
                return Ok(Box::new(Embeds::new(model, &folder, &options, &facts.version, worker)));
            }
            Model::Stateful(model, why) => {
                Box::new(Serial::new(Single::new(model, options, facts, why, worker), max_waiting))
            }
        };
        Ok(Box::new(Whole { generator, tokenizer }))
    }
}

/// A refusal of the compiler, with the way out that only this plugin has.
fn with_library(mut error: Error) -> Error {
    if error.code == code::UNSUPPORTED && error.message.contains("not supported") {
        error.message += ", and --gguf-loader library hands a GGUF file to OpenVINO GenAI's loader, which rounds some weights";
    }
    error
}

/// One line for each device; `cascadia-host doctor` reads them.
fn list_devices(runtime: &Runtime) -> Result<()> {
    let devices = devices::list(&Host, &runtime.core, runtime.build).map_err(Error::backend)?;
    for device in devices {
        log(Level::Info, "devices", &format!("{}: {}", device.name, device.full), &[]);
    }
    Ok(())
}

fn open_runtime(options: &Options) -> Result<(Arc<Shim>, String, Runtime)> {
    let beside = surroundings::own_folder()
        .ok_or_else(|| Error::backend("the plugin's own folder is not known; /proc is needed"))?;
    let (site_packages, cache) = (surroundings::site_packages(), surroundings::cache_folder());
    let search = Search {
        explicit: options.openvino_dir.as_deref(),
        beside: &beside,
        site_packages: &site_packages,
        cache: &cache,
    };
    let failed = |e: &dyn std::fmt::Display| Error::backend(e.to_string());
    let runtime = locate::find(&search).map_err(|e| failed(&e))?;
    let shim = locate::shim(&beside, "ov_genai", runtime.build).map_err(|e| failed(&e))?;
    let loaded = Shim::load(&Host, &runtime, &shim).map_err(|e| failed(&e))?;
    loaded.check(options.allow_untested).map_err(|e| failed(&e))?;
    let (_, version) = loaded.version();
    let core = runtime.core.display().to_string();
    log(Level::Info, "runtime", "OpenVINO opened", &[("version", &version), ("core", &core)]);
    Ok((loaded, version, runtime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_that_the_compiler_lacks_is_refused_with_the_librarys_loader_as_the_way_out() {
        let unknown = Error::new(code::UNSUPPORTED, "m.gguf: architecture rwkv6 is not supported");
        assert!(with_library(unknown).message.contains("--gguf-loader library"));
        let other = Error::new(code::MODEL_NOT_FOUND, "m.gguf: not supported by the file system");
        assert_eq!(with_library(other.clone()), other);
    }
}
