//! Builds a plugin crate that lies outside the workspace, as another author would.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

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
    /// The crate of the boundary, where it is not this repository's.
    pub api: Option<&'a Path>,
}

/// Builds it in `folder`, without the network; answers the library.
pub fn build(plugin: &Crate<'_>, folder: &Path) -> Result<PathBuf> {
    write(plugin, folder)?;
    cargo(&["build"], folder, &target())?;
    library(plugin)
}

/// The same with another compiler; none where it is not installed.
pub fn build_by(toolchain: &str, plugin: &Crate<'_>, folder: &Path) -> Result<Option<PathBuf>> {
    let mut asked = Command::new("rustup");
    if !asked.args(["run", toolchain, "rustc", "-V"]).output().is_ok_and(|o| o.status.success()) {
        return Ok(None);
    }
    write(plugin, folder)?;
    cargo(&[&format!("+{toolchain}"), "build"], folder, &target())?;
    library(plugin).map(Some)
}

/// Why it does not compile with panics that abort.
pub fn why_not_abort(plugin: &Crate<'_>, folder: &Path) -> Result<String> {
    write(plugin, folder)?;
    match cargo(&["check", "--config", "profile.dev.panic='abort'"], folder, &target()) {
        Ok(()) => bail!("it compiles"),
        Err(why) => Ok(why.to_string()),
    }
}

fn library(plugin: &Crate<'_>) -> Result<PathBuf> {
    let library = target().join("debug").join(format!("lib{}.so", plugin.name.replace('-', "_")));
    ensure!(library.is_file(), "{} was not built", library.display());
    Ok(library)
}

/// Writes its sources.
fn write(plugin: &Crate<'_>, folder: &Path) -> Result<()> {
    let own = setup::root().join("plugin-api");
    let api = plugin.api.unwrap_or(&own);
    std::fs::create_dir_all(folder.join("src"))?;
    std::fs::write(folder.join("src/lib.rs"), plugin.source)?;
    std::fs::write(folder.join("manifest.json"), plugin.manifest)?;
    std::fs::write(folder.join("Cargo.toml"), cargo_toml(plugin.name, api))?;
    // The versions that were fetched for the workspace; cargo drops from it what this crate does not need.
    std::fs::copy(setup::root().join("Cargo.lock"), folder.join("Cargo.lock")).context("copy Cargo.lock")?;
    Ok(())
}

/// Where all of them are built. Kept between runs, and one for all: what they depend on is built once.
pub fn target() -> PathBuf {
    setup::bin_dir().join("../tmp/crates")
}

/// Runs cargo on the crate in `folder`, without the network; what it builds goes to `target`.
pub fn cargo(args: &[&str], folder: &Path, target: &Path) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(args).args(["--offline", "--quiet", "--manifest-path"]).arg(folder.join("Cargo.toml"));
    command.arg("--target-dir").arg(target);
    // What a test runner of cargo hands down would change how this crate is built.
    for name in ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR", "CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
        command.env_remove(name);
    }
    // For a project whose own test runs the host.
    command.env("CASCADIA_HOST", setup::host_program());
    sys::die_with_parent(&mut command);
    let output = command.output().context("cargo runs")?;
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    ensure!(output.status.success(), "cargo {}: {said}", args.join(" "));
    Ok(())
}

/// Keeps other processes from building the crate of that name, until it is dropped.
pub fn alone(name: &str) -> Result<std::fs::File> {
    std::fs::create_dir_all(target())?;
    let file = std::fs::File::create(target().join(format!("{name}.lock")))?;
    file.lock().with_context(|| format!("lock {name}"))?;
    Ok(file)
}

/// A copy of the boundary's crate in which one text of one source is another; `abi.lock` stays, so that the hashes of the
/// tables say what the layout does not keep.
pub fn edited_api(name: &str, file: &str, from: &str, to: &str) -> Result<PathBuf> {
    let (original, copy) = (setup::root().join("plugin-api"), target().join("api").join(name));
    copy_sources(&original, &copy, "src")?;
    for own in ["abi.lock", "abi.frozen"] {
        std::fs::copy(original.join(own), copy.join(own)).with_context(|| format!("copy {own}"))?;
    }
    let source = std::fs::read_to_string(original.join(file))?;
    ensure!(source.matches(from).count() == 1, "{file} has {from:?} other than once");
    std::fs::write(copy.join(file), source.replace(from, to))?;
    std::fs::write(copy.join("Cargo.toml"), API_TOML)?;
    Ok(copy)
}

fn copy_sources(from: &Path, to: &Path, below: &str) -> Result<()> {
    std::fs::create_dir_all(to.join(below))?;
    for entry in std::fs::read_dir(from.join(below))? {
        let path = format!("{below}/{}", entry?.file_name().to_string_lossy());
        if from.join(&path).is_dir() {
            copy_sources(from, to, &path)?;
        } else {
            std::fs::copy(from.join(&path), to.join(&path))?;
        }
    }
    Ok(())
}

/// The boundary's manifest without what it takes from the workspace.
const API_TOML: &str = r#"[package]
name = "cascadia-plugin-api"
version = "0.1.0"
edition = "2024"

[features]
default = ["proof"]
proof = ["dep:abi_stable"]

[dependencies]
abi_stable = { version = "0.11.3", default-features = false, optional = true }
"#;

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
