//! From options and a model path to an engine: finds the runtime, opens it through the host, loads the model.

use std::path::Path;
use std::sync::Arc;

use cascadia_batching::{Limits as Bounds, Scheduler};
use cascadia_ov_base::locate::{self, Search};
use cascadia_ov_base::open::Host;
use cascadia_ov_base::source::{Found, Loader, Ready, Source};
use cascadia_ov_base::surroundings;
use cascadia_ov_ir::{MANIFEST, Manifest, XML};
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::{Builder, Engine, Error, Level, Progress, Result, Serial, Shard, Worker, log};

use crate::asked::Limits;
use crate::backend::Backend;
use crate::draft::Draft;
use crate::engine::{Batched, Facts};
use crate::ffi::{Model, Shim};
use crate::generations::Generations;
use crate::guess::Guesses;
use crate::masks::Filler;
use crate::memory::{self, Needs, Sizes};
use crate::meter::Meter;
use crate::options::{Options, Proposer};
use crate::speculate::Lookup;
use crate::state::{Form, Weights};
use crate::whole::Whole;
use crate::worth::Worth;

mod draft;

/// Builds one engine.
pub(crate) struct Runtime {
    worker: Worker,
    options: Options,
    loaded: Option<(Model, Sizes, Vec<String>, Form)>,
    draft: Option<draft::Loaded>,
}

impl Runtime {
    pub(crate) fn new(worker: Worker) -> Runtime {
        Runtime { worker, options: Options::default(), loaded: None, draft: None }
    }
}

impl Builder for Runtime {
    fn configure(&mut self, options: &[(&str, &str)]) -> Result<()> {
        self.options = Options::read(options)?;
        Ok(())
    }

    fn load(&mut self, shard: &Shard, progress: &Progress) -> Result<()> {
        let source = served(&shard.path, Source::of(&shard.path, Loader::Own)?)?;
        if let Proposer::Model(path) = &self.options.proposer {
            // Before minutes are spent on the model.
            draft::source(path)?;
        }
        progress.report("runtime", 0, 2)?;
        let (shim, version) = open_runtime(&self.options)?;
        let Ready { path, note } = source.ready(&shard.path, &self.options.keep, progress)?;
        progress.report("model", 1, 2)?;
        let properties = self.options.device_properties(&path);
        let failed =
            |e: String| Error::backend(format!("open {} on {}: {e}", path.display(), self.options.device));
        let mut model =
            Model::open(&shim, &path.join(XML), &self.options.device, &properties).map_err(failed)?;
        let facts = Backend::facts(&model);
        let sizes = self.options.cache.sizes(Needs {
            context: context(self.options.keep.context_length, &path),
            sequences: self.options.sequences.min(self.options.rows),
            block_tokens: facts.block_tokens,
            block_bytes: facts.block_bytes,
            memory: memory::available(),
        })?;
        model.allocate(sizes.blocks).map_err(|e| Error::new(code::OUT_OF_MEMORY, e))?;
        progress.report("model", 2, 2)?;
        if let Proposer::Model(path) = &self.options.proposer {
            let positions = sizes.blocks.saturating_mul(facts.block_tokens);
            let beside = draft::Beside { path: &shard.path, vocabulary: facts.vocabulary, positions };
            self.draft = Some(draft::load(&shim, path, &beside, &self.options, progress)?);
        }
        let cache = format!(
            "KV cache of {} blocks of {} tokens, {} MB in all, taken as they are used",
            sizes.blocks,
            facts.block_tokens,
            (sizes.blocks as u64).saturating_mul(facts.block_bytes as u64) / 1_000_000
        );
        let computes = model.property(c"INFERENCE_PRECISION_HINT").unwrap_or_else(|_| "unknown".to_owned());
        let form = Form {
            dtype: model.cache_type(),
            computes,
            // The version alone, without the build.
            runtime: version.split('-').next().unwrap_or_default().to_owned(),
            caches: model.cache_form(),
            weights: Weights::of(&path),
            rows: Form::rows(&model),
        };
        let drafted = self.draft.as_ref().map(|draft| draft.note.clone());
        let notes = [Some(format!("OpenVINO {version}")), note, Some(cache), drafted];
        let notes = notes.into_iter().flatten().collect();
        self.loaded = Some((model, sizes, notes, form));
        Ok(())
    }

