//! A model behind OpenVINO GenAI's continuous batching: token ids in, token ids out, in plain Rust.
//!
//! Invariants: each token is given out once; a finished [`Progress`] is the last word on its request and comes
//! with the last of its tokens. One thread owns a pipeline and its requests: adding may touch the scheduler's prefix
//! cache, so it must not run beside [`Pipeline::step`].
//! Knows nothing of text, plugins or where libraries are.

use std::ffi::CString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ffi::{self, Entry, Shim, Value};

pub(crate) use crate::ffi::Metrics;

#[cfg(test)]
mod live;
#[cfg(test)]
mod tests;

/// How exact and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Profile {
    /// Computes and caches in f32: a request's tokens do not depend on what runs beside it.
    Exact,
    /// What the library chooses for the device.
    #[default]
    Default,
    /// The documented hints for speed over accuracy. On CPU the library's choice is the same already (measured).
    Fast,
}

impl Profile {
    /// The device properties it stands for; OpenVINO reads all of them from text.
    pub(crate) fn properties(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Exact => &[
                ("INFERENCE_PRECISION_HINT", "f32"),
                ("KV_CACHE_PRECISION", "f32"),
                ("DYNAMIC_QUANTIZATION_GROUP_SIZE", "0"),
            ],
            Self::Default => &[],
            // One inference at a time carries all requests, so latency is throughput here. f16 is not an option, see
            // `open`.
            Self::Fast => &[("EXECUTION_MODE_HINT", "PERFORMANCE"), ("PERFORMANCE_HINT", "LATENCY")],
        }
    }
}

/// What the pipeline's scheduler may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scheduler {
    /// Tokens in one step, prompts included.
    pub(crate) max_batched_tokens: usize,
    /// Requests in one step.
    pub(crate) max_requests: usize,
    pub(crate) cache: Cache,
    /// Prompts may be split over steps; without it one longer than `max_batched_tokens` is an error.
    pub(crate) split_prompts: bool,
    /// Keeps the blocks of earlier prompts.
    pub(crate) prefix_caching: bool,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            max_batched_tokens: 256,
            max_requests: 256,
            cache: Cache::Grow,
            split_prompts: true,
            prefix_caching: true,
        }
    }
}

/// How large the key-value cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cache {
    /// As large as the requests need.
    Grow,
    /// Blocks of the library's size (32 tokens on CPU).
    Blocks(usize),
    Gigabytes(usize),
}

/// What to open.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// A folder with `openvino_model.xml`, or a GGUF file that this user may write.
    pub(crate) model: PathBuf,
    /// As OpenVINO names devices: `CPU`, `GPU.0`, `AUTO:GPU,CPU`.
    pub(crate) device: String,
    pub(crate) profile: Profile,
    pub(crate) scheduler: Scheduler,
    /// Further properties of the device, over the profile's.
    pub(crate) properties: Vec<(String, String)>,
    /// Proposes tokens that one step checks together; then requests need [`Sampling::assistant`].
    pub(crate) proposer: Proposer,
    /// Accepts a version that was not tested if its structs look familiar.
    pub(crate) allow_untested: bool,
}

/// Where proposed tokens come from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Proposer {
    /// Nothing is proposed: a step gives one token.
    #[default]
    Nobody,
    /// What followed the last tokens where they came before.
    Prompt,
    /// A smaller model with the same vocabulary: an IR folder with the networks of its tokenizer, and a device.
    Model { path: PathBuf, device: String },
}

/// What an answer must keep to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Grammar {
    JsonSchema(String),
    Regex(String),
    /// In the extended Backus-Naur form of the library.
    Ebnf(String),
}

