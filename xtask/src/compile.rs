//! Builds the host and the plugins with cargo, and the plugins' C++ shims with g++.
//!
//! Holds: after `all` the folder of a profile runs by itself: host, plugins and shims side by side, and a link
//! `openvino` to the runtime. A shim is compiled again only when its sources, flags or compiler changed.

use crate::fetch::{self, Artefact};
use crate::place::Place;
use crate::proc;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Profile {
    Dev,
    Release,
    Dist,
}

impl Profile {
    pub(crate) fn folder(self, place: &Place) -> PathBuf {
        place.target.join(match self {
            Profile::Dev => "debug",
            Profile::Release => "release",
            Profile::Dist => "dist",
        })
    }

    fn name(self) -> &'static str {
        match self {
            Profile::Dev => "dev",
            Profile::Release => "release",
            Profile::Dist => "dist",
        }
    }
}

pub(crate) fn all(place: &Place, profile: Profile) -> Result<()> {
    fetch::need(place, &[Artefact::Openvino])?;
    host(place, profile)?;
    for plugin in place.plugins()? {
        let source = plugin.join("shim/shim.cpp");
        if source.is_file() {
            let made = shim(place, &plugin, &Runtime::pinned(place))?;
            lay(&made, &profile.folder(place))?;
        }
    }
    link_runtime(place, profile)
}

/// Everything that cargo builds: the whole workspace but this tool, so that later test builds reuse it.
pub(crate) fn host(place: &Place, profile: Profile) -> Result<()> {
    let mut command = proc::cargo(&place.root);
    command.args(["build", "--workspace", "--exclude", "xtask", "--profile", profile.name()]);
    proc::run(&mut command)
}

/// Some crates of the workspace.
pub(crate) fn some(place: &Place, profile: Profile, crates: &[&str]) -> Result<()> {
    let mut command = proc::cargo(&place.root);
    command.args(["build", "--profile", profile.name()]);
    command.args(crates.iter().flat_map(|name| ["--package", name]));
    proc::run(&mut command)
}

/// A plugin in one C file, as an author without our SDK builds it.
pub(crate) fn c_plugin(place: &Place, source: &Path, library: &Path) -> Result<()> {
    let mut command = Command::new("cc");
    let flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O2",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        "-pthread",
    ];
    command.args(flags).arg("-I").arg(place.root.join("plugin-api/include"));
    proc::run(command.arg(source).arg("-o").arg(library))
}

/// An OpenVINO to compile a shim against.
struct Runtime {
    include: PathBuf,
    /// Folders with its libraries.
    libs: Vec<PathBuf>,
    /// What a shim's name has behind it; nothing for the pinned one.
    suffix: String,
}

impl Runtime {
    fn pinned(place: &Place) -> Runtime {
        let root = place.openvino();
        Runtime { include: root.join("include"), libs: vec![root.join("lib")], suffix: String::new() }
    }

    /// A folder with `lib` and `include`, or the site-packages of a Python with openvino and openvino-genai.
    fn at(folder: &Path) -> Result<Runtime> {
        let (include, libs) = match folder.join("openvino").is_dir() {
            true => (
                folder.join("openvino/include"),
                vec![folder.join("openvino/libs"), folder.join("openvino_genai")],
            ),
            false => (folder.join("include"), vec![folder.join("lib")]),
        };
        let core = found("libopenvino.so.", &libs)?;
        let build = core.extension().unwrap_or_default().display().to_string();
        Ok(Runtime { include, libs, suffix: format!("-{build}") })
    }
}

/// The library whose name begins so.
fn found(stem: &str, libs: &[PathBuf]) -> Result<PathBuf> {
    for lib in libs {
        let entries = lib.read_dir().with_context(|| format!("list {}", lib.display()))?;
        let library = entries.flatten().find(|e| e.file_name().to_string_lossy().starts_with(stem));
        if let Some(library) = library {
            return Ok(library.path());
        }
    }
    let libs: Vec<String> = libs.iter().map(|lib| lib.display().to_string()).collect();
    anyhow::bail!("no {stem}* in {}; run cargo xtask fetch openvino", libs.join(" or "))
}

/// Links the shim to the libraries whose names begin as the lines of `list` do, by SONAME: their symbols then need not be
/// visible to everything else in the process.
fn link(command: &mut Command, list: &Path, libs: &[PathBuf]) -> Result<()> {
    let Ok(stems) = std::fs::read_to_string(list) else { return Ok(()) };
    command.arg("-Wl,--allow-shlib-undefined");
    for stem in stems.lines().map(str::trim).filter(|line| !line.is_empty()) {
        command.arg(found(stem, libs)?);
    }
    Ok(())
}

