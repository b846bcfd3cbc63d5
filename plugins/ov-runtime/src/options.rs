//! The plugin's options, as the manifest declares them; the host has checked types and ranges and filled in defaults.

use std::path::{Path, PathBuf};

use cascadia_ov_base::options::{flag, number, properties};
use cascadia_ov_base::profile::{PRECISION, Profile};
use cascadia_ov_base::source::Keep;
use cascadia_plugin_api::sdk::{Error, Result};

use crate::memory::Cache;
use crate::worth::Policy;

/// Everything that can be set.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) device: String,
    pub(crate) profile: Profile,
    /// 0: the library's choice.
    pub(crate) threads: u32,
    /// Most generations in a step.
    pub(crate) sequences: usize,
    /// Most rows in a step.
    pub(crate) rows: usize,
    pub(crate) cache: Cache,
    pub(crate) prefix: bool,
    pub(crate) max_waiting: usize,
    /// Further device properties, over the profile's.
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) openvino_dir: Option<PathBuf>,
    pub(crate) allow_untested: bool,
    pub(crate) proposer: Proposer,
    /// Most guesses for a generation in a step, and who says how many of them are made.
    pub(crate) proposed: usize,
    pub(crate) policy: Policy,
    /// Compiled models, and the length that was asked for.
    pub(crate) keep: Keep,
}

/// Where guesses come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Proposer {
    None,
    /// The text so far; runs of at most so many tokens are looked for.
    Prompt(usize),
    /// A smaller model.
    Model(PathBuf),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            device: "CPU".to_owned(),
            profile: Profile::Default,
            threads: 0,
            sequences: 64,
            rows: 256,
            cache: Cache::Fitting,
            prefix: true,
            max_waiting: 256,
            properties: Vec::new(),
            openvino_dir: None,
            allow_untested: false,
            proposer: Proposer::None,
            proposed: 5,
            policy: Policy::Adaptive,
            keep: Keep { cache_dir: None, cache_limit: 100, context_length: 0, symmetric: false },
        }
    }
}

impl Options {
    /// Reads the host's pairs.
    pub(crate) fn read(pairs: &[(&str, &str)]) -> Result<Options> {
        let mut o = Options::default();
        let (mut blocks, mut gigabytes) = (0, 0);
        let (mut lookup, mut draft, mut ngram) = (false, None, 3);
        let folder = |value: &str| (!value.is_empty()).then(|| PathBuf::from(value));
        for (key, value) in pairs {
            match *key {
                "device" => o.device = device(value)?,
                "profile" => o.profile = Profile::read(value)?,
                "threads" => o.threads = number(key, value)?,
                "cb-max-num-seqs" => o.sequences = number(key, value)?,
                "cb-max-batched-tokens" => o.rows = number(key, value)?,
                "cb-cache-size" => gigabytes = number(key, value)?,
                "cb-num-kv-blocks" => blocks = number(key, value)?,
                "cb-prefix-caching" => o.prefix = flag(key, value)?,
                "max-waiting" => o.max_waiting = number(key, value)?,
                "context-length" => o.keep.context_length = number(key, value)?,
                "properties" => o.properties = properties(value)?,
                "openvino-dir" => o.openvino_dir = folder(value),
                "allow-untested" => o.allow_untested = flag(key, value)?,
                "cb-prompt-lookup" => lookup = flag(key, value)?,
                "draft-model" => draft = folder(value),
                "num-assistant-tokens" => o.proposed = number(key, value)?,
                "assistant-policy" => o.policy = policy(value)?,
                "max-ngram-size" => ngram = number(key, value)?,
                "cache-dir" => o.keep.cache_dir = folder(value),
                "cache-limit" => o.keep.cache_limit = number(key, value)?,
                other => return Err(Error::config(format!("option {other} is not known to this plugin"))),
            }
        }
        o.proposer = match (lookup, draft) {
            (false, None) => Proposer::None,
            (true, None) => Proposer::Prompt(ngram),
            (false, Some(path)) => Proposer::Model(path),
            _ => return Err(Error::config("cb-prompt-lookup and draft-model exclude each other; give one")),
        };
        o.keep.symmetric = o.profile.rounds();
        o.cache = match (blocks, gigabytes) {
            (0, 0) => Cache::Fitting,
            (0, gigabytes) => Cache::Gigabytes(gigabytes),
            (blocks, 0) => Cache::Blocks(blocks),
            _ => {
                return Err(Error::config("cb-cache-size and cb-num-kv-blocks exclude each other; give one"));
            }
        };
        if o.set(PRECISION) == Some("f16") {
            // 2026.4.1 on a Xeon with AMX: every run ended in a segmentation fault within its first requests.
            return Err(Error::config("f16 inference crashes OpenVINO's CPU device; use bf16 or f32"));
        }
        Ok(o)
    }

