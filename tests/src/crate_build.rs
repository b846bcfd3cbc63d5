//! Builds a plugin crate that lies outside the workspace, as another author would.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{setup, sys};

/// A crate to build.
#[derive(Debug)]
pub struct Crate<'a> {
    /// Its name; the library is `lib` and the name with `_` for `-`.
    pub name: &'a str,
    /// `src/lib.rs`.
    pub source: &'a str,
    /// `manifest.json`.
    pub manifest: &'a str,
}

/// Builds it in `folder`, without the network; answers the library.
pub fn build(plugin: &Crate<'_>, folder: &Path) -> Result<PathBuf> {
    let api = setup::root().join("plugin-api");
    std::fs::create_dir_all(folder.join("src"))?;
    std::fs::write(folder.join("src/lib.rs"), plugin.source)?;
    std::fs::write(folder.join("manifest.json"), plugin.manifest)?;
    std::fs::write(folder.join("Cargo.toml"), cargo_toml(plugin.name, &api))?;
    // The versions that were fetched for the workspace; cargo drops from it what this crate does not need.
    std::fs::copy(setup::root().join("Cargo.lock"), folder.join("Cargo.lock")).context("copy Cargo.lock")?;
    // Kept between runs: only the crate itself is new each time.
    let target = setup::bin_dir().join("../tmp").join(plugin.name);
    let mut command = Command::new("cargo");
    command.args(["build", "--offline", "--quiet", "--manifest-path"]).arg(folder.join("Cargo.toml"));
    command.arg("--target-dir").arg(&target);
    // What a test runner of cargo hands down would change how this crate is built.
    for name in ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR", "CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
        command.env_remove(name);
    }
    sys::die_with_parent(&mut command);
    let output = command.output().context("cargo runs")?;
    ensure!(output.status.success(), "cargo build: {}", String::from_utf8_lossy(&output.stderr));
    let library = target.join("debug").join(format!("lib{}.so", plugin.name.replace('-', "_")));
    ensure!(library.is_file(), "{} was not built", library.display());
    Ok(library)
}

fn cargo_toml(name: &str, api: &Path) -> String {
    format!(
        r#"[package]
name = "{name}"
version = "7.8.9"
edition = "2024"

[lib]
crate-type = ["cdylib"]

[dependencies]
cascadia-plugin-api = {{ path = "{}" }}

[profile.dev]
debug = false

[workspace]
"#,
        api.display()
    )
}
