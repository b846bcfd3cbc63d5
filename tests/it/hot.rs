//! Plugin folders while the host runs: what is dropped in serves, a newer one takes over under load, a broken one changes
//! nothing, what is removed drains; and engines that fail or stand still are built anew.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use cascadia_tests::cc;
use cascadia_tests::client::{completion, streamed, with};
use cascadia_tests::host::run;
use cascadia_tests::{Host, TempDir, chat, elf, order, setup, wait};
use serde_json::json;

const CHAT: &str = "/v1/chat/completions";

/// Puts a plugin into a folder the way a careful copy does: whole, then under its name.
fn drop_in(bytes: &[u8], folder: &Path, name: &str) -> Result<()> {
    let part = folder.join(".part");
    fs::write(&part, bytes)?;
    fs::rename(part, folder.join(name))?;
    Ok(())
}

/// A host that follows an empty folder in which the mock will serve the model `mock`.
fn following(args: &[&str]) -> Result<(Host, TempDir, Vec<u8>)> {
    let dir = TempDir::new();
    dir.file("plugin.toml", "[[model]]\nname = \"mock\"\n");
    let folder = dir.path().to_str().expect("PANIC: temporary paths are text").to_owned();
    let host = Host::start(&[&["--plugin-dir", &folder], args].concat());
    Ok((host, dir, fs::read(setup::plugin("mock"))?))
}

fn restarts(host: &Host, reason: &str) -> f64 {
    host.scrape().sum("cascadia_worker_restarts_total", &[("reason", reason)])
}

fn load_errors(host: &Host) -> f64 {
    host.scrape().sum("cascadia_plugin_load_errors_total", &[])
}

#[test]
fn a_dropped_plugin_serves_and_a_removed_one_drains() -> Result<()> {
    let (host, dir, mock) = following(&[])?;
    assert_eq!(host.get("/readyz")?.status(), 503);
    drop_in(&mock, dir.path(), "libmock.so")?;
    host.ready();
    assert_eq!(host.chat("served at once")?.content(), "served at once");
    // One that still answers when its file goes may finish.
    let slow = chat(&order("slow", &json!({"token_delay_ms": 50, "script": [{"repeat": 20, "item": "x"}]})));
    let mut running = host.stream(CHAT, &streamed(slow))?;
    running.pieces(1)?;
    fs::remove_file(dir.path().join("libmock.so"))?;
    wait("the model to be gone", || {
        let left = host.get("/v1/models").map_err(|e| e.to_string())?.json()["data"].clone();
        if left == json!([]) { Ok(()) } else { Err(left.to_string()) }
    });
    let told = running.rest()?;
    assert_eq!((told.finish(), told.pieces.len()), ("stop", 20));
    // Who watches its series sees it down, not gone.
    assert_eq!(host.scrape().value("cascadia_model_up", &[("model", "mock")]), 0.0);
    // It is asked for all the same: who comes now is told to come again, and not that there is no such model.
    let late = host.chat("too late")?;
    assert!(late.head.header("retry-after").is_some());
    let error = late.error(503);
    assert_eq!(error["code"], "engine_unavailable");
    assert_eq!(error["message"], "mock waits for a plugin that brings its engine; try again later");
    let unknown = with(chat("who"), &json!({ "model": "nobody" }));
    assert_eq!(
        host.post(CHAT, &unknown)?.error(404)["message"],
        "there is no model \"nobody\"; there is none now"
    );
    Ok(())
}