    /// All device properties for the network of a folder, later ones winning.
    pub(crate) fn device_properties(&self, folder: &Path) -> Vec<(String, String)> {
        let threads = (self.threads > 0).then(|| self.threads.to_string());
        let profile = self.profile.chosen(&self.device, folder).into_iter();
        let profile = profile.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let threads = threads.map(|n| ("INFERENCE_NUM_THREADS".to_owned(), n));
        profile.chain(threads).chain(self.properties.iter().cloned()).collect()
    }

    fn set(&self, key: &str) -> Option<&str> {
        self.properties.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

fn policy(value: &str) -> Result<Policy> {
    match value {
        "adaptive" => Ok(Policy::Adaptive),
        "always" => Ok(Policy::Always),
        _ => Err(Error::config(format!("assistant-policy is {value:?}; give adaptive or always"))),
    }
}

fn device(value: &str) -> Result<String> {
    if value != "CPU" {
        return Err(Error::config(format!(
            "device is {value:?}; this engine keeps its caches in the host's memory and runs on CPU, ov-genai on others"
        )));
    }
    Ok(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_options_and_contradictions_are_refused() {
        let read = |pairs: &[(&str, &str)]| Options::read(pairs);
        let pairs = [("profile", "exact"), ("threads", "3"), ("properties", "A=1; KV_CACHE_PRECISION = u8;")];
        let properties = read(&pairs).expect("valid").device_properties(Path::new(""));
        let last = |key: &str| properties.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        assert_eq!(last("INFERENCE_PRECISION_HINT"), Some("f32"));
        assert_eq!(last("INFERENCE_NUM_THREADS"), Some("3"));
        assert_eq!(last("KV_CACHE_PRECISION"), Some("u8"), "one's own win over the profile's");
        assert!(read(&[("profile", "fast")]).expect("valid").keep.symmetric);
        assert!(!read(&pairs).expect("valid").keep.symmetric);
        assert_eq!(read(&[("num-assistant-tokens", "2")]).expect("valid").proposer, Proposer::None);
        let looked =
            [("num-assistant-tokens", "2"), ("cb-prompt-lookup", "true"), ("assistant-policy", "always")];
        let looked = read(&looked).expect("valid");
        assert_eq!(
            (looked.proposer, looked.proposed, looked.policy),
            (Proposer::Prompt(3), 2, Policy::Always)
        );
        let drafted = read(&[("draft-model", "small.gguf")]).expect("valid").proposer;
        assert_eq!(drafted, Proposer::Model("small.gguf".into()));
        assert_eq!(read(&[("cb-num-kv-blocks", "64")]).expect("valid").cache, Cache::Blocks(64));
        for bad in [
            vec![("cb-cache-size", "1"), ("cb-num-kv-blocks", "1")],
            vec![("properties", "INFERENCE_PRECISION_HINT=f16")],
            vec![("cb-max-num-seqs", "many")],
            vec![("device", "GPU")],
            vec![("cb-prompt-lookup", "true"), ("draft-model", "small.gguf")],
            vec![("assistant-policy", "never")],
            vec![("profile", "slow")],
            vec![("colour", "red")],
        ] {
            assert!(read(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_manifest_declares_exactly_the_options_that_are_read() {
        let manifest: serde_json::Value =
            serde_json::from_str(include_str!("../manifest.json")).expect("JSON");
        let declared = manifest["options"].as_object().expect("options");
        for (key, spec) in declared {
            let default = match &spec["default"] {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let read = Options::read(&[(key.as_str(), default.as_str())]).expect(key);
            assert_eq!(format!("{read:?}"), format!("{:?}", Options::default()), "the default of {key}");
        }
        assert_eq!(declared.len(), 20);
    }
}
