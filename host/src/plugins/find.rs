//! From `--plugin` and `--plugin-dir` to files. Never the working directory, never the linker's search path.

use std::path::{Path, PathBuf};

use super::error::{LoadError, not_found};
use crate::telemetry::labels::LoadStage;

/// The file that `name` means: a path when it has a `/`; else a file name, or a bare name (`ov-genai` is
/// `libov_genai.so`), looked for in `dirs`, then beside the executable, then in its `plugins/`.
pub fn one(name: &str, dirs: &[PathBuf], executable: &Path) -> Result<PathBuf, LoadError> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        return match path.metadata() {
            Ok(_) => path.canonicalize().map_err(|e| LoadError::new(name, LoadStage::Find, e.to_string())),
            Err(e) => Err(LoadError::new(name, LoadStage::Find, format!("cannot be read: {e}"))),
        };
    }
    let file =
        if name.ends_with(".so") { name.to_owned() } else { format!("lib{}.so", name.replace('-', "_")) };
    let beside = executable.parent().map(Path::to_path_buf).unwrap_or_default();
    let tried: Vec<_> =
        dirs.iter().cloned().chain([beside.clone(), beside.join("plugins")]).map(|d| d.join(&file)).collect();
    match tried.iter().find(|p| p.is_file()) {
        Some(path) => path.canonicalize().map_err(|e| LoadError::file(path, LoadStage::Find, e.to_string())),
        None => Err(not_found(name, &tried)),
    }
}

/// The libraries of a folder and of the folders in it, sorted. A folder that cannot be read is an error.
pub fn all(dir: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let unreadable =
        |e: std::io::Error| LoadError::file(dir, LoadStage::Find, format!("cannot be read: {e}"));
    let mut found = Vec::new();
    for entry in dir.read_dir().map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() {
            // A bundle: a plugin with what it needs. One that cannot be read is no plugin.
            found.extend(path.read_dir().into_iter().flatten().flatten().map(|e| e.path()));
        } else {
            found.push(path);
        }
    }
    found.retain(|p| p.file_name().and_then(|n| n.to_str()).is_some_and(is_library_name) && p.is_file());
    found = found.into_iter().filter_map(|p| p.canonicalize().ok()).collect();
    // What lies in the folder itself goes before what lies in a bundle.
    let own = dir.canonicalize().map_err(unreadable)?;
    found.sort_by_cached_key(|path| (path.parent() != Some(&own), path.clone()));
    Ok(found)
}

/// Whether a file, by its full path, lies in `dir` itself, where every library is meant to be a plugin; in the folders in it
/// lie bundles, with libraries that are none.
pub fn is_loose(path: &Path, dir: &Path) -> bool {
    dir.canonicalize().is_ok_and(|dir| path.parent() == Some(&dir)) && !is_shim(path)
}

/// Whether a file is the shim of a plugin beside it: `libNAME_shim*.so`, where `libNAME.so` is.
fn is_shim(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.split_once("_shim").is_some_and(|(plugin, _)| path.with_file_name(format!("{plugin}.so")).is_file())
}

/// Whether a file of this name may be a plugin: `lib*.so`, which a private copy (`.gen-...`) is not.
pub fn is_library_name(name: &str) -> bool {
    name.starts_with("lib") && name.ends_with(".so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_beside_its_plugin_is_not_meant_to_be_one() {
        let dir = std::env::temp_dir().join(format!("cascadia-find-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let dir = dir.canonicalize().expect("there");
        let loose = |name: &str| is_loose(&dir.join(name), &dir);
        assert!(loose("libx_shim.so"), "whose should it be?");
        std::fs::write(dir.join("libx.so"), "").expect("a file");
        assert!(
            loose("libx.so")
                && !loose("libx_shim.so")
                && !loose("libx_shim-2641.so")
                && loose("liby_shim.so")
        );
        std::fs::remove_dir_all(dir).expect("gone");
    }

    #[test]
    fn a_bare_name_is_looked_for_in_the_given_folders_then_beside_the_executable() {
        let error = one("my-engine", &[PathBuf::from("/nowhere")], Path::new("/opt/x/cascadia-host"))
            .expect_err("absent");
        let text = error.to_string();
        assert!(
            text.contains("/nowhere/libmy_engine.so, /opt/x/libmy_engine.so, /opt/x/plugins/libmy_engine.so"),
            "{text}"
        );
    }
}
