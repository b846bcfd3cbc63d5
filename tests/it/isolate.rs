//! `--isolate`: an engine in a process of its own serves as one in the host does, and takes nothing else down with it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use cascadia_tests::client::{CHAT, completion, streamed, with};
use cascadia_tests::{Host, chat, order, setup, sys, wait};
use serde_json::json;

/// Process ids of the host's children that run plugins, oldest first, as its log tells them.
fn children(host: &Host) -> Vec<u32> {
    let lines = host.log_lines();
    let told = lines.iter().filter(|line| line["message"] == "engine runs in a process of its own");
    told.filter_map(|line| line["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())).collect()
}

#[track_caller]
fn child(host: &Host) -> u32 {
    *children(host).last().expect("PANIC: an isolated engine was built")
}

fn is_there(pid: u32) -> bool {
    // A process that was not waited for is still there, dead.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z') && !rest.is_empty())
}

#[track_caller]
fn gone(pid: u32) {
    wait("the child to be gone", || if is_there(pid) { Err(format!("process {pid}")) } else { Ok(()) });
}

#[track_caller]
fn serves_again(host: &Host) {
    wait("the engine to serve again", || match host.chat("again") {
        Ok(answer) if answer.status() == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

fn restarts(host: &Host, reason: &str) -> f64 {
    host.scrape().sum("cascadia_worker_restarts_total", &[("reason", reason)])
}

#[test]
fn an_isolated_engine_serves_like_one_in_the_host() -> Result<()> {
    let host = Host::mock(&["--isolate", "--plugin-opt", "mock.prefix-cache=8"]);
    assert_eq!(host.chat("one two three")?.content(), "one two three");
    let told = host.told(CHAT, &streamed(chat("streamed as well")))?;
    assert_eq!((told.text.as_str(), told.finish()), ("streamed as well", "stop"));
    // Refusals are real statuses, though the engine answers from elsewhere.
    let refused = host.post(CHAT, &chat(&order("x", &json!({"submit_error": "queue_full"}))))?;
    refused.error(503);
    let refused = host.post(CHAT, &chat(&order("x", &json!({"submit_error": "prompt_too_long"}))))?;
    assert_eq!(refused.error(413)["code"], "context_length_exceeded");
    // The plugin's series, load and log arrive.
    host.until("the plugin's own count", 2.0, |s| {
        s.sum("cascadia_plugin_mock_tasks_total", &[("outcome", "stop")])
    });
    let metrics = host.quiet();
    assert!(metrics.sum("cascadia_engine_steps_total", &[]) > 0.0);
    assert!(metrics.sum("cascadia_engine_tokens_cached", &[]) > 0.0);
    assert_eq!(metrics.sum("cascadia_plugin_generations", &[]), 0.0, "nothing of it is open in the host");
    assert!(host.log().contains("mock model loaded"), "{}", host.log());
    Ok(())
}

#[test]
fn sixteen_isolated_streams_run_at_once_and_cancelled_ones_end() -> Result<()> {
    let host = Host::mock(&["--isolate"]);
    let client = host.client();
    let long = json!({"token_delay_ms": 5, "script": [{"repeat": 400, "item": "x"}]});
    std::thread::scope(|scope| {
        let streams: Vec<_> = (0..16)
            .map(|i| {
                let body = streamed(with(chat(&order("w", &long)), &json!({"max_tokens": 1000})));
                scope.spawn(move || -> Result<usize> {
                    let mut stream = client.stream(CHAT, &body)?;
                    stream.pieces(3)?;
                    // Every second client leaves.
                    if i % 2 == 0 { Ok(0) } else { Ok(stream.rest()?.pieces.len()) }
                })
            })
            .collect();
        for (i, stream) in streams.into_iter().enumerate() {
            let pieces = stream.join().expect("PANIC: no thread panics")?;
            ensure!(pieces == if i % 2 == 0 { 0 } else { 400 }, "stream {i} has {pieces} pieces");
        }
        Ok(())
    })?;
    let metrics = host.quiet();
    assert_eq!((metrics.ended("cancelled"), metrics.ended("stop")), (8.0, 8.0));
    Ok(())
}

#[test]
fn every_way_of_crashing_is_an_error_on_its_own_tasks_and_a_restart() -> Result<()> {
    let plugin = setup::plugin("mock");
    let plugin = plugin.to_str().context("a path")?;
    // A second model of the same plugin: it must not notice. The bound is for the one that takes all memory.
    let models = ["--model", "mock=/dev/null,engine=mock", "--model", "other=/dev/null,engine=mock"];
    let bound = ["--set", "plugins.isolate_memory=1GiB"];
    let host = Host::start(&[&["--plugin", plugin, "--isolate=mock"], &models[..], &bound].concat());
    host.ready();
    let ways = [("segfault_in", "SIGSEGV"), ("exit_in", "exited with status 3"), ("hog_in", "SIGABRT")];
    for (n, (fault, words)) in ways.into_iter().enumerate() {
        let slow = json!({"token_delay_ms": 20, "script": [{"repeat": 2000, "item": "x"}]});
        let body = streamed(with(chat(&order("slow", &slow)), &json!({"max_tokens": 3000})));
        let other = with(body.clone(), &json!({"model": "other"}));
        let (mut running, mut bystander) = (host.stream(CHAT, &body)?, host.stream(CHAT, &other)?);
        running.pieces(1)?;
        bystander.pieces(1)?;
        let broken = chat(&order("boom", &json!({fault: "step"})));
        let error = host.post(CHAT, &broken)?;
        assert!(error.status() >= 500, "{fault}: {}", error.text());
        assert!(error.text().contains(words), "{fault}: {words:?} is not in {}", error.text());
        let told = running.rest()?;
        let error = told.error.context("the stream beside it ends with an error frame")?;
        assert!(error["message"].as_str().is_some_and(|m| m.contains(words)), "{error}");
        assert!(told.done);
        bystander.pieces(1)?;
        drop(bystander);
        serves_again(&host);
        assert_eq!(restarts(&host, "failed"), (n + 1) as f64, "{fault}");
    }
    host.quiet();
    Ok(())
}

#[test]
fn a_child_that_is_killed_is_noticed_though_nobody_asks() {
    let host = Host::mock(&["--isolate"]);
    let first = child(&host);
    sys::signal_id(first, libc::SIGKILL);
    host.until("the restart", 1.0, |s| s.sum("cascadia_worker_restarts_total", &[("reason", "failed")]));
    serves_again(&host);
    assert_ne!(child(&host), first);
}

#[test]
fn a_child_that_stands_still_is_killed_and_replaced() -> Result<()> {
    let host = Host::mock(&["--isolate", "--set", "limits.stall_timeout=1s"]);
    let first = child(&host);
    sys::signal_id(first, libc::SIGSTOP);
    // Streaming or not, the host itself stays quick: other calls are answered while the child is stopped.
    let client = host.client();
    std::thread::scope(|scope| -> Result<()> {
        let stuck = scope.spawn(move || client.chat("into the void"));
        assert_eq!(host.get("/livez")?.status(), 200);
        let answer = stuck.join().expect("PANIC: no thread panics")?;
        assert!(answer.status() >= 500, "{}", answer.text());
        Ok(())
    })?;
    serves_again(&host);
    assert_eq!(restarts(&host, "stalled"), 1.0);
    gone(first);
    Ok(())
}

#[test]
fn the_child_dies_with_its_host_however_that_dies() {
    for (number, stopped) in [
        (libc::SIGTERM, false),
        (libc::SIGKILL, false),
        (libc::SIGABRT, false),
        // Even a child that cannot do anything about it.
        (libc::SIGKILL, true),
    ] {
        let mut host = Host::mock(&["--isolate"]);
        let pid = child(&host);
        assert!(is_there(pid));
        if stopped {
            sys::signal_id(pid, libc::SIGSTOP);
        }
        host.signal(number);
        host.ended();
        gone(pid);
    }
}

#[test]
fn signals_of_the_terminal_and_the_manager_leave_the_child_to_its_host() -> Result<()> {
    let mut host = Host::mock(&["--isolate"]);
    let pid = child(&host);
    let slow = json!({"token_delay_ms": 20, "script": [{"repeat": 50, "item": "x"}]});
    let mut running =
        host.stream(CHAT, &streamed(with(chat(&order("w", &slow)), &json!({"max_tokens": 99}))))?;
    running.pieces(1)?;
    // A service manager signals every process of a service at once.
    sys::signal_id(pid, libc::SIGTERM);
    sys::signal_id(pid, libc::SIGINT);
    host.signal(libc::SIGTERM);
    let told = running.rest()?;
    assert_eq!((told.finish(), told.pieces.len()), ("stop", 50));
    assert!(host.ended().success());
    gone(pid);
    Ok(())
}

#[test]
fn failures_of_the_build_are_told_as_by_an_engine_in_the_host() {
    let plugin = setup::plugin("mock");
    let plugin = plugin.to_str().expect("PANIC: the target folder's path is text");
    for (option, words) in [
        ("mock.fail-load=no such weights", "no such weights"),
        ("mock.fail-warmup=too cold", "too cold"),
        (r#"mock.order={"segfault_in":"submit"}"#, "SIGSEGV"),
        (r#"mock.order={"fail_after":0,"error_message":"not today"}"#, "not today"),
    ] {
        let ended = cascadia_tests::host::run(&[
            "--plugin",
            plugin,
            "--isolate",
            "--api",
            ":0",
            "--plugin-opt",
            option,
        ]);
        ended.complains(1, &[words]);
    }
    let option = "mock.panic-in=build";
    let args = ["--plugin", plugin, "--isolate", "--api", ":0", "--plugin-opt", option];
    let ended = cascadia_tests::host::run(&args);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.complaint);
    assert!(ended.complaint.contains("the plugin panicked"), "{}", ended.complaint);
    let unknown = cascadia_tests::host::run(&["--plugin", plugin, "--isolate=mocc", "--api", ":0"]);
    unknown.complains(2, &["mocc", "loaded: mock"]);
}

#[test]
fn an_isolated_plugin_is_upgraded_under_load_and_leaves_nothing_behind() -> Result<()> {
    let dir = cascadia_tests::TempDir::new();
    dir.file("plugin.toml", "[[model]]\nname = \"mock\"\n");
    let folder = dir.path().to_str().context("a path")?.to_owned();
    let host = Host::start(&["--plugin-dir", &folder, "--isolate", "--plugin-max-generations", "1"]);
    let mock = std::fs::read(setup::plugin("mock"))?;
    let drop_in = |bytes: &[u8]| -> Result<()> {
        let part = dir.path().join(".part");
        std::fs::write(&part, bytes)?;
        Ok(std::fs::rename(part, dir.path().join("libmock.so"))?)
    };
    drop_in(&mock)?;
    host.ready();
    let first = child(&host);
    let body = with(
        completion(&order("w", &json!({"token_delay_ms": 20, "script": [{"repeat": 10, "item": "x"}]}))),
        &json!({"max_tokens": 20}),
    );
    let client = host.client();
    std::thread::scope(|scope| -> Result<()> {
        let requests: Vec<_> =
            (0..40).map(|_| scope.spawn(|| client.post("/v1/completions", &body))).collect();
        // More copies than the bound: they do not stay in the host's memory, so it does not count them.
        for round in 1..=2 {
            drop_in(&[&mock[..], &vec![0; round]].concat())?;
            host.until("the upgrade", round as f64, |s| {
                s.sum("cascadia_worker_restarts_total", &[("reason", "upgraded")])
            });
        }
        for request in requests {
            let answer = request.join().expect("PANIC: no thread panics")?;
            assert_eq!(answer.content(), "x".repeat(10));
        }
        Ok(())
    })?;
    gone(first);
    let left: Vec<_> = list(dir.path()).into_iter().filter(|name| name.starts_with(".gen-")).collect();
    assert_eq!(left, Vec::<String>::new(), "no private copy stays");
    Ok(())
}

fn list(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_start_after_a_crash_suggests_isolation() -> Result<()> {
    let state = cascadia_tests::TempDir::new();
    let state = state.path().to_str().context("a path")?;
    let plugin = setup::plugin("mock");
    let plugin = plugin.to_str().context("a path")?;
    let start = |flags: &[&str]| {
        let host = Host::start_with(&[&["--plugin", plugin], flags].concat(), &[("STATE_DIRECTORY", state)]);
        host.ready();
        host
    };
    let suggests = |host: &Host| host.log().contains("--isolate=mock");
    let mut crashed = start(&[]);
    assert!(!suggests(&crashed));
    // In the host's process, what the mock does the host does.
    assert!(crashed.post(CHAT, &chat(&order("x", &json!({"segfault_in": "step"})))).is_err());
    assert!(!crashed.ended().success());
    let mut next = start(&[]);
    assert!(suggests(&next), "{}", next.log());
    next.signal(libc::SIGTERM);
    assert!(next.ended().success());
    // After an end in good order there is nothing to suggest.
    assert!(!suggests(&start(&[])));
    Ok(())
}
