//! The compilers that plugin authors use, with every warning an error. Knows nothing of what the headers say.

use std::path::{Path, PathBuf};
use std::process::Command;

const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");

/// A language, as a plugin author compiles it.
#[derive(Clone, Copy)]
pub(crate) struct Language {
    pub(crate) compiler: &'static str,
    standard: &'static str,
    /// How `-x` calls it.
    name: &'static str,
    package: &'static str,
}

pub(crate) const C: Language =
    Language { compiler: "cc", standard: "-std=c11", name: "c", package: "gcc or clang" };
pub(crate) const CPP: Language =
    Language { compiler: "c++", standard: "-std=c++17", name: "c++", package: "g++ or clang++" };

impl Language {
    /// Compiles `source` with no warning left; the file that was made, or what the compiler said.
    pub(crate) fn try_compile(self, name: &str, source: &str, flags: &[&str]) -> Result<PathBuf, String> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header");
        std::fs::create_dir_all(&folder).expect("the test's folder can be made");
        let stem = folder.join(format!("{name}-{}", self.standard.trim_start_matches("-std=")));
        let (input, output) = (stem.with_added_extension("src"), stem.with_added_extension("out"));
        std::fs::write(&input, source).expect("the source can be written");
        let ran = Command::new(self.compiler)
            .args([self.standard, "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-pedantic"])
            .args(["-pthread", "-I", INCLUDE, "-x", self.name])
            .args([&input, Path::new("-o"), &output])
            .args(flags)
            .output()
            .unwrap_or_else(|e| panic!("{} does not run ({e}); install {}", self.compiler, self.package));
        let said = || {
            let said = excerpt(&String::from_utf8_lossy(&ran.stderr));
            format!("{} refuses {}:\n{said}", self.compiler, input.display())
        };
        if ran.status.success() { Ok(output) } else { Err(said()) }
    }

    /// The same for a source that must compile.
    pub(crate) fn compile(self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        self.try_compile(name, source, flags).unwrap_or_else(|said| panic!("{said}"))
    }

    /// Compiles and runs a program; what it printed.
    pub(crate) fn run(self, name: &str, source: &str) -> String {
        let program = self.compile(name, source, &[]);
        let ran = Command::new(&program).output().expect("the program runs");
        assert!(ran.status.success(), "{} ended with {}", program.display(), ran.status);
        String::from_utf8(ran.stdout).expect("the program prints UTF-8")
    }
}

/// What a compiler said, short enough to be read.
fn excerpt(said: &str) -> String {
    said.lines().take(20).map(|line| line.chars().take(200).chain(['\n']).collect::<String>()).collect()
}
