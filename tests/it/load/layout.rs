//! Tables that are not the host's: stale drafts, layouts that were edited under the same hashes, unknown numbers.

use std::path::PathBuf;

use anyhow::Result;
use cascadia_tests::crate_build::{self, Crate};
use cascadia_tests::host::run;
use cascadia_tests::{Host, TempDir, elf, order, setup, wait};
use serde_json::json;

use super::{last_words, text};

const MANIFEST: &str = r#"{"engines": [{"name": "none", "description": "no engine"}]}"#;

/// A plugin whose boundary has another layout than its hashes say: `from` became `to` in `file`.
fn edited(name: &str, file: &str, from: &str, to: &str, dir: &TempDir) -> Result<PathBuf> {
    // Other tests, in other processes, make the same plugin.
    let _alone = crate_build::alone(name)?;
    let api = crate_build::edited_api(name, file, from, to)?;
    let source = std::fs::read_to_string(setup::root().join("tests/rust/starter.rs"))?;
    let plugin = Crate { name, source: &source, manifest: MANIFEST, api: Some(&api) };
    let library = dir.path().join(format!("lib{name}.so"));
    std::fs::copy(crate_build::build(&plugin, &dir.path().join(name))?, &library)?;
    Ok(library)
}

/// A field more in the middle of the load report.
pub(super) fn with_a_field_in_the_middle(dir: &TempDir) -> Result<PathBuf> {
    let field = "kv_blocks_used: u64,";
    edited("field-in-the-middle", "src/ext.rs", field, &format!("surprise: u64,\n{field}"), dir)
}

#[test]
fn a_layout_that_its_hashes_do_not_tell_is_refused_by_its_proof() -> Result<()> {
    let dir = TempDir::new();
    let last = "tokens_cached: u64,";
    let at_the_end = edited("field-at-the-end", "src/ext.rs", last, &format!("{last}\nlater: u64,"), &dir)?;
    let why = "table cascadia_load_report differs from the host's: Error:incompatible type size Expected: 40 Found: 48";
    for plugin in [with_a_field_in_the_middle(&dir)?, at_the_end] {
        let said = last_words(&run(&["--plugin", text(&plugin), "--api", "127.0.0.1:0"]), &plugin);
        assert!(said.starts_with(why), "{said}");
        assert!(said.len() < 400, "short enough to be read: {said}");
    }
    Ok(())
}

#[test]
fn a_plugin_refused_for_its_layout_does_not_spoil_the_next() -> Result<()> {
    let dir = TempDir::new();
    let bad = with_a_field_in_the_middle(&dir)?;
    let folder = TempDir::new();
    folder.file("plugin.toml", "[[model]]\nname = \"mock\"\n");
    let host = Host::start(&["--plugin-dir", text(folder.path())]);
    std::fs::copy(&bad, folder.path().join("libbad.so"))?;
    host.until("the refusal", 1.0, |s| {
        s.value("cascadia_plugin_load_errors_total", &[("stage", "proof")]).min(1.0)
    });
    std::fs::remove_file(folder.path().join("libbad.so"))?;
    // Two more of the same type, after the bad one and beside each other.
    let mock = std::fs::read(setup::plugin("mock"))?;
    let second = folder.path().join("second");
    std::fs::create_dir(&second)?;
    std::fs::write(second.join("plugin.toml"), "[[model]]\nname = \"other\"\n")?;
    folder.file("libmock.so", &mock);
    std::fs::write(second.join("libother.so"), elf::replaced(&mock, "\"id\":\"mock\"", "\"id\":\"othr\""))?;
    for model in ["mock", "other"] {
        assert_eq!(host.answered(model, "sound"), "sound");
    }
    Ok(())
}

#[test]
fn a_stale_draft_is_refused_by_the_name_of_the_table() -> Result<()> {
    let dir = TempDir::new();
    let mock = std::fs::read(setup::plugin("mock"))?;
    let path = dir.file("libdraft.so", elf::with_other_draft(&mock));
    let said = last_words(&run(&["--plugin", text(&path)]), &path);
    assert_eq!(said, "was built with another draft of table cascadia_str; rebuild it for this host");
    Ok(())
}

#[test]
fn a_number_that_the_host_does_not_know_costs_one_chunk() -> Result<()> {
    let host = Host::mock(&[]);
    // The finish that no host knows is no finish: the chunk is counted and dropped, the task goes on.
    let odd = order("a b", &json!({"unknown_finish": true}));
    let answer = host.chat(&odd)?;
    assert_eq!((answer.content().as_str(), answer.finish().as_str()), ("a b", "stop"));
    let counted = |s: &cascadia_tests::Scrape| {
        s.value("cascadia_plugin_protocol_errors_total", &[("kind", "bad_chunk")])
    };
    host.until("the bad chunk", 1.0, counted);
    // A code that no host knows keeps its number in the words.
    let strange = order("a", &json!({"submit_error": 4242, "message": "from the future"}));
    let error = host.chat(&strange)?.error(500);
    assert_eq!(error["code"], "engine_error");
    assert!(error["message"].as_str().is_some_and(|m| m.contains("from the future (code 4242)")), "{error}");
    wait("the host to go on", || match host.chat("on") {
        Ok(answer) if answer.status() == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    Ok(())
}
