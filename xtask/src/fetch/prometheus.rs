//! Prometheus and promtool from the distribution's package, unpacked without installing it.
//!
//! Holds: the folder appears whole by one rename. Where the system has no apt, what is on PATH serves; else we say
//! what to install.

use super::{fresh, rename};
use crate::place::Place;
use crate::proc;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

const TOOLS: [&str; 2] = ["prometheus", "promtool"];

pub(super) fn is_there(place: &Place) -> bool {
    has_tools(&folder(place))
}

/// The fetched folder, or the one on PATH that has both tools.
pub(crate) fn folder(place: &Place) -> PathBuf {
    let own = place.prometheus();
    if has_tools(&own) || proc::works(Command::new("apt-get").arg("--version")) {
        return own;
    }
    let path = proc::environment("PATH").unwrap_or_default();
    std::env::split_paths(&path).find(|folder| has_tools(folder)).unwrap_or(own)
}

fn has_tools(folder: &Path) -> bool {
    TOOLS.iter().all(|tool| folder.join(tool).is_file())
}

pub(super) fn fetch(place: &Place) -> Result<()> {
    if !proc::works(Command::new("apt-get").arg("--version"))
        || !proc::works(Command::new("dpkg").arg("--version"))
    {
        bail!(
            "no apt-get and dpkg here to fetch it with; install prometheus and promtool so that both are on PATH"
        );
    }
    eprintln!("download prometheus (package of the distribution)");
    let part = place.fetched().join("prometheus.part");
    fresh(&part)?;
    if let Err(first) = download(&part) {
        ensure!(is_root(), "{first}; the package lists may be missing: sudo apt-get update, then try again");
        eprintln!("the package lists are missing or old; updating them");
        proc::run(Command::new("apt-get").args(["-q", "update"]))?;
        download(&part)?;
    }
    let package = std::fs::read_dir(&part)
        .with_context(|| format!("read {}", part.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .context("apt-get left no package; install prometheus yourself")?;
    let root = part.join("root");
    proc::run(Command::new("dpkg").arg("-x").arg(package).arg(&root))?;
    ensure!(has_tools(&root.join("usr/bin")), "the package has no prometheus and promtool in usr/bin");
    let home = place.fetched().join("prometheus");
    fresh(&home)?;
    rename(&root, &home)?;
    std::fs::remove_dir_all(&part).with_context(|| format!("remove {}", part.display()))
}

fn download(into: &Path) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(["-q", "download", "prometheus"]).current_dir(into);
    if is_root() {
        // Else apt tries to write as its own user and warns about the folder.
        command.args(["-o", "APT::Sandbox::User=root"]);
    }
    proc::run(&mut command)
}

fn is_root() -> bool {
    proc::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}
