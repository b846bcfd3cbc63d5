//! Plugins of another compiler than the host's, and one whose panics would end the host.

use anyhow::Result;
use cascadia_tests::crate_build::{self, Crate};
use cascadia_tests::host::run_with;
use cascadia_tests::{TempDir, setup};

use super::text;

const MANIFEST: &str = r#"{"engines": [{"name": "none", "description": "no engine"}]}"#;

/// Nothing of Rust crosses the boundary, so nothing of the compiler's layouts does. Where no other one is installed there is
/// nothing to try; the engines in C and C++ are of another compiler too.
#[test]
fn a_plugin_of_another_compiler_loads_and_its_errors_and_panics_arrive() -> Result<()> {
    let dir = TempDir::new();
    let source = std::fs::read_to_string(setup::root().join("tests/rust/starter.rs"))?;
    let plugin = Crate { name: "of-nightly", source: &source, manifest: MANIFEST, api: None };
    let Some(library) = crate_build::build_by("nightly", &plugin, &dir.path().join("of-nightly"))? else {
        return Ok(());
    };
    // Past its proof, its start and the first call.
    for (start, words) in [
        ("well", "this plugin gives no engine"),
        ("error", "licence file missing; put it beside the plugin"),
        ("panic", "the plugin panicked: the start was told to panic"),
    ] {
        let ended = run_with(&["--plugin", text(&library), "--api", "127.0.0.1:0"], &[("START", start)]);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.complaint);
        assert!(ended.complaint.ends_with(&format!(": {words}\n")), "{start}: {}", ended.complaint);
    }
    Ok(())
}

#[test]
fn a_plugin_whose_panics_abort_does_not_compile() -> Result<()> {
    let dir = TempDir::new();
    let source = std::fs::read_to_string(setup::root().join("tests/rust/starter.rs"))?;
    let plugin = Crate { name: "aborting", source: &source, manifest: MANIFEST, api: None };
    let why = crate_build::why_not_abort(&plugin, &dir.path().join("aborting"))?;
    assert!(why.contains("a plugin must unwind: panics are caught at its edge"), "{why}");
    Ok(())
}
