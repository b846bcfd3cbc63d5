//! Plugin files, sound and unsound, and a second plugin that the host has never seen.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Result;
use cascadia_tests::client::{CHAT, chat, order, streamed, with};
use cascadia_tests::crate_build::{self, Crate};
use cascadia_tests::host::run;
use cascadia_tests::{Host, TempDir, elf, setup};
use serde_json::{Value, json};

/// A spoilt library, the stage at which it is found out, and what the host says.
struct Bad {
    file: &'static str,
    content: Vec<u8>,
    stage: &'static str,
    words: &'static str,
}

/// Each way to be no good plugin that shows before any of its code runs.
fn bad_files() -> Vec<Bad> {
    let good = std::fs::read(setup::plugin("mock")).expect("PANIC: the plugin is there");
    let bad = |file, content: Vec<u8>, stage, words| Bad { file, content, stage, words };
    vec![
        bad("libtruncated.so", good[..good.len() / 2].to_vec(), "precheck", "truncated"),
        bad("libstub.so", good[..100].to_vec(), "precheck", "truncated"),
        bad("libtext.so", b"#!/bin/sh\necho I am a library\n".repeat(10), "precheck", "no ELF header"),
        bad("libempty.so", Vec::new(), "precheck", "is empty"),
        bad("libmachine.so", elf::of_machine(&good, 183), "precheck", "another processor"),
        bad(
            "libnosection.so",
            elf::replaced(&good, ".cascadia.manifest", ".cascadia.monifest"),
            "manifest",
            "no section .cascadia.manifest",
        ),
        bad(
            "libmajor.so",
            elf::replaced(&good, "\"abi\":[1,0]", "\"abi\":[2,0]"),
            "manifest",
            "speaks ABI 2.0",
        ),
        bad("libdraft.so", elf::with_other_draft(&good), "manifest", "another draft of table"),
        bad(
            "libneeds.so",
            elf::replaced(&good, "\"requires\": []", "\"requires\":[1]"),
            "manifest",
            "manifest is not readable",
        ),
    ]
}

/// Sound by its file, unsound when it is opened. Each has an id of its own.
fn bad_when_opened() -> Vec<Bad> {
    let good = std::fs::read(setup::plugin("mock")).expect("PANIC: the plugin is there");
    let named = |id: &str| elf::replaced(&good, "\"id\":\"mock\"", &format!("\"id\":\"{id}\""));
    vec![
        Bad {
            file: "libnoentry.so",
            content: elf::replaced(&named("noen"), "cascadia_entry", "cascadia_entrx"),
            stage: "entry",
            words: "does not export cascadia_entry",
        },
        Bad {
            file: "libunresolved.so",
            content: elf::replaced(&named("unre"), "libgcc_s.so.1", "libgcx_s.so.1"),
            stage: "open",
            words: "libgcx_s.so.1",
        },
    ]
}

fn text(path: &std::path::Path) -> &str {
    path.to_str().expect("PANIC: test folders have plain names")
}

#[test]
fn a_bad_plugin_that_was_asked_for_ends_the_host_with_its_own_reason() {
    let dir = TempDir::new();
    for bad in bad_files().into_iter().chain(bad_when_opened()) {
        let path = dir.file(bad.file, &bad.content);
        let ended = run(&["--plugin", text(&path), "--api", "127.0.0.1:0"]);
        ended.complains(1, &[bad.file, bad.words]);
    }
}

