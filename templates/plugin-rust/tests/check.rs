//! Builds the plugin and holds it to the boundary's contract, with the host's own validator. CASCADIA_HOST names the host
//! when it is not on the PATH.

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn the_plugin_keeps_the_contract() {
    let host = std::env::var_os("CASCADIA_HOST").unwrap_or_else(|| "cascadia-host".into());
    let library = build();
    let checked = Command::new(&host).args(["plugin", "check"]).arg(&library).args(["--fuzz", "1"]).output();
    let checked =
        checked.unwrap_or_else(|e| panic!("{} does not run: {e}; set CASCADIA_HOST", host.display()));
    assert!(checked.status.success(), "{}{}", text(&checked.stdout), text(&checked.stderr));
}

/// Builds the library as this test was built, and answers where it lies: `cargo test` by itself leaves the one there that
/// an earlier `cargo build` has made.
fn build() -> PathBuf {
    // This test is TARGET/[TRIPLE/]PROFILE/deps/check-…, and the library lies two folders up.
    let own = std::env::current_exe().expect("a test has a path");
    let folder = own.ancestors().nth(2).expect("a test lies in the folder of its profile");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..").canonicalize().expect("the target folder");
    let below = folder.strip_prefix(&target).expect("a test lies in the target folder");
    let parts: Vec<_> = below.iter().map(|part| part.to_str().expect("a name in text")).collect();
    let (triple, profile) = match parts[..] {
        [triple, profile] => (Some(triple), profile),
        [profile] => (None, profile),
        _ => panic!("{} is no folder of a profile", folder.display()),
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--lib", "--quiet", "--profile", if profile == "debug" { "dev" } else { profile }]);
    cargo.arg("--manifest-path").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    cargo.arg("--target-dir").arg(&target);
    cargo.args(triple.iter().flat_map(|triple| ["--target", triple]));
    let built = cargo.output().unwrap_or_else(|e| panic!("cargo does not run: {e}"));
    assert!(built.status.success(), "{}", text(&built.stderr));
    folder.join("libmy_engine.so")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