/// How tokens are chosen and when to stop. At `temperature` 0 the likeliest is taken and the filters do nothing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sampling {
    pub(crate) max_tokens: usize,
    pub(crate) min_tokens: usize,
    pub(crate) temperature: f32,
    pub(crate) top_p: f32,
    /// 0: no limit.
    pub(crate) top_k: usize,
    pub(crate) min_p: f32,
    pub(crate) repetition_penalty: f32,
    pub(crate) frequency_penalty: f32,
    pub(crate) presence_penalty: f32,
    pub(crate) seed: u64,
    /// End of text; counts as a stop id unless `ignore_eos`. The model's own if none: a GGUF has one, a folder with
    /// nothing but a model has not and then refuses.
    pub(crate) eos: Option<u32>,
    /// These end a request even with `ignore_eos`.
    pub(crate) stop_ids: Vec<u32>,
    pub(crate) ignore_eos: bool,
    /// Compute each chosen token's log-probability: of the model's own distribution, before temperature and filters.
    pub(crate) logprobs: bool,
    /// Most proposed tokens in a step and, for [`Proposer::Prompt`], the longest match that is looked for.
    pub(crate) assistant: Option<(usize, usize)>,
    /// Needs a pipeline with a vocabulary, [`Pipeline::has_vocabulary`].
    pub(crate) grammar: Option<Grammar>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            max_tokens: 16,
            min_tokens: 0,
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: 0,
            eos: None,
            stop_ids: Vec::new(),
            ignore_eos: false,
            logprobs: false,
            assistant: None,
            grammar: None,
        }
    }
}

