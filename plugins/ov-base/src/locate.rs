//! Finds OpenVINO, alone or with OpenVINO GenAI and its tokenizers, and the shim that was built for it.
//!
//! Invariant: a [`Runtime`] holds three libraries of one build, and the tokenizers library lies beside GenAI's own
//! file. GenAI looks for it there (it resolves links first) and nowhere else, unless an environment variable says
//! so, which a plugin must not set. A pip installation keeps the two apart: they are brought together in the cache.
//!
//! Looks at names and files only; loads nothing, reads no environment. The caller names every folder.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

const CORE: &str = "libopenvino.so.";
const GENAI: &str = "libopenvino_genai.so.";
const GENAI_NAME: &str = "OpenVINO GenAI";
const GENAI_PACKAGE: &str = "openvino-genai";
const TOKENIZERS: &str = "libopenvino_tokenizers.so";

/// The option of the plugin that names a folder, for messages.
pub const OPTION: &str = "openvino-dir";

/// Where to look, in this order.
pub struct Search<'a> {
    /// What the user named: a folder with all libraries, one with a `lib` folder, or a `site-packages` folder.
    pub explicit: Option<&'a Path>,
    /// The plugin's own folder: `openvino/lib` and `openvino` in it are looked at.
    pub beside: &'a Path,
    /// `site-packages` folders of Python installations, best first.
    pub site_packages: &'a [PathBuf],
    /// Where a pip installation's parts may be brought together.
    pub cache: &'a Path,
}

/// Libraries of one build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// `libopenvino.so.N`, its real path: it finds its own parts beside the file.
    pub core: PathBuf,
    /// `libopenvino_genai.so.N`; open it after the core, by whose SONAME it is linked.
    pub genai: PathBuf,
    /// The number that ends the files' names: 2641 is 2026.4.1.
    pub build: u32,
}

/// The shim's file and what it needs of the loader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shim {
    /// The file.
    pub path: PathBuf,
    /// It names no library that it needs, so those must be opened for all to see. Better not: GenAI also exports
    /// plain C names like `gguf_open`, which other engines have too.
    pub global: bool,
}

/// The core alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    /// `libopenvino.so.N`, its real path: it finds its own parts beside the file.
    pub path: PathBuf,
    /// The number that ends the file's name: 2641 is 2026.4.1.
    pub build: u32,
}

/// Finds the core, for engines that need neither GenAI nor the tokenizers. `Search::cache` is not used.
///
/// # Errors
/// Names each folder that was looked at, and the ways out.
pub fn core(search: &Search<'_>) -> Result<Core, Error> {
    let in_folder = |folder: PathBuf| match builds(&folder, CORE).first() {
        Some(&build) => Ok(Core { path: real(&folder.join(format!("{CORE}{build}")))?, build }),
        None => Err(Error::Missing { file: format!("{CORE}NNNN"), folder }),
    };
    let flat_or_pip =
        |folder: &Path| [folder.to_path_buf(), folder.join("lib"), folder.join("openvino/libs")];
    let folders: Vec<PathBuf> = match search.explicit {
        Some(named) => flat_or_pip(named).into(),
        None => {
            let beside = ["openvino/lib", "openvino"].map(|name| search.beside.join(name));
            let sites = search.site_packages.iter().map(|site| Folders::pip(site).core);
            beside.into_iter().chain(sites).collect()
        }
    };
    match folders.iter().find(|folder| has_core(folder)) {
        Some(folder) => in_folder(folder.clone()),
        None => {
            let tried = folders.iter().map(|folder| Tried::new(folder, "no libopenvino.so.NNNN")).collect();
            Err(Error::Nowhere { what: "OpenVINO", package: "openvino", tried })
        }
    }
}

/// Finds the core with GenAI and its tokenizers.
///
/// # Errors
/// Names what is missing in each folder that was looked at, and the ways out.
pub fn find(search: &Search<'_>) -> Result<Runtime, Error> {
    let found = match search.explicit {
        Some(named) => explicit(named)?,
        None => implicit(search)?,
    };
    together(found, search.cache)
}

/// Finds the shim in the plugin's folder: `libNAME_shim-NNNN.so` for one build, else `libNAME_shim.so`, where `name` is that
/// of the plugin's library.
///
/// # Errors
/// When there is neither, or the only one is linked to another build.
pub fn shim(beside: &Path, name: &'static str, build: u32) -> Result<Shim, Error> {
    for name in [format!("lib{name}_shim-{build}.so"), format!("lib{name}_shim.so")] {
        let path = beside.join(name);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(source) if source.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(Error::Read { path, source }),
        };
        return match linked_core(&bytes) {
            Some(needs) if needs != build => Err(Error::ShimBound { path, needs, build }),
            needs => Ok(Shim { path, global: needs.is_none() }),
        };
    }
    Err(Error::NoShim { name, folder: beside.to_path_buf(), build })
}