#[test]
fn bad_files_in_a_plugin_folder_are_each_told_and_the_good_one_serves() -> Result<()> {
    let dir = TempDir::new();
    std::fs::copy(setup::plugin("mock"), dir.path().join("libmock.so"))?;
    let bad = bad_files();
    for one in bad.iter().chain(&bad_when_opened()) {
        let path = dir.file(one.file, &one.content);
        // One that was written a moment ago and is not whole could still be on its way.
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
        std::fs::File::options().write(true).open(path)?.set_modified(long_ago)?;
    }
    // What is no library of a plugin by its name is not looked at.
    dir.file("README.md", "text");
    dir.file(".gen-libx.so", "half a copy");
    let host = Host::start(&["--plugin-dir", text(dir.path()), "--engine", "mock/mock"]);
    host.ready();
    assert_eq!(host.chat("good")?.content(), "good");
    let log = host.log_lines();
    for one in &bad {
        let about = |line: &&Value| line["message"].as_str().is_some_and(|m| m.contains(one.file));
        let lines: Vec<_> = log.iter().filter(about).collect();
        assert_eq!(lines.len(), 1, "{} is told once", one.file);
        assert_eq!(lines[0]["stage"], one.stage, "{}", lines[0]);
        assert!(lines[0]["message"].as_str().is_some_and(|m| m.contains(one.words)), "{}", lines[0]);
    }
    let metrics = host.scrape();
    for stage in ["precheck", "manifest"] {
        let expected = bad.iter().filter(|b| b.stage == stage).count();
        assert_eq!(metrics.value("cascadia_plugin_load_errors_total", &[("stage", stage)]), expected as f64);
    }
    assert_eq!(metrics.sum("cascadia_plugin_load_errors_total", &[]), bad.len() as f64);
    Ok(())
}

#[test]
fn a_plugin_that_fails_to_open_beside_a_good_one_costs_its_own_model_only() -> Result<()> {
    let dir = TempDir::new();
    let good = setup::plugin("mock");
    for bad in bad_when_opened() {
        let path = dir.file(bad.file, &bad.content);
        let engine = if bad.stage == "open" { "unre" } else { "noen" };
        let broken = format!("broken=/x,engine={engine}");
        let host = Host::start(&[
            "--plugin",
            text(&good),
            "--plugin",
            text(&path),
            "--model",
            "good=/x,engine=mock/mock",
            "--model",
            &broken,
        ]);
        host.until("load errors", 1.0, |s| {
            s.value("cascadia_plugin_load_errors_total", &[("stage", bad.stage)])
        });
        assert_eq!(host.answered("good", "a"), "a");
        let body = |model: &str| with(chat("a"), &json!({"model": model}));
        assert_eq!(host.post(CHAT, &body("broken"))?.error(503)["code"], "engine_unavailable");
        let ready = host.get("/readyz")?;
        assert_eq!(ready.status(), 503);
        assert!(ready.text().contains(bad.words), "{}", ready.text());
    }
    Ok(())
}

#[test]
fn a_plugin_that_other_users_may_write_is_refused() -> Result<()> {
    let dir = TempDir::new();
    let path = dir.path().join("libmock.so");
    std::fs::copy(setup::plugin("mock"), &path)?;
    let chmod =
        |path: &std::path::Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    chmod(&path, 0o666)?;
    run(&["--plugin", text(&path)]).complains(1, &["libmock.so", "writable by other users", "chmod o-w"]);
    chmod(&path, 0o644)?;
    chmod(dir.path(), 0o777)?;
    run(&["--plugin", text(&path)]).complains(1, &["writable by other users"]);
    // A folder for all, whose files only their owners may replace, is fine.
    chmod(dir.path(), 0o1777)?;
    let host = Host::start(&["--plugin", text(&path)]);
    host.ready();
    chmod(dir.path(), 0o700)?;
    Ok(())
}

#[test]
fn a_missing_plugin_is_told_with_the_places_that_were_looked_at() {
    let dir = TempDir::new();
    run(&["--plugin", "/nowhere/libx.so"]).complains(1, &["/nowhere/libx.so"]);
    let ended = run(&["--plugin", "no-such-engine", "--plugin-dir", text(dir.path())]);
    let beside = setup::bin_dir().join("libno_such_engine.so").display().to_string();
    let inside = dir.path().join("libno_such_engine.so").display().to_string();
    ended.complains(1, &["no-such-engine", &beside, &inside, "--plugin-dir"]);
    run(&["--plugin-dir", "/nowhere"]).complains(2, &["/nowhere"]);
    run(&[]).complains(2, &["no plugin to serve with"]);
}