/// Shims for another OpenVINO than the pinned one, laid beside what was built: a plugin takes the one with its build's
/// number.
pub(crate) fn shims_for(place: &Place, openvino: &Path) -> Result<()> {
    let runtime = Runtime::at(openvino)?;
    for plugin in place.plugins()? {
        if !plugin.join("shim/shim.cpp").is_file() {
            continue;
        }
        let made = shim(place, &plugin, &runtime)?;
        for profile in [Profile::Dev, Profile::Release] {
            let folder = profile.folder(place);
            if folder.is_dir() {
                lay(&made, &folder)?;
                eprintln!("{}", folder.join(made.file_name().unwrap_or_default()).display());
            }
        }
    }
    Ok(())
}

/// Compiles `plugins/NAME/shim/shim.cpp` to `target/shim/libNAME_shim.so`, once for all profiles.
fn shim(place: &Place, plugin: &Path, runtime: &Runtime) -> Result<PathBuf> {
    let name = plugin.file_name().context("a plugin has a folder name")?.to_string_lossy().replace('-', "_");
    let folder = place.target.join("shim");
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let name = format!("lib{name}_shim{}", runtime.suffix);
    let made = folder.join(format!("{name}.so"));
    let stamp = folder.join(format!("{name}.stamp"));
    let part = made.with_added_extension("part");
    let mut command = Command::new("g++");
    command
        .args([
            "-std=c++17",
            "-O2",
            "-fPIC",
            "-shared",
            "-fvisibility=hidden",
            "-fno-sized-deallocation",
            "-Wall",
            "-Wextra",
        ])
        // The wheel's headers are not ours to warn about.
        .arg("-isystem")
        .arg(&runtime.include)
        .arg(plugin.join("shim/shim.cpp"))
        .arg("-o")
        .arg(&part);
    let exports = plugin.join("shim/exports.map");
    if exports.is_file() {
        let mut flag = std::ffi::OsString::from("-Wl,--version-script=");
        flag.push(exports);
        command.arg(flag);
    }
    link(&mut command, &plugin.join("shim/link"), &runtime.libs)?;
    // What the shims share changes all of them.
    let wanted = inputs(&[plugin.join("shim"), plugin.with_file_name("ov-base").join("shim")], &command)?;
    if made.is_file() && std::fs::read_to_string(&stamp).is_ok_and(|old| old == wanted) {
        return Ok(made);
    }
    eprintln!("compile the C++ shim of {}", plugin.file_name().unwrap_or_default().display());
    proc::run(&mut command)?;
    std::fs::rename(&part, &made).with_context(|| format!("rename {}", part.display()))?;
    std::fs::write(&stamp, wanted).with_context(|| format!("write {}", stamp.display()))?;
    Ok(made)
}

/// What decides over a shim: the compiler, the command line (it names the runtime's version) and every source's hash.
fn inputs(folders: &[PathBuf], command: &Command) -> Result<String> {
    let mut text = proc::output(Command::new("g++").arg("-dumpfullversion"))?;
    writeln!(text, "{command:?}").context("write to a string")?;
    let mut sources: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let entries = std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
        sources.extend(entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()));
    }
    sources.sort();
    text += &proc::output(Command::new("sha256sum").arg("--").args(sources))?;
    Ok(text)
}

/// Copies a library beside the plugin unless the same one lies there. A running host keeps the file that it opened.
fn lay(from: &Path, folder: &Path) -> Result<()> {
    let to = folder.join(from.file_name().context("a library has a name")?);
    let bytes = std::fs::read(from).with_context(|| format!("read {}", from.display()))?;
    if std::fs::read(&to).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let part = to.with_added_extension("part");
    std::fs::copy(from, &part).with_context(|| format!("write {}", part.display()))?;
    std::fs::rename(&part, &to).with_context(|| format!("rename {}", part.display()))
}

/// `target/PROFILE/openvino` → `../openvino/VERSION`: relative, so that the target folder may move.
fn link_runtime(place: &Place, profile: Profile) -> Result<()> {
    let link = profile.folder(place).join("openvino");
    let to = Path::new("../openvino").join(place.pins.openvino_version());
    if std::fs::read_link(&link).is_ok_and(|old| old == to) {
        return Ok(());
    }
    let part = link.with_added_extension("part");
    // What an interrupted run left; symlink() refuses an existing name.
    drop(std::fs::remove_file(&part));
    std::os::unix::fs::symlink(&to, &part).with_context(|| format!("link {}", part.display()))?;
    std::fs::rename(&part, &link).with_context(|| format!("rename {} to {}", part.display(), link.display()))
}
