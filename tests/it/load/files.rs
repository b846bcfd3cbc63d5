//! Files that are no plugin, libraries that do not open, starts that fail.

use std::path::PathBuf;

use anyhow::Result;
use cascadia_tests::cc::{self, Options};
use cascadia_tests::crate_build::{self, Crate};
use cascadia_tests::host::{run, run_with};
use cascadia_tests::{Host, TempDir, elf, setup};

use super::{last_words, text};

#[test]
fn each_unsound_file_is_refused_in_one_line() -> Result<()> {
    let dir = TempDir::new();
    let good = std::fs::read(cc::fixture("engine.c", &dir.path().join("libgood.so"), &Options::default())?)?;
    let mock = std::fs::read(setup::plugin("mock"))?;
    let size = good.len();
    let cases: [(&str, &[u8], &str); 7] = [
        ("libtext.so", b"#!/bin/sh\necho a library\n", "is not a shared library (no ELF header)"),
        ("libempty.so", b"", "is empty"),
        ("lib64bytes.so", &good[..64], "is truncated: "),
        ("lib200kB.so", &mock[..200_000], "is truncated: segment "),
        ("libhalf.so", &good[..size / 2], "is truncated: segment "),
        ("libtail.so", &good[..size - 100], "is truncated: "),
        (
            "libaarch64.so",
            &elf::of_machine(&good, 183),
            "is built for another processor (ELF machine 183, this host is x86-64)",
        ),
    ];
    for (name, content, words) in cases {
        let path = dir.file(name, content);
        let said = last_words(&run(&["--plugin", text(&path)]), &path);
        assert!(said.starts_with(words), "{name}: {said}");
        if words.ends_with("segment ") {
            assert!(said.ends_with(&format!("the file has {}", content.len())), "{name}: {said}");
        }
    }
    let folder = dir.path().join("libfolder.so");
    std::fs::create_dir(&folder)?;
    assert_eq!(last_words(&run(&["--plugin", text(&folder)]), &folder), "is not a file");
    let absent = dir.path().join("libabsent.so");
    let said = last_words(&run(&["--plugin", text(&absent)]), &absent);
    assert!(said.starts_with("cannot be read: No such file or directory"), "{said}");
    Ok(())
}

#[test]
fn each_library_that_cannot_be_opened_is_refused_in_one_line() -> Result<()> {
    let dir = TempDir::new();
    let compiled = |name: &str, defines: &[&str], flags: &[&str]| {
        cc::fixture("engine.c", &dir.path().join(name), &Options { defines, flags, include: None })
    };
    // Needed when it was linked, gone when it is opened.
    let gone = dir.path().join("libgone.so");
    cc::fixture("dep.c", &gone, &Options { defines: &["ANSWER=\"x\""], flags: &[], include: None })?;
    let soname = ["-Wl,--no-as-needed", text(&gone), "-Wl,-rpath,$ORIGIN"];
    let needs = compiled("libneeds.so", &[], &soname)?;
    std::fs::remove_file(&gone)?;
    let cases: [(PathBuf, &str); 3] = [
        (needs, "libgone.so: cannot open shared object file: No such file or directory"),
        (compiled("libundefined.so", &["UNDEFINED"], &[])?, "undefined symbol: symbol_that_nobody_has"),
        (compiled("libnoentry.so", &["NO_ENTRY"], &[])?, "is no plugin: it does not export cascadia_entry"),
    ];
    for (path, words) in cases {
        let said = last_words(&run(&["--plugin", text(&path), "--api", "127.0.0.1:0"]), &path);
        assert!(said.ends_with(words), "{said}");
        assert!(!said.contains(".gen-"), "a copy that is gone is no name for a person: {said}");
    }
    Ok(())
}

const MANIFEST: &str = r#"{"engines": [{"name": "none", "description": "no engine"}]}"#;

#[test]
fn a_start_that_fails_is_refused_with_its_own_words() -> Result<()> {
    let dir = TempDir::new();
    let c = Options { defines: &["INIT_FAILS"], ..Options::default() };
    let c = cc::fixture("engine.c", &dir.path().join("libfails.so"), &c)?;
    let said = last_words(&run(&["--plugin", text(&c), "--api", "127.0.0.1:0"]), &c);
    assert_eq!(said, "licence file missing");
    let cpp = Options { defines: &["INIT_THROWS"], ..Options::default() };
    let cpp = cc::fixture("thrower.cpp", &dir.path().join("libthrows.so"), &cpp)?;
    let said = last_words(&run(&["--plugin", text(&cpp), "--api", "127.0.0.1:0"]), &cpp);
    assert_eq!(said, "the start went wrong");

    let source = std::fs::read_to_string(setup::root().join("tests/rust/starter.rs"))?;
    let rust = Crate { name: "bad-start", source: &source, manifest: MANIFEST, api: None };
    let rust = crate_build::build(&rust, &dir.path().join("bad-start"))?.canonicalize()?;
    let ended = |start| {
        last_words(&run_with(&["--plugin", text(&rust), "--api", "127.0.0.1:0"], &[("START", start)]), &rust)
    };
    assert_eq!(ended("error"), "licence file missing; put it beside the plugin");
    assert_eq!(ended("panic"), "the plugin panicked: the start was told to panic");
    // Beside a sound one it costs its own model only, and the host lives.
    let good = setup::plugin("mock");
    let broken = "broken=/x,engine=bad-start";
    let args = ["--plugin", text(&rust), "--plugin", text(&good), "--model", broken];
    let host = Host::start_with(
        &[&args[..], &["--model", "mock=/x,engine=mock/mock"]].concat(),
        &[("START", "panic")],
    );
    assert_eq!(host.answered("mock", "still here"), "still here");
    Ok(())
}