impl Sampling {
    fn entries(&self) -> Result<Vec<Entry>, Error> {
        let ends = self.ends();
        let mut all = vec![
            (c"max_new_tokens", Value::Size(self.max_tokens)),
            (c"min_new_tokens", Value::Size(if ends.ignored { 0 } else { self.min_tokens })),
            (c"do_sample", Value::Bool(self.temperature > 0.0)),
            (c"repetition_penalty", Value::Float(self.repetition_penalty)),
            (c"frequency_penalty", Value::Float(self.frequency_penalty)),
            (c"presence_penalty", Value::Float(self.presence_penalty)),
            (c"ignore_eos", Value::Bool(ends.ignored)),
            (c"logprobs", Value::Size(usize::from(self.logprobs))),
        ];
        if self.temperature > 0.0 {
            all.extend([
                (c"temperature", Value::Float(self.temperature)),
                (c"top_p", Value::Float(self.top_p)),
                (c"top_k", Value::Size(if self.top_k == 0 { usize::MAX } else { self.top_k })),
                (c"min_p", Value::Float(self.min_p)),
                (c"rng_seed", Value::Size(self.seed as usize)),
            ]);
        }
        if let Some(eos) = ends.eos {
            all.push((c"eos_token_id", Value::Int(eos)));
        }
        if !ends.stops.is_empty() {
            all.push((c"stop_token_ids", Value::Ids(ends.stops)));
        }
        if let Some((tokens, ngram)) = self.assistant {
            all.push((c"num_assistant_tokens", Value::Size(tokens)));
            if ngram > 0 {
                all.push((c"max_ngram_size", Value::Size(ngram)));
            }
        }
        if let Some(grammar) = &self.grammar {
            let (key, text) = match grammar {
                Grammar::JsonSchema(text) => (c"json_schema", text),
                Grammar::Regex(text) => (c"regex", text),
                Grammar::Ebnf(text) => (c"grammar", text),
            };
            all.push((key, Value::Grammar(c_string("grammar", text)?)));
        }
        Ok(all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// The library's `ignore_eos` ignores all stop ids, and it insists on an end of text even then.
    fn ends(&self) -> Ends {
        let mut stops: Vec<i64> = self.stop_ids.iter().copied().map(i64::from).collect();
        let eos = self.eos.map(i64::from);
        match (self.ignore_eos, stops.first()) {
            (true, None) => {
                let any = eos.unwrap_or(0);
                Ends { ignored: true, eos: Some(any), stops: vec![any] }
            }
            (true, Some(&first)) => Ends { ignored: false, eos: Some(first), stops },
            (false, _) => {
                stops.extend(eos);
                Ends { ignored: false, eos, stops }
            }
        }
    }
}

/// What the library is told of the ids that end a request.
struct Ends {
    ignored: bool,
    eos: Option<i64>,
    stops: Vec<i64>,
}

/// A model, open.
pub(crate) struct Pipeline {
    inner: ffi::Pipeline,
    // The library's name of the next request. Two alive with one name make every later step fail (measured), so
    // they are given here.
    next: u64,
}

impl Pipeline {
    /// Loads the model; takes seconds.
    ///
    /// # Errors
    /// What the library says of the path, the device or a property; or that the library's version is unknown.
    pub(crate) fn open(shim: &Arc<Shim>, options: &Options) -> Result<Self, Error> {
        let fault =
            |reason| Error::Open { model: options.model.clone(), device: options.device.clone(), reason };
        if !options.model.exists() {
            return Err(fault("no such file or folder".to_owned()));
        }
        writable_if_file(&options.model).map_err(fault)?;
        let mut properties: Vec<Entry> = Vec::new();
        let own = options.properties.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        for (key, value) in options.profile.properties().iter().copied().chain(own) {
            properties.push((c_string("property", key)?, Value::Text(c_string(key, value)?)));
        }
        // Later values win in the library's map; so look at the last.
        let precision =
            properties.iter().rev().find(|(key, _)| key.as_c_str() == c"INFERENCE_PRECISION_HINT");
        if options.device == "CPU"
            && precision.is_some_and(|(_, value)| *value == Value::Text(c"f16".to_owned()))
        {
            // 2026.4.1 on a Xeon with AMX: every run ended in a segmentation fault within its first requests.
            return Err(fault("f16 inference crashes OpenVINO's CPU device; use bf16 or f32".to_owned()));
        }
        if options.proposer == Proposer::Prompt {
            properties.push((c"prompt_lookup".to_owned(), Value::Bool(true)));
        }
        let (blocks, gigabytes) = match options.scheduler.cache {
            Cache::Grow => (0, 0),
            Cache::Blocks(blocks) => (blocks, 0),
            Cache::Gigabytes(gigabytes) => (0, gigabytes),
        };
        let scheduler = ffi::Scheduler {
            max_num_batched_tokens: options.scheduler.max_batched_tokens,
            num_kv_blocks: blocks,
            cache_size: gigabytes,
            max_num_seqs: options.scheduler.max_requests,
            dynamic_split_fuse: options.scheduler.split_prompts.into(),
            enable_prefix_caching: options.scheduler.prefix_caching.into(),
        };
        let path = c_path(&options.model)?;
        let device = c_string("device", &options.device)?;
        let draft = match &options.proposer {
            Proposer::Model { path, device } => Some((c_path(path)?, c_string("draft device", device)?)),
            Proposer::Nobody | Proposer::Prompt => None,
        };
        let draft = draft.as_ref().map(|(path, device)| (path.as_c_str(), device.as_c_str()));
        ffi::Pipeline::open(shim, &path, &device, &scheduler, &properties, draft, options.allow_untested)
            .map(|inner| Self { inner, next: 0 })
            .map_err(|text| fault(plain(&text)))
    }

    /// Queues a request; the next [`Self::step`] may begin it.
    ///
    /// # Errors
    /// When the settings contradict each other or the prompt is empty.
    pub(crate) fn add(&mut self, prompt: &[u32], sampling: &Sampling) -> Result<Request, Error> {
        if prompt.is_empty() {
            return Err(Error::Add { reason: "the prompt is empty".to_owned() });
        }
        let ids: Vec<i64> = prompt.iter().copied().map(i64::from).collect();
        let inner = self
            .inner
            .add(self.next, &ids, &sampling.entries()?)
            .map_err(|text| Error::Add { reason: plain(&text) })?;
        self.next += 1;
        Ok(Request { inner })
    }

    /// Whether it has a vocabulary, without which it keeps to no grammar.
    ///
    /// # Errors
    /// When the library throws.
    pub(crate) fn has_vocabulary(&mut self) -> Result<bool, Error> {
        self.inner.has_vocabulary().map_err(|text| Error::Step { reason: plain(&text) })
    }

    /// Runs one inference for all requests that fit.
    ///
    /// # Errors
    /// When the inference fails; no request will then go on.
    pub(crate) fn step(&mut self) -> Result<(), Error> {
        self.inner.step().map_err(|text| Error::Step { reason: plain(&text) })
    }

    /// Whether a step would do anything.
    ///
    /// # Errors
    /// When the library throws.
    #[cfg(test)]
    pub(crate) fn busy(&mut self) -> Result<bool, Error> {
        self.inner.busy().map_err(|text| Error::Step { reason: plain(&text) })
    }

    /// The library's numbers of the last step; costs nothing.
    ///
    /// # Errors
    /// When the library throws.
    pub(crate) fn metrics(&mut self) -> Result<Metrics, Error> {
        self.inner.metrics().map_err(|text| Error::Step { reason: plain(&text) })
    }
}

/// A request of a pipeline. Dropping it cancels it; it may outlive its pipeline and then gives nothing more.
pub(crate) struct Request {
    inner: ffi::Request,
}

impl Request {
    /// Appends the tokens that came since the last call; the stop id that ended a request is the last of them.
    ///
    /// # Errors
    /// When the library throws.
    pub(crate) fn poll(&mut self, into: &mut Vec<Token>) -> Result<Progress, Error> {
        // A step gives one token, or a few with prompt lookup: one call as a rule.
        let (mut ids, mut logprobs) = ([0; 16], [0.0; 16]);
        loop {
            let got = self
                .inner
                .poll(&mut ids, &mut logprobs)
                .map_err(|text| Error::Step { reason: plain(&text) })?;
            for (&id, &logprob) in ids.iter().zip(&logprobs).take(got.count) {
                into.push(Token { id: u32::try_from(id).map_err(|_| Error::Token { id })?, logprob });
            }
            if got.left == 0 {
                return Ok(progress(got.status, got.reason));
            }
        }
    }

    /// Ends it; the pipeline frees its part of the cache in the next step. No token comes after.
    ///
    /// # Errors
    /// When the library throws.
    pub(crate) fn cancel(&mut self) -> Result<(), Error> {
        self.inner.cancel().map_err(|text| Error::Step { reason: plain(&text) })
    }
}

/// A chosen token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Token {
    pub(crate) id: u32,
    /// 0 unless asked for.
    pub(crate) logprob: f32,
}

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Running,
    /// A stop id came, it is the last token.
    Stop,
    /// `max_tokens` came.
    Length,
    Cancelled,
    /// The cache is too small for it even alone.
    OutOfCache,
}

