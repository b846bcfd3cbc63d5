//! Compiles plugins in C and C++, as their authors would, with every warning an error.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::setup;

/// What the compiler is given besides the source.
#[derive(Debug, Default, Clone)]
pub struct Options<'a> {
    /// `-DNAME`, or `-DNAME=value`.
    pub defines: &'a [&'a str],
    /// Passed on as they are, behind the source: libraries and linker flags.
    pub flags: &'a [&'a str],
    /// The folder of the headers; the boundary's own where it is left out.
    pub include: Option<&'a Path>,
}

/// Compiles the source `name` of `tests/c` to the library `output`; its ending tells the language.
pub fn fixture(name: &str, output: &Path, options: &Options<'_>) -> Result<PathBuf> {
    library(&setup::root().join("tests/c").join(name), output, options)
}

/// Compiles a source to a shared library that shows nothing but what it exports.
pub fn library(source: &Path, output: &Path, options: &Options<'_>) -> Result<PathBuf> {
    compile(source, output, &["-fPIC", "-shared", "-fvisibility=hidden"], options)
}

/// Compiles a source to a program.
pub fn program(source: &Path, output: &Path, options: &Options<'_>) -> Result<PathBuf> {
    compile(source, output, &[], options)
}

fn compile(source: &Path, output: &Path, kind: &[&str], options: &Options<'_>) -> Result<PathBuf> {
    let cpp = source.extension().is_some_and(|e| e == "cpp");
    let (compiler, standard) = if cpp { ("c++", "-std=c++17") } else { ("cc", "-std=c11") };
    let own = setup::root().join("plugin-api/include");
    let compiled = Command::new(compiler)
        .args([standard, "-Wall", "-Wextra", "-Werror", "-O1", "-pthread"])
        .args(kind)
        .arg("-I")
        .arg(options.include.unwrap_or(&own))
        .args(options.defines.iter().map(|d| format!("-D{d}")))
        .arg(source)
        .args(options.flags)
        .arg("-o")
        .arg(output)
        .output()
        .with_context(|| format!("{compiler} runs; install gcc and g++, or clang"))?;
    ensure!(
        compiled.status.success(),
        "{compiler} {}: {}",
        source.display(),
        String::from_utf8_lossy(&compiled.stderr)
    );
    Ok(output.to_path_buf())
}
