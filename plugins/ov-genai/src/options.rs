//! The plugin's options, as the manifest declares them; the host has checked types and ranges and filled in defaults.

use std::path::PathBuf;

use cascadia_plugin_api::sdk::{Error, Result};

use cascadia_ov_base::options::{flag, number, properties};
use cascadia_ov_base::profile::Profile;
use cascadia_ov_base::source::Loader;

use crate::folder;
use crate::pipeline::setup::{Cache, Proposer, Scheduler};
use crate::way::{self, Wish};

/// Everything that can be set.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) device: String,
    pub(crate) profile: Profile,
    /// Many generations at once; otherwise one after the other.
    pub(crate) cb: bool,
    /// How a model is served.
    pub(crate) attention: Wish,
    /// How a model that embeds makes its vectors.
    pub(crate) pooling: folder::Wish,
    pub(crate) scheduler: Scheduler,
    pub(crate) max_waiting: usize,
    /// 0: what the model's files say.
    pub(crate) context_length: u32,
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) openvino_dir: Option<PathBuf>,
    pub(crate) allow_untested: bool,
    /// Say which devices there are before the model is loaded.
    pub(crate) list_devices: bool,
    /// Who reads GGUF files.
    pub(crate) gguf_loader: Loader,
    /// Where compiled models are kept; the user's own cache folder where none.
    pub(crate) cache_dir: Option<PathBuf>,
    /// GB that they may have together; 0: no bound.
    pub(crate) cache_limit: u64,
    /// Where proposed tokens come from.
    pub(crate) proposer: Proposer,
    /// Most proposed tokens in a step.
    pub(crate) proposed: usize,
    /// Longest run of tokens that is looked for in the text so far.
    pub(crate) ngram: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            device: "CPU".to_owned(),
            profile: Profile::Default,
            cb: false,
            attention: Wish::Auto,
            pooling: folder::Wish::Auto,
            scheduler: Scheduler { max_requests: 64, ..Scheduler::default() },
            max_waiting: 256,
            context_length: 0,
            properties: Vec::new(),
            openvino_dir: None,
            allow_untested: false,
            list_devices: false,
            gguf_loader: Loader::Own,
            cache_dir: None,
            cache_limit: 100,
            proposer: Proposer::Nobody,
            proposed: 5,
            ngram: 3,
        }
    }
}

impl Options {
    /// Longest prompt, and prompt and answer together, that NPU is compiled for; none for other devices.
    pub(crate) fn npu_window(&self) -> Option<(usize, u64)> {
        if !way::is_npu(&self.device) {
            return None;
        }
        let given = |key: &str, otherwise: u64| {
            let last = self.properties.iter().rev().find(|(name, _)| name == key);
            last.and_then(|(_, value)| value.parse().ok()).unwrap_or(otherwise)
        };
        // The library's own where nothing is given.
        let (prompt, answer) = (given("MAX_PROMPT_LEN", 1024), given("MIN_RESPONSE_LEN", 128));
        Some((usize::try_from(prompt).unwrap_or(usize::MAX), prompt.saturating_add(answer)))
    }