fn progress(status: i32, reason: i32) -> Progress {
    match (status, reason) {
        (0, _) => Progress::Running,
        (2, _) => Progress::OutOfCache,
        (3, _) => Progress::Cancelled,
        (_, 2) => Progress::Length,
        _ => Progress::Stop,
    }
}

/// The library's words without the source lines that it puts before them.
fn plain(text: &str) -> String {
    let noise = |line: &str| {
        line.ends_with(':') && (line.starts_with("Exception from ") || line.contains("' failed at "))
    };
    let lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !noise(line)).collect();
    if lines.is_empty() { text.trim().to_owned() } else { lines.join("; ") }
}

/// The library opens a GGUF for reading and writing, though it writes nothing, and fails without saying why.
fn writable_if_file(model: &Path) -> Result<(), String> {
    if !model.is_file() {
        return Ok(());
    }
    let opened = std::fs::OpenOptions::new().read(true).append(true).open(model);
    opened.map(drop).map_err(|error| {
        format!("OpenVINO opens a GGUF for writing ({error}); make it writable for this user or copy it")
    })
}

fn c_string(what: &str, text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::Nul { what: what.to_owned() })
}

fn c_path(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Error::Nul { what: "model".to_owned() })
}

/// Why the library did not do it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Error {
    Open {
        model: PathBuf,
        device: String,
        reason: String,
    },
    Add {
        reason: String,
    },
    Step {
        reason: String,
    },
    /// The library gave an id that is none.
    Token {
        id: i64,
    },
    /// C ends a text at its first zero byte.
    Nul {
        what: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { model, device, reason } => {
                write!(f, "open {} on {device}: {reason}", model.display())
            }
            Self::Add { reason } => write!(f, "OpenVINO GenAI refuses the request: {reason}"),
            Self::Step { reason } => write!(f, "OpenVINO GenAI failed: {reason}"),
            Self::Token { id } => write!(f, "OpenVINO GenAI gave token id {id}"),
            Self::Nul { what } => write!(f, "{what} has a zero byte in it"),
        }
    }
}

impl std::error::Error for Error {}