    fn build(self: Box<Self>) -> Result<Box<dyn Engine>> {
        let (model, sizes, notes, form) =
            self.loaded.ok_or_else(|| Error::new(code::CLOSED, "the model was not loaded before build"))?;
        let o = self.options;
        let facts = Backend::facts(&model);
        let sequences = o.sequences.min(o.rows);
        let tasks = sequences + o.max_waiting;
        let bounds = Bounds {
            block_size: facts.block_tokens,
            blocks: sizes.blocks,
            rows: o.rows,
            rows_beside: o.rows.div_ceil(2),
            sequences,
            // The queue in front of the scheduler bounds what waits.
            waiting: tasks,
            prefix: o.prefix,
            ..Bounds::default()
        };
        let scheduler = Scheduler::new(bounds).map_err(|e| Error::config(e.to_string()))?;
        let filler = Filler::default();
        let (window, vocabulary) = (sizes.window, facts.vocabulary);
        let limits = Limits { window, vocabulary, filler: filler.clone() };
        let log = scheduler.log();
        let block_tokens = u32::try_from(facts.block_tokens).unwrap_or(u32::MAX);
        let facts = Facts {
            tasks,
            sequences,
            rows: o.rows,
            device: o.device,
            precision: format!("{} inference, {} KV cache", form.computes, form.dtype),
            block_tokens: facts.block_tokens,
            notes,
        };
        let worth = |costs| Worth::new(o.policy, o.proposed, costs);
        let guesses = match (self.draft, o.proposer) {
            (Some(draft::Loaded { model, sizes, .. }), _) => {
                Guesses::Draft(Box::new(Draft::new(Box::new(model), sizes, worth(true))))
            }
            (None, Proposer::Prompt(ngram)) => Guesses::Lookup(Box::new(Lookup::new(ngram, worth(false)))),
            (None, _) => Guesses::No,
        };
        let drafted = matches!(guesses, Guesses::Draft(_));
        let meter = Meter::new(self.worker, !matches!(guesses, Guesses::No), drafted);
        let generations = Generations::new(Box::new(model), scheduler, limits, guesses);
        let batch = Serial::new(Batched::new(generations, facts, meter, self.worker), o.max_waiting);
        Ok(Box::new(Whole { batch, log, filler, block_tokens, form }))
    }
}

/// Most tokens that the model takes, as far as anyone says; 0: nobody asked for a length.
fn context(asked: u32, folder: &Path) -> Option<usize> {
    if asked > 0 {
        return Some(asked as usize);
    }
    // A network of another maker has none of our manifests, and says nothing of it.
    let manifest = folder.join(MANIFEST).is_file().then(|| Manifest::open(folder).ok()).flatten()?;
    usize::try_from(manifest.model.context?).ok()
}

/// What was found, where paged attention computes it.
fn served(path: &Path, found: Found) -> Result<Source> {
    let what = match (found.embeds, found.capped) {
        (true, _) => "embeds texts and generates nothing; ov-genai serves it".to_owned(),
        (_, Some(family)) => format!(
            "{family} caps its attention scores, which OpenVINO's paged attention does not; ov-genai serves it, one \
             generation at a time"
        ),
        _ => return Ok(found.source),
    };
    Err(Error::new(code::UNSUPPORTED, format!("model {}: {what}", path.display())))
}

fn open_runtime(options: &Options) -> Result<(Arc<Shim>, String)> {
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
    let core = locate::core(&search).map_err(|e| failed(&e))?;
    let shim = locate::shim(&beside, "ov_runtime", core.build).map_err(|e| failed(&e))?;
    let loaded = Shim::load(&Host, &core.path, &shim).map_err(|e| failed(&e))?;
    loaded.check(options.allow_untested).map_err(|e| failed(&e))?;
    let version = loaded.version();
    let path = core.path.display().to_string();
    log(Level::Info, "runtime", "OpenVINO opened", &[("version", &version), ("core", &path)]);
    Ok((loaded, version))
}
