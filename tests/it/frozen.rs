//! Old and new hosts times old and new plugins: all four load.
//!
//! | host | plugin | what stands for it |
//! | --- | --- | --- |
//! | old | old | `frozen/v1/host.c` and `frozen/v1/plugin.c`, both with the first set's header |
//! | old | new | the same host with `frozen/next/plugin.c`, and with the mock of today |
//! | new | old | today's host with `frozen/v1/plugin.c`; `plugin check` offers it larger structs and fewer services |
//! | new | new | today's host with `frozen/next/plugin.c`, which is newer than it |

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cascadia_tests::cc::{self, Options};
use cascadia_tests::client::{CHAT, chat, with};
use cascadia_tests::host::run;
use cascadia_tests::{Host, TempDir, setup};
use serde_json::json;

fn first_set() -> PathBuf {
    setup::root().join("tests/frozen/v1")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("PANIC: temporary paths are text")
}

fn old_plugin(dir: &TempDir) -> Result<PathBuf> {
    let set = first_set();
    let options = Options { include: Some(&set), ..Options::default() };
    cc::library(&set.join("plugin.c"), &dir.path().join("libold.so"), &options)
}

fn new_plugin(dir: &TempDir) -> Result<PathBuf> {
    let source = setup::root().join("tests/frozen/next/plugin.c");
    cc::library(&source, &dir.path().join("libnew.so"), &Options::default())
}

/// What the old host prints of a plugin's answer.
fn in_old_host(dir: &TempDir, plugin: &Path, words: &str) -> Result<String> {
    let (set, program) = (first_set(), dir.path().join("old-host"));
    if !program.exists() {
        let options = Options { include: Some(&set), flags: &["-ldl"], defines: &[] };
        cc::program(&set.join("host.c"), &program, &options)?;
    }
    let ran = Command::new(&program).arg(plugin).arg(words).output().context("the old host runs")?;
    ensure!(ran.status.success(), "{}: {}", ran.status, String::from_utf8_lossy(&ran.stderr));
    Ok(String::from_utf8(ran.stdout)?)
}

/// What today's host answers with it.
fn in_new_host(plugin: &Path, model: &str, words: &str) -> Result<String> {
    let host = Host::start(&["--plugin", text(plugin)]);
    host.ready();
    let answer = host.post(CHAT, &with(chat(words), &json!({"model": model})))?.content();
    assert_eq!(host.scrape().sum("cascadia_plugin_protocol_errors_total", &[]), 0.0);
    Ok(answer)
}

#[test]
fn the_first_set_is_still_in_the_lock() -> Result<()> {
    let read = |path: PathBuf| std::fs::read_to_string(&path).with_context(|| path.display().to_string());
    let (first, api) = (read(first_set().join("abi.lock"))?, setup::root().join("plugin-api"));
    let (now, frozen) = (read(api.join("abi.lock"))?, read(api.join("abi.frozen"))?);
    let released = frozen.lines().any(|line| !line.is_empty() && !line.starts_with('#'));
    for line in first.lines() {
        assert!(
            now.lines().any(|other| other == line),
            "a table of the first set was edited or dropped: {line}\nwhile it is a draft, take the set anew as \
             tests/frozen/v1/README.md says"
        );
        assert!(!released || frozen.lines().any(|other| other == line), "shipped, and not frozen: {line}");
    }
    // The plugin of that time carries the hashes of that time.
    let header = read(first_set().join("cascadia_plugin.h"))?;
    assert_eq!(header.matches("CASCADIA_ASSERT(sizeof(").count(), first.lines().count());
    Ok(())
}

#[test]
fn an_old_host_loads_an_old_plugin() -> Result<()> {
    let dir = TempDir::new();
    assert_eq!(in_old_host(&dir, &old_plugin(&dir)?, "words of old")?, "words of old");
    Ok(())
}

#[test]
fn an_old_host_loads_a_new_plugin() -> Result<()> {
    let dir = TempDir::new();
    let answer = in_old_host(&dir, &new_plugin(&dir)?, "words")?;
    assert_eq!(answer, "later: task known, service absent");
    // Whatever today's SDK and its tables have become.
    assert_eq!(in_old_host(&dir, &setup::plugin("mock"), "words of today")?, "words of today");
    Ok(())
}

#[test]
fn a_new_host_loads_an_old_plugin() -> Result<()> {
    let dir = TempDir::new();
    let plugin = old_plugin(&dir)?;
    assert_eq!(in_new_host(&plugin, "echo", "words of old")?, "words of old");
    for test in
        ["larger", "keeps to the size", "only the host services that it requires", "unknown extension id"]
    {
        let checked = run(&["plugin", "check", text(&plugin), "--only", test]);
        assert_eq!(checked.status.code(), Some(0), "{test}: {}{}", checked.output, checked.complaint);
        assert!(checked.output.contains(" 0 failed, 0 skipped"), "{}", checked.output);
    }
    Ok(())
}

#[test]
fn a_new_host_loads_a_plugin_that_is_newer_still() -> Result<()> {
    let dir = TempDir::new();
    let plugin = new_plugin(&dir)?;
    assert_eq!(in_new_host(&plugin, "word", "words")?, "later: task known, service absent");
    let described = run(&["plugin", "describe", text(&plugin)]);
    for words in ["1.9; all", "tables match this host's", "this host can load it", "cascadia.host.later/1"] {
        assert!(described.output.contains(words), "{words:?} is missing in {}", described.output);
    }
    // A newer host than this one offers more: it is read as far as it reaches.
    let checked = run(&["plugin", "check", text(&plugin), "--only", "a larger task"]);
    assert_eq!(checked.status.code(), Some(0), "{}{}", checked.output, checked.complaint);
    Ok(())
}
