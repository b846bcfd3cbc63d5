//! What the test command hands over: folders and programs, by environment variables. The only place that reads them, and
//! the only one that prints.

use std::path::{Path, PathBuf};

/// A variable of the test command; empty counts as absent.
fn variable(name: &str) -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "the harness is told its folders by the environment")]
    let value = std::env::var_os(name);
    value.filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// The folder with the host and the plugins: `CASCADIA_BIN_DIR`, else the one that this test was built into.
pub fn bin_dir() -> PathBuf {
    variable("CASCADIA_BIN_DIR").unwrap_or_else(|| {
        let own = std::env::current_exe().expect("PANIC: a test knows its own path");
        // target/debug/deps/it-0123 → target/debug
        own.ancestors().nth(2).expect("PANIC: cargo puts tests into deps/").to_path_buf()
    })
}

/// The host's program.
pub fn host_program() -> PathBuf {
    let path = bin_dir().join("cascadia-host");
    assert!(path.is_file(), "{} is not built; run cargo xtask test, or cargo build", path.display());
    path
}

/// A plugin's library.
pub fn plugin(name: &str) -> PathBuf {
    let path = bin_dir().join(format!("lib{name}.so"));
    assert!(path.is_file(), "{} is not built; run cargo xtask test, or cargo build", path.display());
    path
}

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("PANIC: tests/ lies in the repository")
}

/// The folder of `prometheus` and `promtool`, when there is one.
pub fn prometheus() -> Option<PathBuf> {
    optional("CASCADIA_PROMETHEUS_DIR", "prometheus")
}

/// A Python with the clients, when there is one.
pub fn python() -> Option<PathBuf> {
    optional("CASCADIA_PYTHON", "the clients of other makers")
}

/// The unpacked OpenVINO, when there is one.
pub fn openvino() -> Option<PathBuf> {
    optional("CASCADIA_OPENVINO", "OpenVINO")
}

/// A small real model, when there is one.
pub fn model() -> Option<PathBuf> {
    optional("CASCADIA_MODEL", "a model")
}

/// Where tests keep models that `ov-genai` compiled: one folder for all, since a real model takes a while.
pub fn compiled_models() -> PathBuf {
    bin_dir().join("ov-genai-models")
}

fn optional(name: &str, what: &str) -> Option<PathBuf> {
    let path = variable(name);
    match &path {
        None => say(&format!("left out: {name} is not set, so {what} is not there")),
        Some(path) => assert!(path.exists(), "{name} is {}, which is not there", path.display()),
    }
    path
}

/// The seed of a test that draws: `CASCADIA_TEST_SEED`, else the clock. It is printed, so that a failure can be run again.
pub fn seed() -> u64 {
    let given = variable("CASCADIA_TEST_SEED").and_then(|v| v.to_str()?.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| u64::from(now.subsec_nanos()) | 1)
    });
    say(&format!("CASCADIA_TEST_SEED={seed}"));
    seed
}

/// A line for whoever reads a test's output; test runners show it when the test failed.
#[expect(clippy::print_stderr, reason = "tests speak to whoever runs them")]
pub fn say(line: &str) {
    eprintln!("{line}");
}