#[test]
fn a_plugin_is_found_by_its_bare_name_beside_the_host_and_not_in_the_working_directory() -> Result<()> {
    let host = Host::start(&["--plugin", "mock"]);
    host.ready();
    assert_eq!(host.chat("found")?.content(), "found");
    // The tests' working directory is the crate's: a file there is not looked at.
    run(&["--plugin", "Cargo.toml"]).complains(1, &["not found"]);
    Ok(())
}

#[test]
fn two_plugins_of_one_id_are_refused_and_several_engines_need_a_choice() -> Result<()> {
    let dir = TempDir::new();
    let good = setup::plugin("mock");
    let copy = dir.path().join("libcopy.so");
    std::fs::copy(&good, &copy)?;
    run(&["--plugin", text(&good), "--plugin", text(&copy)]).complains(2, &["there twice", "libcopy.so"]);
    let bytes = std::fs::read(&good)?;
    let other = dir.file("libother.so", elf::replaced(&bytes, "\"id\":\"mock\"", "\"id\":\"othr\""));
    let ended = run(&["--plugin", text(&good), "--plugin", text(&other)]);
    ended.complains(2, &["mock/mock", "othr/mock", "--engine"]);
    Ok(())
}

const ECHO: &str = r#"//! A plugin of another author: answers with its mark and the prompt in capitals.
use cascadia_plugin_api::sdk::{
    Builder, Card, Chunk, Engine, EngineInfo, Finish, Load, Next, Plugin, Progress, Result, Serial, SerialEngine,
    Shard, Sink, Task, Worker,
};
use std::time::Duration;

const MARK: &str = "@MARK@";

struct Echo;

impl Plugin for Echo {
    fn engines() -> &'static [EngineInfo] {
        &[EngineInfo { name: "echo", description: "the prompt in capitals" }]
    }

    fn builder(_engine: &str, _worker: Worker) -> Result<Box<dyn Builder>> {
        Ok(Box::new(Setup { times: 1 }))
    }
}

struct Setup {
    times: usize,
}

impl Builder for Setup {
    fn configure(&mut self, options: &[(&str, &str)]) -> Result<()> {
        for (key, value) in options {
            if *key == "times" {
                self.times = value.parse().unwrap_or(1);
            }
        }
        Ok(())
    }

    fn load(&mut self, _shard: &Shard, _progress: &Progress) -> Result<()> {
        Ok(())
    }

    fn build(self: Box<Self>) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Serial::new(Shouter { times: self.times, tasks: Vec::new() }, 8)))
    }
}

struct Shouter {
    times: usize,
    tasks: Vec<(u64, Vec<String>)>,
}

impl SerialEngine for Shouter {
    type Limits = ();

    fn check(_limits: &(), _task: &Task) -> Result<()> {
        Ok(())
    }

    fn limits(&self) {}

    fn start(&mut self, task: Task, _sink: &mut Sink) {
        let prompt: Vec<u8> = task.tokens.iter().filter_map(|t| u8::try_from(*t).ok()).collect();
        let prompt = String::from_utf8_lossy(&prompt).to_uppercase();
        let mut pieces = vec![MARK.to_owned()];
        pieces.extend((0..self.times).flat_map(|_| prompt.split_whitespace()).map(|w| format!(" {w}")));
        pieces.reverse();
        self.tasks.push((task.id, pieces));
    }

    fn step(&mut self, _budget: Duration, sink: &mut Sink) -> Result<Next> {
        self.tasks.retain_mut(|(task, pieces)| match pieces.pop() {
            Some(piece) => {
                sink.push(&[Chunk { task: *task, tokens: &[7], bytes: piece.as_bytes(), ..Chunk::default() }]);
                true
            }
            None => {
                sink.push(&[Chunk { task: *task, finish: Finish::Stop, ..Chunk::default() }]);
                false
            }
        });
        Ok(if self.tasks.is_empty() { Next::Idle } else { Next::More })
    }

