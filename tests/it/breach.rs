//! What a plugin does against the boundary's rules: refused where it happens, counted by its kind, told once, and no
//! answer is the worse for it.

use anyhow::Result;
use cascadia_tests::cc::{self, Options};
use cascadia_tests::client::{CHAT, chat, with};
use cascadia_tests::{Host, TempDir, order, wait};
use serde_json::{Value, json};

fn breaches(host: &Host, kind: &str) -> f64 {
    host.scrape().value("cascadia_plugin_protocol_errors_total", &[("kind", kind)])
}

/// The lines of the log that tell a breach of that kind.
fn told(host: &Host, kind: &str) -> usize {
    let tells = |line: &&Value| line["kind"] == kind && line["level"] == "WARN";
    host.log_lines().iter().filter(tells).count()
}

/// Two tasks that each commit a breach: both answered whole, both counted, one line in the log; nothing else is amiss.
fn costs_nothing(fault: &str, kind: &str) -> Result<()> {
    let host = Host::mock(&[]);
    let before = host.scrape().sum("cascadia_plugin_protocol_errors_total", &[]);
    assert_eq!(before, 0.0);
    for _ in 0..2 {
        assert_eq!(host.chat(&order("a b", &json!({fault: true})))?.content(), "a b");
    }
    assert_eq!(breaches(&host, kind), 2.0);
    assert_eq!(host.scrape().sum("cascadia_plugin_protocol_errors_total", &[]), 2.0, "of no other kind");
    assert_eq!(told(&host, kind), 1, "told once a worker:\n{}", host.log());
    let metrics = host.quiet();
    assert_eq!((metrics.ended("stop"), metrics.sum("cascadia_worker_restarts_total", &[])), (2.0, 0.0));
    Ok(())
}

#[test]
fn breaches_of_an_isolated_engine_are_counted_and_told_by_the_host() -> Result<()> {
    let host = Host::mock(&["--isolate"]);
    for (n, (fault, kind)) in
        [("push_from_thread", "push_other_thread"), ("unknown_finish", "bad_chunk")].into_iter().enumerate()
    {
        assert_eq!(host.chat(&order("a b", &json!({fault: true})))?.content(), "a b");
        host.until("the breach", 1.0, |s| {
            s.value("cascadia_plugin_protocol_errors_total", &[("kind", kind)])
        });
        assert_eq!(host.scrape().sum("cascadia_plugin_protocol_errors_total", &[]), n as f64 + 1.0);
        let tells = |line: &&Value| line["level"] == "WARN" && line.to_string().contains(kind);
        assert_eq!(host.log_lines().iter().filter(tells).count(), 1, "{}", host.log());
    }
    Ok(())
}

#[test]
fn a_push_from_another_thread_is_refused_and_counted() -> Result<()> {
    costs_nothing("push_from_thread", "push_other_thread")
}

#[test]
fn a_push_after_step_returned_is_refused_and_counted() -> Result<()> {
    costs_nothing("push_in_submit", "push_outside_step")
}

#[test]
fn a_chunk_for_a_task_that_nobody_gave_is_counted_and_told() -> Result<()> {
    costs_nothing("unknown_task", "unknown_task")
}

#[test]
fn a_second_finish_is_counted_and_told() -> Result<()> {
    costs_nothing("double_finish", "unknown_task")
}

#[test]
fn a_finish_that_means_nothing_is_counted_and_told() -> Result<()> {
    costs_nothing("unknown_finish", "bad_chunk")
}

#[test]
fn a_token_without_a_text_is_counted_and_told() -> Result<()> {
    let host = Host::mock(&[]);
    // With the tokenizer "bytes" an id above 255 is nobody's.
    let script = json!({"script": [{"ids": [72]}, {"ids": [300]}, {"ids": [105]}]});
    for _ in 0..2 {
        assert_eq!(host.chat(&order("a b", &script))?.content(), "Hi");
    }
    assert_eq!(breaches(&host, "unknown_token"), 2.0);
    assert_eq!(host.scrape().sum("cascadia_plugin_protocol_errors_total", &[]), 2.0, "of no other kind");
    assert_eq!(told(&host, "unknown_token"), 1, "told once a worker:\n{}", host.log());
    Ok(())
}

#[test]
fn services_for_an_engine_that_was_destroyed_are_answered_and_counted() -> Result<()> {
    let host = Host::mock(&["--plugin-opt", "mock.stale-worker=true"]);
    assert_eq!(breaches(&host, "service_after_destroy"), 0.0, "the first engine has none before it");
    host.chat(&order("a", &json!({"step_error_after": 0})))?.error(500);
    wait("the engine to serve again", || match host.chat("again") {
        Ok(answer) if answer.status() == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // wake, heartbeat, cancel, metrics.
    assert_eq!(breaches(&host, "service_after_destroy"), 4.0);
    assert_eq!(told(&host, "service_after_destroy"), 1, "{}", host.log());
    assert_eq!(host.chat("sound")?.content(), "sound");
    Ok(())
}

#[test]
fn a_worker_that_never_was_is_nobody() -> Result<()> {
    let dir = TempDir::new();
    let options = Options { defines: &["STRANGER"], ..Options::default() };
    let library = cc::fixture("engine.c", &dir.path().join("libstranger.so"), &options)?;
    let host = Host::start(&["--plugin", library.to_str().expect("PANIC: temporary paths are text")]);
    host.ready();
    assert_eq!(host.post(CHAT, &with(chat("x"), &json!({"model": "word"})))?.content(), "sound");
    assert_eq!(breaches(&host, "unknown_worker"), 2.0);
    assert_eq!(told(&host, "unknown_worker"), 1, "{}", host.log());
    Ok(())
}

#[test]
fn an_engine_whose_warm_up_failed_is_destroyed() -> Result<()> {
    let dir = TempDir::new();
    dir.file("plugin.toml", "[[model]]\nname = \"mock\"\n");
    std::fs::copy(cascadia_tests::setup::plugin("mock"), dir.path().join("libmock.so"))?;
    let folder = dir.path().to_str().expect("PANIC: temporary paths are text");
    let options = ["--plugin-opt", "mock.fail-warmup=cold", "--plugin-opt", "mock.stale-worker=true"];
    let host = Host::start(&[&["--plugin-dir", folder][..], &options].concat());
    // The next engine calls for the one before it: that one must be gone, and not lie in memory for ever.
    wait("the second build to call for the first engine", || {
        match breaches(&host, "service_after_destroy") {
            n if n >= 4.0 => Ok(()),
            n => Err(n.to_string()),
        }
    });
    assert!(host.scrape().value("cascadia_plugin_load_errors_total", &[("stage", "warmup")]) >= 1.0);
    Ok(())
}
