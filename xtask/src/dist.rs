//! Packs what a machine without any of our tools needs: a folder that runs where it lies, and a tarball of it.
//!
//! Holds: the folder has real files only, no links, and modes that do not depend on our umask; it appears whole.

use crate::compile::{self, Profile};
use crate::place::Place;
use crate::proc;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Runtime {
    Packed,
    Left,
}

const DOCUMENTS: [&str; 5] = ["README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md"];

pub(crate) fn pack(place: &Place, runtime: Runtime) -> Result<()> {
    compile::all(place, Profile::Dist)?;
    let built = Profile::Dist.folder(place);
    let name = format!("cascadia-host-{}-linux-x86_64", place.version);
    let part = built.join(format!("{name}.part"));
    remove(&part)?;

    copy(&built.join("cascadia-host"), &part.join("cascadia-host"), 0o755)?;
    for library in libraries(place)? {
        copy(&built.join(&library), &part.join(&library), 0o644)?;
    }
    for document in DOCUMENTS {
        if place.root.join(document).is_file() {
            copy(&place.root.join(document), &part.join(document), 0o644)?;
        }
    }
    tree(&place.root.join("docs"), &part.join("docs"))?;
    tree(&place.root.join("dist"), &part.join("dist"))?;
    // Notes for the next release, not for a reader of this one.
    remove(&part.join("docs/changelog.d"))?;
    if runtime == Runtime::Packed {
        tree(&place.openvino().join("lib"), &part.join("openvino/lib"))?;
        tree(&place.openvino().join("licenses"), &part.join("openvino/licenses"))?;
    }
    let home = built.join(&name);
    remove(&home)?;
    fs::rename(&part, &home).with_context(|| format!("rename {}", part.display()))?;
    let tarball = tarball(&built, &name)?;
    report(&home, &tarball)
}

/// What stands beside the host: each plugin, and its shim where it has one.
fn libraries(place: &Place) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for plugin in place.plugins()? {
        let name =
            plugin.file_name().context("a plugin has a folder name")?.to_string_lossy().replace('-', "_");
        if plugin.join("shim/shim.cpp").is_file() {
            all.push(format!("lib{name}_shim.so"));
        }
        all.push(format!("lib{name}.so"));
    }
    Ok(all)
}

fn tarball(folder: &Path, name: &str) -> Result<PathBuf> {
    let file = format!("{name}.tar.gz");
    let part = format!("{file}.part");
    eprintln!("pack {file}");
    proc::run(Command::new("tar").current_dir(folder).args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "-czf",
        &part,
        name,
    ]))?;
    fs::rename(folder.join(&part), folder.join(&file)).with_context(|| format!("rename {part}"))?;
    let hash = proc::output(Command::new("sha256sum").current_dir(folder).args(["--", &file]))?;
    let sums = folder.join(format!("{file}.sha256"));
    fs::write(&sums, hash).with_context(|| format!("write {}", sums.display()))?;
    Ok(folder.join(file))
}

fn report(home: &Path, tarball: &Path) -> Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(home).with_context(|| format!("read {}", home.display()))? {
        let path = entry?.path();
        entries.push((size(&path)?, path.file_name().unwrap_or_default().display().to_string()));
    }
    entries.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    for (size, name) in entries {
        println!("{:>8.1} MiB  {name}", mib(size));
    }
    println!("{:>8.1} MiB  {}", mib(size(home)?), home.display());
    println!("{:>8.1} MiB  {} (and .sha256)", mib(size(tarball)?), tarball.display());
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "one decimal of a mebibyte is shown")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

fn size(path: &Path) -> Result<u64> {
    let meta = fs::metadata(path).with_context(|| format!("look at {}", path.display()))?;
    if !meta.is_dir() {
        return Ok(meta.len());
    }
    let mut sum = 0;
    for entry in fs::read_dir(path).with_context(|| format!("read {}", path.display()))? {
        sum += size(&entry?.path())?;
    }
    Ok(sum)
}

fn tree(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let path = entry?.path();
        let to = to.join(path.file_name().context("an entry has a name")?);
        if path.is_dir() { tree(&path, &to)? } else { copy(&path, &to, 0o644)? }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    ensure!(from.is_file(), "{} was not built; dist needs it", from.display());
    let folder = to.parent().context("a file has a folder")?;
    make(folder)?;
    fs::copy(from, to).with_context(|| format!("copy {} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))
        .with_context(|| format!("set mode of {}", to.display()))
}

fn make(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make(above)?;
    }
    fs::create_dir(folder).with_context(|| format!("make {}", folder.display()))?;
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder, open).with_context(|| format!("set mode of {}", folder.display()))
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_real_files_with_fixed_modes() {
        let home = std::env::temp_dir().join(format!("xtask-dist-{}", std::process::id()));
        remove(&home).unwrap();
        make(&home.join("from/sub")).unwrap();
        fs::write(home.join("from/sub/a"), "abc").unwrap();
        std::os::unix::fs::symlink("sub/a", home.join("from/b")).unwrap();
        tree(&home.join("from"), &home.join("to")).unwrap();
        let b = fs::symlink_metadata(home.join("to/b")).unwrap();
        assert!(b.is_file());
        assert_eq!(b.permissions().mode() & 0o777, 0o644);
        assert_eq!(size(&home.join("to")).unwrap(), 6);
        let said = copy(&home.join("none"), &home.join("x"), 0o644).unwrap_err().to_string();
        assert!(said.contains("was not built"), "{said}");
        remove(&home).unwrap();
    }
}