    fn cancel(&mut self, task: u64, sink: &mut Sink) {
        if self.tasks.iter().any(|(id, _)| *id == task) {
            self.tasks.retain(|(id, _)| *id != task);
            sink.push(&[Chunk { task, finish: Finish::Cancelled, ..Chunk::default() }]);
        }
    }

    fn has_room(&self) -> bool {
        self.tasks.len() < 4
    }

    fn card(&self) -> Card {
        Card {
            tokenizer: "bytes".into(),
            chat_template: "{% for m in messages %}{{ m.content }}{% endfor %}".into(),
            device: "none".into(),
            ..Card::default()
        }
    }

    fn load(&self) -> Load {
        Load { running: u32::try_from(self.tasks.len()).unwrap_or(0), ..Load::default() }
    }
}

cascadia_plugin_api::export_plugin! { plugin: Echo, id: "second-echo", about: include_str!("../manifest.json") }
"#;

const ECHO_MANIFEST: &str = r#"{
  "engines": [{ "name": "echo", "description": "the prompt in capitals" }],
  "license": "Apache-2.0",
  "requires": ["cascadia.host.log/1"],
  "options": { "times": { "type": "integer", "default": 1, "minimum": 1, "description": "how often" } }
}"#;

/// Builds the second plugin now, with a mark that only this build has.
fn second_plugin(dir: &TempDir) -> Result<(PathBuf, String)> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let mark = format!("built-{}", now.as_nanos());
    let source = ECHO.replace("@MARK@", &mark);
    let plugin = Crate { name: "second-echo", source: &source, manifest: ECHO_MANIFEST, api: None };
    let library = crate_build::build(&plugin, &dir.path().join("second-echo"))?;
    Ok((library, mark))
}

#[test]
fn a_second_plugin_built_after_the_host_is_served_by_it() -> Result<()> {
    let dir = TempDir::new();
    let program = std::fs::metadata(setup::host_program())?.modified()?;
    let (library, mark) = second_plugin(&dir)?;
    // By its file, with an option of its own.
    let host = Host::start(&["--plugin", text(&library), "--plugin-opt", "second-echo.times=2"]);
    host.ready();
    let body = with(chat("hello plugin"), &json!({"model": "echo"}));
    let expected = format!("{mark} HELLO PLUGIN HELLO PLUGIN");
    assert_eq!(host.post(CHAT, &body)?.content(), expected);
    let told = host.told(CHAT, &streamed(body))?;
    assert_eq!((told.text, told.pieces.len()), (expected, 5));
    let metrics = host.quiet();
    assert_eq!(metrics.value("cascadia_tokens_generated_total", &[("model", "echo")]), 10.0);
    assert_eq!(metrics.ended("stop"), 2.0);
    let worker = [("model", "echo"), ("worker", "second-echo/echo-0")];
    assert_eq!(metrics.value("cascadia_worker_up", &worker), 1.0);
    drop(host);
    // Dropped into a folder, beside the mock, both served at once.
    std::fs::copy(&library, dir.path().join("libsecond_echo.so"))?;
    std::fs::copy(setup::plugin("mock"), dir.path().join("libmock.so"))?;
    let host = Host::start(&[
        "--plugin-dir",
        text(dir.path()),
        "--model",
        "loud=/x,engine=second-echo",
        "--model",
        "mock=/x,engine=mock/mock",
    ]);
    host.ready();
    let loud = with(chat("a"), &json!({"model": "loud"}));
    assert_eq!(host.post(CHAT, &loud)?.content(), format!("{mark} A"));
    assert_eq!(host.chat(&order("a", &json!({})))?.content(), "a");
    assert_eq!(host.get("/v1/models")?.json()["data"].as_array().map_or(0, Vec::len), 2);
    assert_eq!(std::fs::metadata(setup::host_program())?.modified()?, program, "the host is the same file");
    assert!(std::fs::metadata(&library)?.modified()? > program, "the plugin is younger than the host");
    Ok(())
}
