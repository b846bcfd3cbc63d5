//! Where things lie: the repository, the target folder, and every path below it that more than one command names.
//!
//! Holds: paths are absolute. Nothing is created here.

use crate::pins::Pins;
use crate::proc;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

pub(crate) struct Place {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) pins: Pins,
    /// The version of the workspace, which every crate of it has.
    pub(crate) version: String,
}

impl Place {
    pub(crate) fn find() -> Result<Place> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = own.parent().context("xtask lies in the repository's root")?.to_owned();
        // Cargo knows about CARGO_TARGET_DIR and configuration files; asking is the only way to agree with it.
        let text = proc::output(proc::cargo(&root).args(["metadata", "--no-deps", "--format-version", "1"]))?;
        let said: serde_json::Value = serde_json::from_str(&text).context("read cargo metadata")?;
        let target = said["target_directory"].as_str().context("cargo metadata names a target_directory")?;
        let host =
            said["packages"].as_array().and_then(|all| all.iter().find(|one| one["name"] == "cascadia-host"));
        let version = host.and_then(|host| host["version"].as_str()).unwrap_or(env!("CARGO_PKG_VERSION"));
        let pins = Pins::read(&own.join("pins.toml"))?;
        Ok(Place { target: target.into(), version: version.to_owned(), root, pins })
    }

    /// The unpacked OpenVINO: `lib/`, `include/`, `licenses/`.
    pub(crate) fn openvino(&self) -> PathBuf {
        self.target.join("openvino").join(self.pins.openvino_version())
    }

    pub(crate) fn models(&self) -> PathBuf {
        self.target.join("models")
    }

    pub(crate) fn gguf(&self) -> PathBuf {
        self.models().join(self.pins.model_file())
    }

    /// Downloads and what is unpacked for tests only.
    pub(crate) fn fetched(&self) -> PathBuf {
        self.target.join("fetch")
    }

    /// Folder with `prometheus` and `promtool` once fetched.
    pub(crate) fn prometheus(&self) -> PathBuf {
        self.fetched().join("prometheus/usr/bin")
    }

    pub(crate) fn clients(&self) -> PathBuf {
        self.fetched().join("clients")
    }

    pub(crate) fn clients_python(&self) -> PathBuf {
        self.clients().join("bin/python")
    }

    /// Each plugin's folder, sorted.
    pub(crate) fn plugins(&self) -> Result<Vec<PathBuf>> {
        let folder = self.root.join("plugins");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
            let path = entry?.path();
            if path.join("Cargo.toml").is_file() {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }
}
