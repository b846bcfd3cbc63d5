//! The engine's options, as `manifest.json` describes them.
//!
//! Holds: the defaults here and in the manifest are equal (a test reads both). The host checks types and ranges before;
//! what is checked again here serves hosts that do not.

use std::str::FromStr;

use cascadia_plugin_api::sdk::{Error, Result};

use crate::order::{Order, Raw};
use crate::relay::Manner;
use crate::script::Script;

/// The options of an engine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    pub(crate) device: String,
    pub(crate) slots: usize,
    pub(crate) max_waiting: usize,
    pub(crate) token_delay_ms: u64,
    pub(crate) token_delay_us: u64,
    pub(crate) prefill_delay_ms: u64,
    pub(crate) context_length: u64,
    pub(crate) prefix_cache: usize,
    pub(crate) kv_block_size: u64,
    pub(crate) kv_blocks: u64,
    pub(crate) repeat: u64,
    pub(crate) script: Option<Script>,
    pub(crate) order: Raw,
    pub(crate) features: String,
    pub(crate) accept_features: String,
    pub(crate) tokenizer: String,
    pub(crate) chat_template: String,
    pub(crate) load_delay_ms: u64,
    pub(crate) warmup_delay_ms: u64,
    pub(crate) close_delay_ms: u64,
    pub(crate) fail_load: String,
    pub(crate) fail_build: String,
    pub(crate) fail_warmup: String,
    pub(crate) relay: Manner,
    pub(crate) relay_timeout_ms: u64,
    pub(crate) self_link: bool,
    pub(crate) panic_in: String,
    pub(crate) stale_worker: bool,
    pub(crate) kv_events: usize,
    pub(crate) stage_window: usize,
    pub(crate) broken: String,
    pub(crate) devices: String,
    pub(crate) list_devices: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            device: "mock".into(),
            slots: 16,
            max_waiting: 256,
            token_delay_ms: 0,
            token_delay_us: 0,
            prefill_delay_ms: 0,
            context_length: 32_768,
            prefix_cache: 0,
            kv_block_size: 16,
            kv_blocks: 4096,
            repeat: 1,
            script: None,
            order: Raw::new(),
            features: String::new(),
            accept_features: String::new(),
            tokenizer: "bytes".into(),
            chat_template: String::new(),
            load_delay_ms: 0,
            warmup_delay_ms: 0,
            close_delay_ms: 0,
            fail_load: String::new(),
            fail_build: String::new(),
            fail_warmup: String::new(),
            relay: Manner::Right,
            relay_timeout_ms: 2000,
            self_link: false,
            panic_in: "none".into(),
            stale_worker: false,
            kv_events: 256,
            stage_window: 8,
            broken: "none".into(),
            devices: "CPU: a processor of the mock".into(),
            list_devices: false,
        }
    }
}

impl Options {
    /// The options from the pairs of `configure`.
    pub(crate) fn read(pairs: &[(&str, &str)]) -> Result<Options> {
        let mut options = Options::default();
        for (key, value) in pairs {
            options.set(key, value)?;
        }
        Ok(options)
    }

    /// Nanoseconds between two steps of the batch.
    pub(crate) fn pace_ns(&self) -> u64 {
        nanos(self.token_delay_ms).saturating_add(self.token_delay_us.saturating_mul(1000))
    }

    /// Whether an extension is to be broken in that way.
    pub(crate) fn breaks(&self, what: &str) -> bool {
        self.broken == what
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "device" => self.device = value.into(),
            "slots" => self.slots = at_least(1, key, value)?,
            "max-waiting" => self.max_waiting = number(key, value)?,
            "token-delay-ms" => self.token_delay_ms = number(key, value)?,
            "token-delay-us" => self.token_delay_us = number(key, value)?,
            "prefill-delay-ms" => self.prefill_delay_ms = number(key, value)?,
            "context-length" => self.context_length = at_least(1, key, value)?,
            "prefix-cache" => self.prefix_cache = number(key, value)?,
            "kv-block-size" => self.kv_block_size = at_least(1, key, value)?,
            "kv-blocks" => self.kv_blocks = number(key, value)?,
            "repeat" => self.repeat = number(key, value)?,
            "script" if value.is_empty() => self.script = None,
            "script" => self.script = Some(Script::parse(value).map_err(Error::config)?),
            "order" => self.order = Order::defaults(value)?,
            "features" => self.features = value.into(),
            "accept-features" => self.accept_features = value.into(),
            "tokenizer" => self.tokenizer = value.into(),
            "chat-template" => self.chat_template = value.into(),
            "load-delay-ms" => self.load_delay_ms = number(key, value)?,
            "warmup-delay-ms" => self.warmup_delay_ms = number(key, value)?,
            "close-delay-ms" => self.close_delay_ms = number(key, value)?,
            "fail-load" => self.fail_load = value.into(),
            "fail-build" => self.fail_build = value.into(),
            "fail-warmup" => self.fail_warmup = value.into(),
            "relay" => self.relay = Manner::read(value)?,
            "relay-timeout-ms" => self.relay_timeout_ms = at_least(1, key, value)?,
            "self-link" => self.self_link = flag(key, value)?,
            "panic-in" => self.panic_in = value.into(),
            "stale-worker" => self.stale_worker = flag(key, value)?,
            "kv-events" => self.kv_events = at_least(1, key, value)?,
            "stage-window" => self.stage_window = at_least(1, key, value)?,
            "break" => self.broken = value.into(),
            "devices" => self.devices = value.into(),
            "list-devices" => self.list_devices = flag(key, value)?,
            _ => return Err(Error::config(format!("the mock engine has no option {key}"))),
        }
        Ok(())
    }
}

/// Nanoseconds of these milliseconds.
pub(crate) fn nanos(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| Error::config(format!("option {key} is {value}; it takes a whole number")))
}

fn flag(key: &str, value: &str) -> Result<bool> {
    value.parse().map_err(|_| Error::config(format!("option {key} is {value}; it takes true or false")))
}

fn at_least<T: FromStr + PartialOrd + std::fmt::Display>(least: T, key: &str, value: &str) -> Result<T> {
    let n = number(key, value)?;
    if n < least {
        return Err(Error::config(format!("option {key} is {n}; it takes at least {least}")));
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn the_manifest_describes_exactly_these_options_and_defaults() {
        let manifest: Value = serde_json::from_str(include_str!("../manifest.json")).unwrap();
        let described = manifest["options"].as_object().unwrap();
        let texts: Vec<(String, String)> = described
            .iter()
            .map(|(key, schema)| {
                let default = &schema["default"];
                (key.clone(), default.as_str().map_or_else(|| default.to_string(), str::to_owned))
            })
            .collect();
        let pairs: Vec<_> = texts.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(Options::read(&pairs).unwrap(), Options::default());
        // Every field has an option: the fields are counted where they are printed.
        let fields = format!("{:#?}", Options::default()).lines().filter(|l| l.starts_with("    ")).count();
        assert_eq!(described.len(), fields);
    }

    #[test]
    fn a_mistake_names_the_option_and_its_value() {
        for (key, value, expected) in [
            ("slots", "0", "option slots is 0; it takes at least 1"),
            ("slots", "many", "option slots is many; it takes a whole number"),
            ("slotz", "1", "no option slotz"),
            ("script", "[1]", "script[0]"),
            ("order", r#"{"wole":true}"#, "unknown field `wole`"),
        ] {
            let error = Options::read(&[(key, value)]).unwrap_err();
            assert!(error.message.contains(expected), "{}", error.message);
        }
    }
}