/// The three libraries where they were found; GenAI and the tokenizers perhaps in different folders.
#[derive(Debug)]
struct Found {
    core: PathBuf,
    genai: PathBuf,
    tokenizers: PathBuf,
    build: u32,
}

fn explicit(named: &Path) -> Result<Found, Error> {
    for folder in [named.to_path_buf(), named.join("lib")] {
        if has_core(&folder) {
            return take(&Folders::flat(&folder));
        }
    }
    if has_core(&Folders::pip(named).core) {
        return take(&Folders::pip(named));
    }
    Err(Error::Nowhere {
        what: GENAI_NAME,
        package: GENAI_PACKAGE,
        tried: vec![Tried::new(named, "no libopenvino.so.NNNN in it, its lib or openvino/libs")],
    })
}

fn implicit(search: &Search<'_>) -> Result<Found, Error> {
    let mut tried = Vec::new();
    for folder in [search.beside.join("openvino/lib"), search.beside.join("openvino")] {
        // A bundle with a part missing is broken: say so and take no other in its stead.
        if has_core(&folder) {
            return take(&Folders::flat(&folder));
        }
        tried.push(Tried::new(&folder, "no libopenvino.so.NNNN"));
    }
    for site in search.site_packages {
        let folders = Folders::pip(site);
        if !has_core(&folders.core) {
            tried.push(Tried::new(site, "no openvino package"));
            continue;
        }
        // Many installations have openvino alone.
        match take(&folders) {
            Ok(found) => return Ok(found),
            Err(error) => tried.push(Tried { folder: site.clone(), reason: error.to_string() }),
        }
    }
    Err(Error::Nowhere { what: GENAI_NAME, package: GENAI_PACKAGE, tried })
}

struct Folders {
    core: PathBuf,
    genai: PathBuf,
    tokenizers: PathBuf,
}

impl Folders {
    fn flat(folder: &Path) -> Self {
        Self { core: folder.to_path_buf(), genai: folder.to_path_buf(), tokenizers: folder.to_path_buf() }
    }

    fn pip(site: &Path) -> Self {
        Self {
            core: site.join("openvino/libs"),
            genai: site.join("openvino_genai"),
            tokenizers: site.join("openvino_tokenizers/lib"),
        }
    }
}

fn has_core(folder: &Path) -> bool {
    !builds(folder, CORE).is_empty()
}

/// The numbers behind `prefix` in a folder's file names, highest first. An unreadable folder has none.
fn builds(folder: &Path, prefix: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<u32> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok())
        .collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found
}

fn take(folders: &Folders) -> Result<Found, Error> {
    let cores = builds(&folders.core, CORE);
    let genais = builds(&folders.genai, GENAI);
    let (Some(&core), Some(&genai)) = (cores.first(), genais.first()) else {
        return Err(Error::Missing { file: format!("{GENAI}NNNN"), folder: folders.genai.clone() });
    };
    let Some(&build) = cores.iter().find(|build| genais.contains(build)) else {
        return Err(Error::Mixed { core, other: "openvino-genai", build: genai });
    };
    let tokenizers = folders.tokenizers.join(TOKENIZERS);
    let bytes = match fs::read(&tokenizers) {
        Ok(bytes) => bytes,
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            return Err(Error::Missing { file: TOKENIZERS.into(), folder: folders.tokenizers.clone() });
        }
        Err(source) => return Err(Error::Read { path: tokenizers, source }),
    };
    // Its name has no number; the core that it was linked to is in its list of needed libraries.
    if let Some(needs) = linked_core(&bytes)
        && needs != build
    {
        return Err(Error::Mixed { core: build, other: "openvino-tokenizers", build: needs });
    }
    Ok(Found {
        core: real(&folders.core.join(format!("{CORE}{build}")))?,
        genai: real(&folders.genai.join(format!("{GENAI}{build}")))?,
        tokenizers: real(&tokenizers)?,
        build,
    })
}

