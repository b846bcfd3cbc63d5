//! From start to end: readiness, draining, the deadline, the second signal.

use anyhow::Result;
use cascadia_tests::client::{CHAT, Stream, chat, check_error, order, streamed};
use cascadia_tests::http::Request;
use cascadia_tests::{Host, setup, wait};
use serde_json::json;

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// A stream of words that takes its time.
fn slow_words(host: &Host, words: &str, delay_ms: u32) -> Result<Stream> {
    let body = streamed(chat(&order(words, &json!({"token_delay_ms": delay_ms}))));
    let mut stream = host.stream(CHAT, &body)?;
    stream.pieces(1)?;
    Ok(stream)
}

fn is_ready(host: &Host) -> Result<bool> {
    let answer = host.get("/readyz")?;
    let status = answer.status();
    assert!(status == 200 || status == 503, "{status}");
    Ok(status == 200)
}

#[test]
fn while_the_engine_loads_the_host_lives_and_is_not_ready() -> Result<()> {
    let plugin = setup::plugin("mock");
    let plugin = plugin.display().to_string();
    // It would load for longer than any test waits.
    let mut host = Host::start(&["--plugin", &plugin, "--plugin-opt", "mock.load-delay-ms=3600000"]);
    wait("the model to be listed as loading", || {
        let answer = host.get("/readyz").map_err(|e| format!("{e:#}"))?;
        assert_eq!(answer.status(), 503);
        let text = answer.text();
        if text.contains("mock is loading") { Ok(()) } else { Err(text) }
    });
    for path in ["/health", "/health/ready"] {
        assert_eq!(host.get(path)?.status(), 503, "{path}");
    }
    for path in ["/livez", "/health/live", "/metrics"] {
        assert_eq!(host.get(path)?.status(), 200, "{path}");
    }
    for body in [chat("x"), streamed(chat("x"))] {
        assert_eq!(host.post(CHAT, &body)?.error(503)["code"], "engine_unavailable");
    }
    let metrics = host.scrape();
    assert_eq!((metrics.rejected("engine_unavailable"), metrics.all_rejected()), (2.0, 2.0));
    assert_eq!(metrics.all_ended(), 0.0);
    // A signal ends it although the engine is not done.
    host.signal(SIGTERM);
    assert_eq!(host.ended().code(), Some(0));
    Ok(())
}

#[test]
fn an_engine_that_does_not_come_up_ends_the_host_with_its_reason() {
    let plugin = setup::plugin("mock").display().to_string();
    for (option, words) in [
        ("mock.fail-load=no such weights", "no such weights"),
        ("mock.fail-build=no memory", "no memory"),
        ("mock.fail-warmup=no device", "no device"),
        ("mock.panic-in=build", "panic"),
    ] {
        let ended =
            cascadia_tests::host::run(&["--plugin", &plugin, "--api", "127.0.0.1:0", "--plugin-opt", option]);
        assert_eq!(ended.status.code(), Some(1), "{option}: {}", ended.complaint);
        let last = ended.complaint.lines().last().unwrap_or_default().to_owned();
        assert!(last.contains(words), "{option}: {last}");
    }
}

