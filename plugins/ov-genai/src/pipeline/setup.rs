//! What a pipeline is opened with: the model, the device and what the library may use of the machine.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use cascadia_ov_base::profile::{PRECISION, Profile};

use super::fault::{Error, c_path, c_string};
use crate::ffi::value::{Entry, Value};

/// Properties of NPU that the library reads as numbers; text is refused there.
const NUMBERS: [&str; 2] = ["MAX_PROMPT_LEN", "MIN_RESPONSE_LEN"];

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

/// What every kind of pipeline is opened with, as the shim takes it.
pub(super) struct Opening {
    pub(super) path: CString,
    pub(super) device: CString,
    pub(super) properties: Vec<Entry>,
}

impl Options {
    /// The library's words for why it did not open.
    pub(super) fn fault(&self, mut reason: String) -> Error {
        if reason.contains("is not registered") {
            reason += "; `cascadia-host doctor` lists the devices of this machine";
        }
        Error::Open { model: self.model.clone(), device: self.device.clone(), reason }
    }

    /// # Errors
    /// The model is not there or not usable, or a property is known to crash the library.
    pub(super) fn opening(&self) -> Result<Opening, Error> {
        if !self.model.exists() {
            return Err(self.fault("no such file or folder".to_owned()));
        }
        writable_if_file(&self.model).map_err(|reason| self.fault(reason))?;
        if self.device == "CPU" && self.computes().as_deref() == Some("f16") {
            // 2026.4.1 on a Xeon with AMX: every run ended in a segmentation fault within its first requests.
            return Err(self.fault("f16 inference crashes OpenVINO's CPU device; use bf16 or f32".to_owned()));
        }
        let device = c_string("device", &self.device)?;
        Ok(Opening { path: c_path(&self.model)?, device, properties: self.properties()? })
    }

    /// What the device is told to compute in, if it is told: as in the library's map the last value counts.
    pub(crate) fn computes(&self) -> Option<String> {
        let profile = self.profile.chosen(&self.device, &self.model);
        let own = self.properties.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let mut told = profile.into_iter().chain(own).rev();
        told.find(|(key, _)| *key == PRECISION).map(|(_, value)| value.to_owned())
    }

    /// The profile's, then those that were given.
    pub(super) fn properties(&self) -> Result<Vec<Entry>, Error> {
        let own = self.properties.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let profile = self.profile.chosen(&self.device, &self.model);
        let all = profile.into_iter().chain(own);
        all.map(|(key, value)| {
            let number = value.parse().ok().filter(|_| NUMBERS.contains(&key)).map(Value::Int);
            let value = match number {
                Some(number) => number,
                None => Value::Text(c_string(key, value)?),
            };
            Ok((c_string("property", key)?, value))
        })
        .collect()
    }
}

/// The library opens a GGUF for reading and writing, though it writes nothing, and fails without saying why.
pub(super) fn writable_if_file(model: &Path) -> Result<(), String> {
    if !model.is_file() {
        return Ok(());
    }
    let opened = std::fs::OpenOptions::new().read(true).append(true).open(model);
    opened.map(drop).map_err(|error| {
        format!("OpenVINO opens a GGUF for writing ({error}); make it writable for this user or copy it")
    })
}