fn linked_core(library: &[u8]) -> Option<u32> {
    let at = library.windows(CORE.len()).position(|window| window == CORE.as_bytes())?;
    let digits = library[at + CORE.len()..].split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn real(path: &Path) -> Result<PathBuf, Error> {
    fs::canonicalize(path).map_err(|source| Error::Read { path: path.to_path_buf(), source })
}

/// Makes sure that the tokenizers lie beside GenAI, if need be in a folder of the cache.
fn together(found: Found, cache: &Path) -> Result<Runtime, Error> {
    let Found { core, genai, tokenizers, build } = found;
    if genai.with_file_name(TOKENIZERS).exists() {
        return Ok(Runtime { core, genai, build });
    }
    let name = format!("ov-genai-{build}-{:016x}", print_of(&[&genai, &tokenizers])?);
    let folder = cache.join(&name);
    let genai_there = folder.join(format!("{GENAI}{build}"));
    if !is_complete(&folder, &genai, &genai_there) {
        let failed = |source| Error::Cache { folder: folder.clone(), source };
        // Built under a name of its own and moved, so that nobody sees half of it.
        let draft = cache.join(format!(".{name}.{}", std::process::id()));
        assemble(&draft, &genai, &tokenizers, build).map_err(failed)?;
        let moved = fs::rename(&draft, &folder);
        if moved.is_err() {
            // Another process was faster, or an old half is in the way.
            if is_complete(&folder, &genai, &genai_there) {
                fs::remove_dir_all(&draft).map_err(failed)?;
            } else {
                fs::remove_dir_all(&folder).and_then(|()| fs::rename(&draft, &folder)).map_err(failed)?;
            }
        }
    }
    Ok(Runtime { core, genai: genai_there, build })
}

fn is_complete(folder: &Path, from: &Path, genai: &Path) -> bool {
    let size = |path: &Path| fs::metadata(path).map(|meta| meta.len()).ok();
    folder.join(TOKENIZERS).exists() && size(genai).is_some() && size(genai) == size(from)
}

fn assemble(draft: &Path, genai: &Path, tokenizers: &Path, build: u32) -> io::Result<()> {
    if let Some(cache) = draft.parent() {
        fs::create_dir_all(cache)?;
    }
    match fs::remove_dir_all(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::DirBuilder::new().mode(0o700).create(draft)?;
    let to = draft.join(format!("{GENAI}{build}"));
    // A second name costs nothing; where that is not allowed (another file system, another owner) 13 MB are copied.
    // A link will not do: GenAI resolves it and looks beside the original.
    if fs::hard_link(genai, &to).is_err() {
        fs::copy(genai, &to)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o700))?;
    }
    symlink(tokenizers, draft.join(TOKENIZERS))
}

/// A number that changes when one of the files is another one (FNV-1a over path, size, time of change).
fn print_of(files: &[&Path]) -> Result<u64, Error> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for &file in files {
        let meta = fs::metadata(file).map_err(|source| Error::Read { path: file.to_path_buf(), source })?;
        add(file.as_os_str().as_encoded_bytes());
        add(&meta.len().to_le_bytes());
        add(&meta.mtime().to_le_bytes());
        add(&meta.mtime_nsec().to_le_bytes());
    }
    Ok(hash)
}

/// A folder that was looked at in vain.
#[derive(Debug)]
pub struct Tried {
    folder: PathBuf,
    reason: String,
}

impl Tried {
    fn new(folder: &Path, reason: &str) -> Self {
        Self { folder: folder.to_path_buf(), reason: reason.to_owned() }
    }
}

/// Why there is no runtime.
#[derive(Debug)]
pub enum Error {
    /// No folder has it all.
    Nowhere { what: &'static str, package: &'static str, tried: Vec<Tried> },
    /// One library is not there.
    Missing { file: String, folder: PathBuf },
    /// Libraries of different builds.
    Mixed { core: u32, other: &'static str, build: u32 },
    /// A file is there and cannot be read.
    Read { path: PathBuf, source: io::Error },
    /// The parts could not be brought together.
    Cache { folder: PathBuf, source: io::Error },
    /// No shim for this build.
    NoShim { name: &'static str, folder: PathBuf, build: u32 },
    /// The shim names another build than the one found.
    ShimBound { path: PathBuf, needs: u32, build: u32 },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere { what, package, tried } => {
                write!(f, "{what} not found; ")?;
                for Tried { folder, reason } in tried {
                    write!(f, "{}: {reason}; ", folder.display())?;
                }
                write!(f, "set option {OPTION} to a folder with its libraries or install {package} with pip")
            }
            Self::Missing { file, folder } => {
                let package = if file == TOKENIZERS { "openvino-tokenizers" } else { GENAI_PACKAGE };
                write!(
                    f,
                    "{file} is missing in {}; install {package} of the same version as openvino",
                    folder.display()
                )
            }
            Self::Mixed { core, other, build } => {
                write!(
                    f,
                    "openvino is build {core} and {other} is for build {build}; install them with one version"
                )
            }
            Self::Read { path, .. } => write!(f, "read {}", path.display()),
            Self::Cache { folder, .. } => {
                write!(
                    f,
                    "bring libraries together in {}; give the plugin a cache folder it can write",
                    folder.display()
                )
            }
            Self::NoShim { name, folder, build } => write!(
                f,
                "neither lib{name}_shim-{build}.so nor lib{name}_shim.so in {}; build it with cargo xtask",
                folder.display()
            ),
            Self::ShimBound { path, needs, build } => write!(
                f,
                "{} is linked to build {needs}, OpenVINO here is {build}; install {needs}, or run cargo xtask shim with the folder of this OpenVINO",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } | Self::Cache { source, .. } => Some(source),
            _ => None,
        }
    }
}