    /// Reads the host's pairs.
    pub(crate) fn read(pairs: &[(&str, &str)]) -> Result<Options> {
        let mut o = Options::default();
        let (mut blocks, mut gigabytes) = (0, 0);
        let (mut lookup, mut draft, mut draft_device) = (false, "", "");
        for (key, value) in pairs {
            match *key {
                "device" => o.device = (*value).to_owned(),
                "profile" => o.profile = Profile::read(value)?,
                "attention" => o.attention = Wish::read(value)?,
                "pooling" => o.pooling = folder::Wish::read(value)?,
                "cb" => o.cb = flag(key, value)?,
                "cb-max-num-seqs" => o.scheduler.max_requests = number(key, value)?,
                "cb-max-batched-tokens" => o.scheduler.max_batched_tokens = number(key, value)?,
                "cb-cache-size" => gigabytes = number(key, value)?,
                "cb-num-kv-blocks" => blocks = number(key, value)?,
                "cb-dynamic-split-fuse" => o.scheduler.split_prompts = flag(key, value)?,
                "cb-prefix-caching" => o.scheduler.prefix_caching = flag(key, value)?,
                "max-waiting" => o.max_waiting = number(key, value)?,
                "context-length" => o.context_length = number(key, value)?,
                "properties" => o.properties = properties(value)?,
                "openvino-dir" => o.openvino_dir = (!value.is_empty()).then(|| PathBuf::from(value)),
                "allow-untested" => o.allow_untested = flag(key, value)?,
                "list-devices" => o.list_devices = flag(key, value)?,
                "gguf-loader" => o.gguf_loader = loader(value)?,
                "cache-dir" => o.cache_dir = (!value.is_empty()).then(|| PathBuf::from(value)),
                "cache-limit" => o.cache_limit = number(key, value)?,
                "cb-prompt-lookup" => lookup = flag(key, value)?,
                "draft-model" => draft = value,
                "draft-device" => draft_device = value,
                "num-assistant-tokens" => o.proposed = number(key, value)?,
                "max-ngram-size" => o.ngram = number(key, value)?,
                other => return Err(Error::config(format!("option {other} is not known to this plugin"))),
            }
        }
        o.scheduler.cache = match (blocks, gigabytes) {
            (0, 0) => Cache::Grow,
            (0, gigabytes) => Cache::Gigabytes(gigabytes),
            (blocks, 0) => Cache::Blocks(blocks),
            _ => {
                return Err(Error::config("cb-cache-size and cb-num-kv-blocks exclude each other; give one"));
            }
        };
        o.proposer = match (lookup, draft) {
            (false, "") => Proposer::Nobody,
            (true, "") => Proposer::Prompt,
            (false, path) => Proposer::Model {
                path: PathBuf::from(path),
                device: if draft_device.is_empty() { o.device.clone() } else { draft_device.to_owned() },
            },
            _ => return Err(Error::config("cb-prompt-lookup and draft-model exclude each other; give one")),
        };
        Ok(o)
    }
}

fn loader(value: &str) -> Result<Loader> {
    match value {
        "own" => Ok(Loader::Own),
        "library" => Ok(Loader::Library),
        other => Err(Error::config(format!("gguf-loader {other:?} is none of own, library"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_options_and_contradictions_are_refused() {
        let read = |pairs: &[(&str, &str)]| Options::read(pairs);
        let o = read(&[("cb", "true"), ("cb-num-kv-blocks", "64"), ("properties", "A=1; B = x ;")])
            .expect("valid");
        assert!(o.cb);
        assert_eq!(o.scheduler.cache, Cache::Blocks(64));
        assert_eq!(o.properties, [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "x".to_owned())]);
        for bad in [
            vec![("cb-cache-size", "1"), ("cb-num-kv-blocks", "1")],
            vec![("properties", "A")],
            vec![("cb-max-num-seqs", "many")],
            vec![("colour", "red")],
            vec![("cb-prompt-lookup", "true"), ("draft-model", "small")],
        ] {
            assert!(read(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn npu_has_the_window_that_it_is_compiled_for() {
        let window = |device, properties| {
            Options::read(&[("device", device), ("properties", properties)]).expect("valid").npu_window()
        };
        assert_eq!(window("CPU", "MAX_PROMPT_LEN=9"), None);
        assert_eq!(window("NPU", ""), Some((1024, 1152)));
        assert_eq!(window("AUTO:NPU,CPU", "MAX_PROMPT_LEN=2048;MIN_RESPONSE_LEN=52"), Some((2048, 2100)));
    }

    #[test]
    fn a_draft_model_runs_where_the_model_does_unless_told_otherwise() {
        let read = |pairs: &[(&str, &str)]| Options::read(pairs).expect("valid").proposer;
        let drafted = |device: &str| Proposer::Model { path: "small".into(), device: device.to_owned() };
        assert_eq!(read(&[("draft-model", "small"), ("device", "GPU.1")]), drafted("GPU.1"));
        assert_eq!(read(&[("draft-device", "NPU"), ("draft-model", "small")]), drafted("NPU"));
        assert_eq!(read(&[("cb-prompt-lookup", "true")]), Proposer::Prompt);
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
        assert_eq!(declared.len(), 25);
    }
}
