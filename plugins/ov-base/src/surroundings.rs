//! This machine's folders: where this library lies, where Python keeps packages, where a cache may be.
//!
//! Reads the environment and lists folders; changes nothing.

use std::path::{Path, PathBuf};

/// The folder of this library's file.
///
/// The address of a function of ours is looked up among the mapped files, which needs no unsafe call.
pub fn own_folder() -> Option<PathBuf> {
    let here = own_folder as *const () as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| range(line).is_some_and(|(from, to)| (from..to).contains(&here)))?;
    let path = &line[line.find('/')?..];
    // A file that was replaced since keeps its folder.
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    Path::new(path).parent().map(Path::to_path_buf)
}

fn range(line: &str) -> Option<(usize, usize)> {
    let (from, to) = line.split_once(' ')?.0.split_once('-')?;
    Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
}

/// Folders in which Python installations keep packages, the active virtual environment first.
pub fn site_packages() -> Vec<PathBuf> {
    let mut roots = Vec::new();
    roots.extend(folder("VIRTUAL_ENV"));
    roots.extend(folder("CONDA_PREFIX"));
    roots.extend(folder("HOME").map(|home| home.join(".local")));
    roots.extend(["/usr/local", "/usr"].map(PathBuf::from));
    let mut found = Vec::new();
    for root in roots {
        found.extend(versions(&root.join("lib")));
        found.push(root.join("lib/python3/dist-packages"));
    }
    found.retain(|folder| folder.is_dir());
    found
}

/// `lib/python3.N/site-packages` and `dist-packages`, newest first.
fn versions(lib: &Path) -> Vec<PathBuf> {
    let entries = lib.read_dir().into_iter().flatten().flatten();
    let minor = |name: &str| name.strip_prefix("python3.").and_then(|n| n.parse::<u32>().ok());
    let mut pythons: Vec<_> =
        entries.filter_map(|e| Some((minor(e.file_name().to_str()?)?, e.path()))).collect();
    pythons.sort_by_key(|(minor, _)| std::cmp::Reverse(*minor));
    pythons.iter().flat_map(|(_, path)| [path.join("site-packages"), path.join("dist-packages")]).collect()
}

/// Where what can be made again is kept.
pub fn cache_folder() -> PathBuf {
    caches().unwrap_or_else(std::env::temp_dir).join("cascadia-host")
}

/// Where compiled models are kept: never in a folder that others may write, since they become weights.
pub fn user_cache() -> Option<PathBuf> {
    caches().map(|folder| folder.join("cascadia-host/ov-ir"))
}

fn caches() -> Option<PathBuf> {
    folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a plugin has no configuration file to learn the user's folders from"
)]
fn folder(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_own_folder_is_that_of_the_running_test() {
        let exe = std::env::current_exe().expect("a path");
        assert_eq!(super::own_folder().as_deref(), exe.parent());
    }
}
