//! What `cargo xtask bench peers` and `bench engines` compare with, an environment for each: they want different versions of
//! the same packages. Only those benches fetch them, neither builds nor tests do.
//!
//! Holds: every package is in `xtask/peers/NAME.txt` with its version and hashes, and pip takes no other. One that cannot
//! be installed keeps none of the others out.

use super::venv;
use crate::place::Place;
use crate::proc;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The servers, for `bench peers`.
pub(crate) const SERVERS: &[&str] = &["llama.cpp", "dynamo", "smg", "sglang-router"];
/// What computes, for `bench engines`.
pub(crate) const ENGINES: &[&str] = &["openvino", "llama.cpp"];

/// Each of these by name, with its interpreter or the reason why there is none.
pub(crate) fn peers(
    place: &Place,
    names: &'static [&'static str],
) -> Result<Vec<(&'static str, Result<PathBuf>)>> {
    let _lock = super::lock(&place.fetched())?;
    Ok(names.iter().map(|name| (*name, peer(place, name))).collect())
}

fn peer(place: &Place, name: &str) -> Result<PathBuf> {
    let list = list(&place.root.join("xtask"), name);
    let wanted = std::fs::read_to_string(&list).with_context(|| format!("read {}", list.display()))?;
    let home = place.fetched().join("peers").join(name);
    if !venv::is_there(&home, &wanted) {
        eprintln!("make a Python environment with {name}");
        venv::empty(&home)?;
        let mut command = venv::install(&home);
        let (status, lines) = proc::tee(command.args(["--require-hashes", "-r"]).arg(&list))?;
        if !status.success() {
            let said = lines.iter().rev().find(|line| line.starts_with("ERROR"));
            bail!("pip ended with {status}: {}", said.map_or("it gave no reason", |line| line.as_str()));
        }
        venv::seal(&home, &wanted)?;
    }
    Ok(venv::python(&home))
}

fn list(xtask: &Path, name: &str) -> PathBuf {
    xtask.join("peers").join(name).with_added_extension("txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_in_process_has_the_plugins_version() {
        let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(list(xtask, "openvino")).unwrap();
        for wheel in crate::pins::Pins::read(&xtask.join("pins.toml")).unwrap().openvino() {
            let pin = format!("{}=={} ", wheel.name, wheel.version);
            assert!(text.contains(&pin), "xtask/peers/openvino.txt lacks {pin}");
        }
    }

    #[test]
    fn every_package_of_a_peer_has_one_version_and_hashes() {
        for name in SERVERS.iter().chain(ENGINES) {
            let text = std::fs::read_to_string(list(Path::new(env!("CARGO_MANIFEST_DIR")), name)).unwrap();
            let text = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
            let packages: Vec<String> = text.replace("\\\n", " ").lines().map(str::to_owned).collect();
            assert!(!packages.is_empty(), "{name}");
            for package in packages {
                let (pin, hashes) = package.split_once(" ").unwrap();
                assert!(pin.contains("=="), "{name}: {package}");
                let whole =
                    |hash: &str| hash.strip_prefix("--hash=sha256:").is_some_and(|hex| hex.len() == 64);
                assert!(hashes.split_whitespace().all(whole), "{name}: {package}");
            }
        }
    }
}
