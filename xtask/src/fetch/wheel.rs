//! One pinned wheel: downloaded by pip, kept under `fetch/wheels`.
//!
//! Holds: a file under its final name has the pinned hash at the moment of its use.

use super::{fresh, rename};
use crate::pins::{Tags, Wheel};
use crate::proc;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of the wheel in `folder`; downloads it if it is not there or not as pinned.
pub(super) fn get(folder: &Path, tags: &Tags, wheel: &Wheel) -> Result<PathBuf> {
    let kept = folder.join(&wheel.file);
    if kept.is_file() && sha256(&kept)? == wheel.sha256 {
        return Ok(kept);
    }
    eprintln!("download {} {} ({} MiB)", wheel.name, wheel.version, wheel.mib);
    need_pip()?;
    let part = folder.join(format!("{}.part", wheel.name));
    fresh(&part)?;
    let list = part.join("requirements.txt");
    std::fs::write(&list, format!("{}=={} --hash=sha256:{}\n", wheel.name, wheel.version, wheel.sha256))
        .with_context(|| format!("write {}", list.display()))?;
    proc::run(
        Command::new("python3")
            .args(["-m", "pip", "download", "--disable-pip-version-check", "--progress-bar", "on"])
            .args(["--no-deps", "--only-binary", ":all:", "--require-hashes"])
            .args(["--python-version", &tags.python, "--platform", &tags.platform, "--platform", "any"])
            .arg("-r")
            .arg(&list)
            .arg("-d")
            .arg(&part),
    )?;
    let got = part.join(&wheel.file);
    ensure!(got.is_file(), "pip brought no {}; correct the pin in xtask/pins.toml", wheel.file);
    let hash = sha256(&got)?;
    ensure!(hash == wheel.sha256, "{} has sha256 {hash}, xtask/pins.toml says {}", wheel.file, wheel.sha256);
    rename(&got, &kept)?;
    std::fs::remove_dir_all(&part).with_context(|| format!("remove {}", part.display()))?;
    Ok(kept)
}

pub(super) fn need_pip() -> Result<()> {
    if proc::works(Command::new("python3").args(["-m", "pip", "--version"])) {
        return Ok(());
    }
    bail!(
        "python3 with pip is not installed; on Debian or Ubuntu: apt-get install python3 python3-pip python3-venv"
    )
}

pub(crate) fn sha256(path: &Path) -> Result<String> {
    let line = proc::output(Command::new("sha256sum").arg("--").arg(path))?;
    // A name with a backslash is escaped, which sha256sum marks with one before the hash.
    let hash = line.trim_start_matches('\\').split_whitespace().next().unwrap_or_default();
    Ok(hash.to_owned())
}