#[test]
fn a_host_is_not_ready_while_a_configured_model_waits_for_its_plugin() -> Result<()> {
    let dir = TempDir::new();
    let mock = fs::read(setup::plugin("mock"))?;
    let library = elf::replaced(&mock, "\"id\":\"mock\"", "\"id\":\"mocb\"");
    drop_in(&library, dir.path(), "libmocb.so")?;
    let folder = dir.path().to_str().expect("PANIC: temporary paths are text");
    let models = ["--model", "now=x,engine=mocb/mock", "--model", "later=x,engine=mock/mock"];
    let host = Host::start(&[&["--plugin-dir", folder], &models[..]].concat());
    wait("one to serve", || match host.post(CHAT, &with(chat("a"), &json!({ "model": "now" }))) {
        Ok(answer) if answer.status() == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let told = host.get("/readyz")?;
    assert_eq!(told.status(), 503);
    assert!(told.text().contains("later waits for a plugin"), "{}", told.text());
    assert_eq!(
        host.post(CHAT, &with(chat("a"), &json!({ "model": "later" })))?.error(503)["code"],
        "engine_unavailable"
    );
    drop_in(&mock, dir.path(), "libmock.so")?;
    host.ready();
    Ok(())
}

#[test]
fn a_library_that_is_no_plugin_is_told_in_the_folder_itself_and_not_in_a_bundle() -> Result<()> {
    let (host, dir, mock) = following(&[])?;
    let bundle = dir.path().join("bundle");
    fs::create_dir(&bundle)?;
    cc::fixture(
        "dep.c",
        &bundle.join("libdep.so"),
        &cc::Options { defines: &["ANSWER=\"x\""], ..Default::default() },
    )?;
    drop_in(&mock, dir.path(), "libmock.so")?;
    host.ready();
    assert_eq!(load_errors(&host), 0.0, "{}", host.log());
    fs::copy(bundle.join("libdep.so"), dir.path().join("libdep.so"))?;
    wait("the loose one to be told", || if load_errors(&host) == 1.0 { Ok(()) } else { Err(host.log()) });
    assert!(host.log().contains("libdep.so: is no plugin"), "{}", host.log());
    let folder = dir.path().to_str().expect("PANIC: temporary paths are text");
    let listed = run(&["plugin", "list", "--plugin-dir", folder]);
    assert_eq!(listed.output.matches("is no plugin").count(), 1, "{}", listed.output);
    Ok(())
}

#[test]
fn a_host_starts_with_folders_that_it_would_have_followed() -> Result<()> {
    let dir = TempDir::new();
    let mock = fs::read(setup::plugin("mock"))?;
    for (id, model) in [("mocb", "one"), ("mocc", "two")] {
        let folder = dir.path().join(model);
        fs::create_dir(&folder)?;
        fs::write(folder.join("plugin.toml"), format!("[[model]]\nname = \"{model}\"\n"))?;
        let library = elf::replaced(&mock, "\"id\":\"mock\"", &format!("\"id\":\"{id}\""));
        drop_in(&library, &folder, &format!("lib{id}.so"))?;
    }
    let host = Host::start(&["--plugin-dir", dir.path().to_str().expect("PANIC: temporary paths are text")]);
    host.ready();
    for model in ["one", "two"] {
        let body = with(chat("each by its own"), &json!({ "model": model }));
        assert_eq!(host.post(CHAT, &body)?.content(), "each by its own");
    }
    Ok(())
}

#[test]
fn what_a_file_beside_a_plugin_names_in_addition_is_built_and_nothing_again() -> Result<()> {
    let (host, dir, mock) = following(&[])?;
    drop_in(&mock, dir.path(), "libmock.so")?;
    host.ready();
    let copies = || host.scrape().sum("cascadia_plugin_generations", &[]);
    let before = copies();
    dir.file("plugin.toml", "[[model]]\nname = \"mock\"\n\n# one more\n[[model]]\nname = \"more\"\n");
    let body = with(chat("both are here"), &json!({ "model": "more" }));
    wait("the second model", || match host.post(CHAT, &body) {
        Ok(answer) if answer.status() == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!((host.chat("as before")?.content().as_str(), copies()), ("as before", before));
    dir.file("plugin.toml", "[[model\n");
    wait("the mistake to be told", || {
        if host.log().contains("plugin.toml:") { Ok(()) } else { Err(host.log()) }
    });
    assert_eq!((host.post(CHAT, &body)?.status(), copies()), (200, before));
    assert!(!host.log().contains("building beside the old one"), "{}", host.log());
    Ok(())
}

#[test]
fn copies_of_a_removed_plugin_count_when_it_comes_back() -> Result<()> {
    let (host, dir, mock) = following(&["--plugin-max-generations", "2"])?;
    let copies = |host: &Host| host.scrape().sum("cascadia_plugin_generations", &[]);
    for n in 1..=2 {
        drop_in(&[&mock[..], &vec![0; n]].concat(), dir.path(), "libmock.so")?;
        host.ready();
        assert_eq!((host.chat("here")?.content().as_str(), copies(&host)), ("here", n as f64));
        fs::remove_file(dir.path().join("libmock.so"))?;
        wait("the model to be gone", || match host.chat("gone") {
            Ok(answer) if answer.status() == 503 => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    drop_in(&mock, dir.path(), "libmock.so")?;
    wait("the refusal", || match host.log().contains("too many copies") {
        true => Ok(()),
        false => Err(host.log()),
    });
    assert_eq!(host.chat("no third")?.status(), 503);
    Ok(())
}

#[test]
fn a_newer_plugin_takes_over_under_load_and_no_request_fails() -> Result<()> {
    let (host, dir, mock) = following(&["--max-concurrent", "16", "--max-queued", "200"])?;
    drop_in(&mock, dir.path(), "libmock.so")?;
    host.ready();
    let client = host.client();
    let body = with(
        completion(&order("w", &json!({"token_delay_ms": 20, "script": [{"repeat": 30, "item": "x"}]}))),
        &json!({"max_tokens": 40}),
    );
    let texts: Vec<Result<String>> = std::thread::scope(|scope| {
        let requests: Vec<_> = (0..100)
            .map(|_| {
                let body = &body;
                scope.spawn(move || -> Result<String> {
                    let answer = client.post("/v1/completions", body)?;
                    anyhow::ensure!(answer.status() == 200, "{}", answer.text());
                    Ok(answer.json()["choices"][0]["text"].as_str().unwrap_or_default().to_owned())
                })
            })
            .collect();
        // The same code with other bytes behind its end: a new file, as an upgrade is.
        drop_in(&[&mock[..], b"newer"].concat(), dir.path(), "libmock.so")
            .expect("PANIC: the folder is the test's own");
        // It takes over while requests run.
        let upgraded = host.until("the upgrade", 1.0, |s| {
            s.sum("cascadia_worker_restarts_total", &[("reason", "upgraded")])
        });
        assert!(upgraded.value("cascadia_inflight_tasks", &[]) > 0.0, "nothing was in flight");
        requests.into_iter().map(|r| r.join().expect("PANIC: requests do not panic")).collect()
    });
    for text in texts {
        assert_eq!(text?, "x".repeat(30));
    }
    host.until("the upgrade", 1.0, |s| s.sum("cascadia_worker_restarts_total", &[("reason", "upgraded")]));
    wait("the old engine to be closed", || {
        let workers: Vec<_> =
            host.scrape().all("cascadia_worker_up", &[]).map(|s| format!("{s:?}")).collect();
        if workers.len() == 1 { Ok(()) } else { Err(workers.join(", ")) }
    });
    assert_eq!(host.chat("and on")?.content(), "and on");
    Ok(())
}

#[test]
fn a_broken_newer_plugin_is_reported_and_the_old_one_goes_on() -> Result<()> {
    let (host, dir, mock) = following(&[])?;
    drop_in(&mock, dir.path(), "libmock.so")?;
    host.ready();
    drop_in(&mock[..mock.len() / 2], dir.path(), "libmock.so")?;
    wait("the truncated file to be counted", || match load_errors(&host) {
        n if n >= 1.0 => Ok(()),
        n => Err(n.to_string()),
    });
    assert_eq!(host.chat("as before")?.content(), "as before");
    assert!(host.log().contains("is truncated"), "{}", host.log());
    assert_eq!(restarts(&host, "upgraded"), 0.0);
    // A whole one after it is taken.
    drop_in(&[&mock[..], b"mended"].concat(), dir.path(), "libmock.so")?;
    host.until("the upgrade", 1.0, |s| s.sum("cascadia_worker_restarts_total", &[("reason", "upgraded")]));
    assert_eq!(host.chat("better")?.content(), "better");
    Ok(())
}

#[test]
fn a_copy_that_stalls_is_left_alone_until_it_is_whole() -> Result<()> {
    let (host, dir, mock) = following(&[])?;
    let told = |host: &Host| host.log().matches("still being copied").count();
    let path = dir.path().join("libmock.so");
    let mut slow = fs::File::create(&path)?;
    // The pause is longer than the quiet time, else it would not be noticed.
    slow.write_all(&mock[..100_000])?;
    wait("the pause to be noticed", || if told(&host) == 1 { Ok(()) } else { Err(host.log()) });
    slow.write_all(&mock[100_000..])?;
    drop(slow);
    host.ready();
    assert_eq!(host.chat("whole at last")?.content(), "whole at last");
    assert_eq!((told(&host), load_errors(&host)), (1, 0.0), "{}", host.log());
    Ok(())
}

#[test]
fn an_overwrite_in_place_of_a_running_plugin_does_not_touch_the_running_one() -> Result<()> {
    let (host, dir, mock) = following(&[])?;
    drop_in(&mock, dir.path(), "libmock.so")?;
    host.ready();
    // What a careless `cp` does: the same inode with other content.
    fs::write(dir.path().join("libmock.so"), vec![0_u8; mock.len()])?;
    for i in 0..20 {
        let words = format!("word {i}");
        assert_eq!(host.chat(&words)?.content(), words);
    }
    Ok(())
}

#[test]
fn an_engine_that_failed_is_built_anew() -> Result<()> {
    let host = Host::mock(&[]);
    for (fault, words) in [(json!({"panic_in": "step"}), "panic"), (json!({"step_error_after": 1}), "error")]
    {
        let told = host.told(CHAT, &streamed(chat(&order("a b c", &fault))));
        // Whatever the client saw, its task failed and was booked so.
        drop(told);
        wait("the engine to serve again", || match host.chat(words) {
            Ok(answer) if answer.status() == 200 => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    assert_eq!(restarts(&host, "failed"), 2.0);
    let metrics = host.quiet();
    assert_eq!((metrics.ended("error"), metrics.ended("stop")), (2.0, 2.0));
    Ok(())
}

#[test]
fn an_engine_that_stands_still_is_given_up_and_built_anew() -> Result<()> {
    let host = Host::mock(&["--set", "limits.stall_timeout=1s"]);
    let answer =
        host.post(CHAT, &chat(&order("a b c", &json!({"stall_after": 1, "ignore_cancel": true}))))?;
    let error = answer.error(500);
    assert!(error["message"].as_str().is_some_and(|m| m.contains("no progress")), "{error}");
    wait("the engine to serve again", || match host.chat("again") {
        Ok(answer) if answer.status() == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(restarts(&host, "stalled"), 1.0);
    Ok(())
}

#[test]
fn when_the_newer_file_goes_the_other_one_takes_over() -> Result<()> {
    let (host, dir, mock) = following(&[])?;
    drop_in(&mock, dir.path(), "libmock.so")?;
    host.ready();
    // Of the same version, so it is passed over while the first one is there.
    drop_in(&[&mock[..], b"other"].concat(), dir.path(), "libother.so")?;
    wait("the other file to be passed over", || {
        if host.log().contains("not newer") { Ok(()) } else { Err(host.log()) }
    });
    fs::remove_file(dir.path().join("libmock.so"))?;
    host.until("the upgrade", 1.0, |s| s.sum("cascadia_worker_restarts_total", &[("reason", "upgraded")]));
    // Without an outage: nothing was refused meanwhile, and nothing is now.
    assert_eq!(host.chat("still there")?.content(), "still there");
    assert_eq!(host.scrape().value("cascadia_model_up", &[("model", "mock")]), 1.0);
    // When the last one goes, the model does.
    fs::remove_file(dir.path().join("libother.so"))?;
    wait("the model to be gone", || match host.chat("gone").map(|a| a.status()) {
        Ok(404 | 503) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // And when it comes back it is served, without a word about its own name.
    drop_in(&mock, dir.path(), "libmock.so")?;
    host.ready();
    assert_eq!(host.chat("back")?.content(), "back");
    assert!(!host.log().contains("not served"), "{}", host.log());
    Ok(())
}

#[test]
fn a_bad_file_that_is_there_at_the_start_is_told_once() -> Result<()> {
    let dir = TempDir::new();
    dir.file("plugin.toml", "[[model]]\nname = \"mock\"\n");
    let mock = fs::read(setup::plugin("mock"))?;
    drop_in(&mock[..5000], dir.path(), "libcut.so")?;
    // One that was written a moment ago could still grow.
    let long_ago = SystemTime::now() - Duration::from_secs(60);
    fs::File::options().write(true).open(dir.path().join("libcut.so"))?.set_modified(long_ago)?;
    let folder = dir.path().to_str().expect("PANIC: temporary paths are text");
    let host = Host::start(&["--plugin-dir", folder]);
    // What comes after it has been looked at: by then it would have been told again.
    drop_in(&mock, dir.path(), "libmock.so")?;
    host.ready();
    assert_eq!(load_errors(&host), 1.0, "{}", host.log());
    Ok(())
}

#[test]
fn mistakes_that_a_dropped_plugin_could_still_mend_are_told_at_the_start() -> Result<()> {
    let dir = TempDir::new();
    dir.file("plugin.toml", "[[model]]\nname = \"mock\"\nengine = \"zzz\"\n");
    drop_in(&fs::read(setup::plugin("mock"))?, dir.path(), "libmock.so")?;
    let folder = dir.path().to_str().expect("PANIC: temporary paths are text");
    let host = Host::start(&["--plugin-dir", folder, "--isolate=mokk", "--plugin-opt", "mok.slots=3"]);
    wait("the start to be over", || {
        let log = host.log();
        let told = ["mokk", "options are given for mok", "zzz"].iter().all(|words| log.contains(words));
        if told { Ok(()) } else { Err(log) }
    });
    // A plugin.toml that is none takes nothing else down.
    let broken = TempDir::new();
    broken.file("plugin.toml", "[[model]]\nname = \"a\"\nnam = \"b\"\n");
    drop_in(&fs::read(setup::plugin("mock"))?, broken.path(), "libmock.so")?;
    let folder = broken.path().to_str().expect("PANIC: temporary paths are text");
    let host = Host::start(&["--plugin-dir", folder]);
    wait("the mistake to be told", || {
        let log = host.log();
        if log.contains("plugin.toml:3: ") && log.contains("`nam`") { Ok(()) } else { Err(log) }
    });
    assert_eq!(host.get("/livez")?.status(), 200);
    Ok(())
}
