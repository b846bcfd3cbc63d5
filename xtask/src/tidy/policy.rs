//! What `tidy.toml` and `deny.toml` say, as data.
//!
//! Holds: an unknown key of `tidy.toml` is refused, so that a misspelt rule is not a rule that never fires.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Policy {
    pub(super) layers: Layers,
    #[serde(rename = "door")]
    pub(super) doors: Vec<Door>,
    pub(super) pure: Vec<Pure>,
    pub(super) crates: Vec<Uses>,
    pub(super) sizes: Sizes,
    pub(super) names: Refused,
    pub(super) words: Refused,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layers {
    pub(super) root: String,
    pub(super) order: Vec<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Door {
    pub(super) names: Vec<String>,
    pub(super) places: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pure {
    pub(super) modules: Vec<String>,
    pub(super) names: Vec<String>,
    #[serde(default)]
    pub(super) except: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Uses {
    pub(super) folder: String,
    pub(super) uses: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sizes {
    pub(super) warn: usize,
    pub(super) fail: usize,
    pub(super) docs: usize,
    #[serde(default)]
    pub(super) long: Vec<Long>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Long {
    pub(super) file: String,
    pub(super) reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refused {
    pub(super) refused: Vec<String>,
}

/// The part of `deny.toml` that we check ourselves.
#[derive(Deserialize)]
pub(super) struct Deny {
    pub(super) licenses: Licences,
    pub(super) bans: Bans,
    pub(super) sources: Sources,
}

#[derive(Deserialize)]
pub(super) struct Licences {
    pub(super) allow: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Bans {
    pub(super) skip: Vec<Skip>,
}

#[derive(Deserialize)]
pub(super) struct Skip {
    /// `name@version`
    #[serde(rename = "crate")]
    pub(super) spec: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Sources {
    pub(super) allow_registry: Vec<String>,
}

impl Policy {
    pub(super) fn read(path: &Path) -> Result<Policy> {
        read(path)
    }
}

impl Deny {
    pub(super) fn read(path: &Path) -> Result<Deny> {
        read(path)
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("in {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_policies_are_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let policy = Policy::read(&root.join("tidy.toml")).unwrap();
        assert_eq!(policy.layers.order.len(), 6);
        assert!(policy.sizes.long.iter().all(|long| !long.reason.is_empty()));
        assert!(!Deny::read(&root.join("deny.toml")).unwrap().licenses.allow.is_empty());
    }
}
