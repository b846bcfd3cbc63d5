//! Plugins with libraries of their own, and new versions under an old name.

use std::path::{Path, PathBuf};

use anyhow::Result;
use cascadia_tests::cc::{self, Options};
use cascadia_tests::client::{CHAT, chat, with};
use cascadia_tests::host::run;
use cascadia_tests::{Host, TempDir, wait};
use serde_json::json;

use super::text;

/// A folder with a plugin of that id and its own build of `libdep.so.1`, which answers `answer`.
fn bundle(dir: &Path, id: &str, answer: &str) -> Result<PathBuf> {
    versioned(dir, id, "1.0.0", answer)
}

fn versioned(dir: &Path, id: &str, version: &str, answer: &str) -> Result<PathBuf> {
    let folder = dir.join(id);
    std::fs::create_dir(&folder)?;
    let (dep, define) = (folder.join("libdep.so.1"), format!("ANSWER=\"{answer}\""));
    let soname = Options { defines: &[&define], flags: &["-Wl,-soname,libdep.so.1"], include: None };
    // The fixture hides what it does not export; a library's one function is its export.
    cc::fixture("dep.c", &dep, &soname)?;
    let (id, version) = (format!("ID=\"{id}\""), format!("VERSION=\"{version}\""));
    let flags = [text(&dep), "-Wl,-rpath,$ORIGIN"];
    let options = Options { defines: &[&id, &version, "DEPENDENCY"], flags: &flags, include: None };
    cc::fixture("engine.c", &folder.join("libplugin.so"), &options)
}

fn answer(host: &Host, model: &str) -> Result<cascadia_tests::client::Answer> {
    host.post(CHAT, &with(chat("which"), &json!({"model": model})))
}

#[test]
fn a_second_build_under_one_soname_is_refused_naming_both() -> Result<()> {
    let dir = TempDir::new();
    let (one, two) = (bundle(dir.path(), "one", "from-one")?, bundle(dir.path(), "two", "from-two")?);
    // Each by itself is sound, and they differ: what is refused is the company.
    for (plugin, word) in [(&one, "from-one"), (&two, "from-two")] {
        let host = Host::start(&["--plugin", text(plugin)]);
        host.ready();
        assert_eq!(answer(&host, "word")?.content(), word);
    }
    let models = ["--model", "first=/x,engine=one/word", "--model", "second=/x,engine=two/word"];
    let host = Host::start(&[&["--plugin", text(&one), "--plugin", text(&two)], &models[..]].concat());
    host.until("the refusal", 1.0, |s| {
        s.value("cascadia_plugin_load_errors_total", &[("stage", "open")]).min(1.0)
    });
    assert_eq!(host.answered("first", "which"), "from-one");
    answer(&host, "second")?.error(503);
    let said = host.get("/readyz")?.text();
    let deps = [&one, &two].map(|p| p.with_file_name("libdep.so.1").display().to_string());
    for word in [deps[0].as_str(), &deps[1], "libdep.so.1", "--isolate", "one build for all plugins"] {
        assert!(said.contains(word), "{word:?} is missing in {said}");
    }
    drop(host);
    // The same two in one library's company: one file for both is no second build.
    std::fs::remove_file(two.with_file_name("libdep.so.1"))?;
    std::fs::hard_link(one.with_file_name("libdep.so.1"), two.with_file_name("libdep.so.1"))?;
    let host = Host::start(&[&["--plugin", text(&one), "--plugin", text(&two)], &models[..]].concat());
    host.ready();
    assert_eq!(answer(&host, "second")?.content(), "from-one");
    Ok(())
}

/// In one process the new version would get the library of the old one; in two each has its own.
#[test]
fn an_upgrade_that_brings_its_own_libraries_needs_a_process_of_its_own() -> Result<()> {
    let build = TempDir::new();
    let (old, new) = (build.path().join("old"), build.path().join("new"));
    for (folder, version, word) in [(&old, "1.0.0", "from-old"), (&new, "1.1.0", "from-new")] {
        std::fs::create_dir(folder)?;
        versioned(folder, "engine", version, word)?;
    }
    for isolate in [&[][..], &["--isolate"]] {
        let dir = TempDir::new();
        dir.file("plugin.toml", "[[model]]\nname = \"word\"\n");
        // As a careful copy does it, libraries first: each whole, then under its name.
        let lay = |from: &Path| -> Result<()> {
            for name in ["libdep.so.1", "libplugin.so"] {
                std::fs::copy(from.join("engine").join(name), dir.path().join(".part"))?;
                std::fs::rename(dir.path().join(".part"), dir.path().join(name))?;
            }
            Ok(())
        };
        lay(&old)?;
        let host = Host::start(&[&["--plugin-dir", text(dir.path())][..], isolate].concat());
        assert_eq!(host.answered("word", "which"), "from-old", "{isolate:?}");
        lay(&new)?;
        if isolate.is_empty() {
            let refused = |s: &cascadia_tests::Scrape| {
                s.value("cascadia_plugin_load_errors_total", &[("stage", "open")]).min(1.0)
            };
            host.until("the refusal", 1.0, refused);
            assert_eq!(host.answered("word", "which"), "from-old");
            for word in ["libdep.so.1 is already loaded", "replaced since", "--isolate"] {
                assert!(host.log().contains(word), "{word:?} is missing in {}", host.log());
            }
        } else {
            wait("the new code to answer", || match answer(&host, "word") {
                Ok(found) if found.status() == 200 && found.content() == "from-new" => Ok(()),
                other => Err(format!("{other:?}")),
            });
        }
    }
    Ok(())
}

#[test]
fn a_new_version_under_the_same_name_is_the_new_code() -> Result<()> {
    let (dir, build) = (TempDir::new(), TempDir::new());
    dir.file("plugin.toml", "[[model]]\nname = \"word\"\n");
    let version = |version: &str, word: &str| -> Result<()> {
        let defines = [&*format!("VERSION=\"{version}\""), &*format!("ANSWER=\"{word}\"")];
        let made = build.path().join("libengine.so");
        cc::fixture("engine.c", &made, &Options { defines: &defines, flags: &[], include: None })?;
        // As a careful copy does it: whole, then under its name.
        std::fs::copy(&made, dir.path().join(".part"))?;
        Ok(std::fs::rename(dir.path().join(".part"), dir.path().join("libengine.so"))?)
    };
    let host = Host::start(&["--plugin-dir", text(dir.path())]);
    // The linker would answer the path with the library that it has: each must be its own code.
    for (number, word) in [("1.0.0", "one"), ("1.1.0", "two"), ("1.2.0", "three")] {
        version(number, word)?;
        wait("the new code to answer", || match answer(&host, "word") {
            Ok(found) if found.status() == 200 && found.content() == word => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    assert_eq!(host.scrape().sum("cascadia_worker_restarts_total", &[("reason", "upgraded")]), 2.0);
    let gone =
        std::fs::read_dir(dir.path())?.flatten().any(|e| e.file_name().to_string_lossy().starts_with(".gen"));
    assert!(!gone, "no private copy is left");
    run(&["plugin", "describe", text(&dir.path().join("libengine.so"))]);
    Ok(())
}