#[test]
fn a_drain_lets_running_generations_end_and_refuses_new_ones() -> Result<()> {
    let mut host = Host::mock(&["--max-concurrent", "4"]);
    let words: Vec<String> = (0..100).map(|i| format!("w{i}")).collect();
    let stream = slow_words(&host, &words.join(" "), 20)?;
    let prompt = order("a b c d e f", &json!({"token_delay_ms": 200}));
    let mut whole = host.begin(&Request::post(CHAT, &chat(&prompt)))?;
    host.running(2);
    assert!(is_ready(&host)?);
    host.signal(SIGTERM);
    wait("the host not to be ready", || match is_ready(&host) {
        Ok(false) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // Still alive, and it refuses.
    assert_eq!(host.get("/livez")?.status(), 200);
    for body in [chat("x"), streamed(chat("x"))] {
        assert_eq!(host.post(CHAT, &body)?.error(503)["code"], "draining");
    }
    let metrics = host.scrape();
    assert_eq!((metrics.rejected("engine_unavailable"), metrics.all_rejected()), (2.0, 2.0));
    assert_eq!(metrics.all_ended(), 0.0);
    // Old requests end as if nothing were.
    assert_eq!(whole.answer()?.content(), "a b c d e f");
    let told = stream.rest()?;
    assert_eq!((told.text, told.pieces.len()), (words.join(" "), 100));
    assert_eq!(told.finish, ["stop"]);
    assert_eq!(host.ended().code(), Some(0));
    Ok(())
}

#[test]
fn the_interrupt_of_a_terminal_drains_too() -> Result<()> {
    let mut host = Host::mock(&[]);
    let stream = slow_words(&host, "a b c d e", 100)?;
    host.signal(SIGINT);
    assert_eq!(stream.rest()?.text, "a b c d e");
    assert_eq!(host.ended().code(), Some(0));
    Ok(())
}

#[test]
fn after_the_drain_deadline_what_still_runs_gets_an_error_and_books_teardown() -> Result<()> {
    // An engine that takes its time to close leaves time to look at the metrics.
    let mut host = Host::mock(&[
        "--drain-timeout",
        "300ms",
        "--max-concurrent",
        "3",
        "--plugin-opt",
        "mock.close-delay-ms=4000",
    ]);
    let stalled = chat(&order("a b c", &json!({"stall_after": 2})));
    let mut stream = host.stream(CHAT, &streamed(stalled.clone()))?;
    stream.pieces(2)?;
    let before_first =
        host.begin(&Request::post(CHAT, &streamed(chat(&order("a", &json!({"stall_after": 0}))))))?;
    let mut whole = host.begin(&Request::post(CHAT, &stalled))?;
    host.running(3);
    let mut waiting = host.begin(&Request::post(CHAT, &chat("queued")))?;
    host.queued(1);
    host.signal(SIGTERM);
    let told = stream.rest()?;
    assert_eq!((told.text.as_str(), told.finish.len(), told.done), ("a b", 0, true));
    let error = told.error.expect("PANIC: an error frame");
    check_error(&json!({"error": error}));
    assert_eq!((&error["code"], &error["type"]), (&json!("draining"), &json!("service_unavailable")));
    assert_eq!(whole.answer()?.error(503)["code"], "draining");
    assert_eq!(waiting.answer()?.error(503)["code"], "draining");
    // Before the first token it depends on whether the head had left: a 503, or an error frame.
    let mut early = before_first;
    let answer = early.answer()?;
    match answer.status() {
        503 => assert_eq!(answer.error(503)["code"], "draining"),
        200 => assert!(answer.text().contains("draining") && answer.text().ends_with("data: [DONE]\n\n")),
        other => panic!("{other}: {}", answer.text()),
    }
    let metrics = host.until("teardown samples", 4.0, |s| s.ended("teardown"));
    assert_eq!(metrics.all_ended(), 4.0);
    assert_eq!(metrics.value("cascadia_inflight_tasks", &[]), 0.0);
    for name in ["cascadia_tasks_cancelled_total", "cascadia_tasks_failed_total"] {
        assert_eq!(metrics.value(name, &[]), 0.0, "{name}");
    }
    assert_eq!(metrics.all_rejected(), 0.0);
    assert_eq!(host.ended().code(), Some(0));
    Ok(())
}

#[test]
fn a_second_signal_ends_at_once() -> Result<()> {
    for (first, second, code) in [(SIGTERM, SIGTERM, 143), (SIGTERM, SIGINT, 130), (SIGINT, SIGTERM, 143)] {
        let mut host = Host::mock(&["--drain-timeout", "1h"]);
        let mut stream = host.stream(CHAT, &streamed(chat(&order("a b", &json!({"stall_after": 1})))))?;
        stream.pieces(1)?;
        host.signal(first);
        wait("the drain to begin", || match is_ready(&host) {
            Ok(false) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        assert!(host.is_running());
        host.signal(second);
        assert_eq!(host.ended().code(), Some(code));
    }
    Ok(())
}

#[test]
fn an_engine_that_hangs_or_panics_in_close_does_not_keep_the_host() -> Result<()> {
    for option in ["mock.close-delay-ms=3600000", "mock.panic-in=close"] {
        let mut host = Host::mock(&["--drain-timeout", "1s", "--plugin-opt", option]);
        assert_eq!(host.chat("a")?.content(), "a");
        host.signal(SIGTERM);
        assert_eq!(host.ended().code(), Some(0), "{option}");
    }
    Ok(())
}

#[test]
fn the_port_is_free_after_the_end_and_taken_before_it() -> Result<()> {
    let mut host = Host::mock(&[]);
    let address = host.client().address.to_string();
    let plugin = setup::plugin("mock").display().to_string();
    let second = cascadia_tests::host::run(&["--plugin", &plugin, "--api", &address]);
    second.complains(1, &["cannot listen on", &address, "--api"]);
    host.signal(SIGTERM);
    assert_eq!(host.ended().code(), Some(0));
    drop(std::net::TcpListener::bind(&address)?);
    Ok(())
}
