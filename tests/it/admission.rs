//! Slots, the queue and its deadline; how overload reads for a client and for Prometheus.

use anyhow::Result;
use cascadia_tests::Host;
use cascadia_tests::client::{CHAT, COMPLETIONS, Call, Stream, chat, completion, order, streamed};
use cascadia_tests::http::Request;
use serde_json::{Value, json};

/// A stream that holds its slot after one token.
fn hold(host: &Host, id: &str) -> Result<Stream> {
    let body = streamed(chat(&order("a b", &json!({"stall_after": 1}))));
    let mut stream = host.begin(&Request::post(CHAT, &body).header("x-request-id", id))?.stream()?;
    stream.pieces(1)?;
    Ok(stream)
}

#[track_caller]
fn is_capacity(error: &Value) {
    assert_eq!((&error["code"], &error["type"]), (&json!("capacity"), &json!("service_unavailable")));
}

#[test]
fn without_a_queue_the_request_over_the_limit_is_refused_at_once() -> Result<()> {
    let host = Host::mock(&["--max-concurrent", "2", "--max-queued", "0"]);
    let held = [hold(&host, "a")?, hold(&host, "b")?];
    for (path, body) in [(CHAT, chat("x")), (CHAT, streamed(chat("x"))), (COMPLETIONS, completion("x"))] {
        is_capacity(&host.post(path, &body)?.error(503));
    }
    let metrics = host.scrape();
    assert_eq!((metrics.rejected("capacity"), metrics.all_rejected()), (3.0, 3.0));
    assert_eq!((metrics.value("cascadia_inflight_tasks", &[]), metrics.all_ended()), (2.0, 0.0));
    drop(held);
    host.until("cancelled", 2.0, |s| s.ended("cancelled"));
    assert_eq!(host.chat("free")?.content(), "free");
    Ok(())
}

#[test]
fn a_full_queue_refuses_and_a_freed_slot_goes_to_the_first_who_waits() -> Result<()> {
    let host = Host::mock(&["--max-concurrent", "1", "--max-queued", "2"]);
    let holder = hold(&host, "holder")?;
    let first =
        host.begin(&Request::post(CHAT, &streamed(chat(&order("first", &json!({"stall_after": 1}))))))?;
    host.queued(1);
    let mut second = host.begin(&Request::post(CHAT, &chat("second")))?;
    let metrics = host.queued(2);
    assert_eq!(metrics.value("cascadia_inflight_tasks", &[]), 3.0, "who waits is admitted");
    assert_eq!(metrics.value("cascadia_engine_requests_running", &[]), 1.0);
    is_capacity(&host.chat("third")?.error(503));
    host.cancel("holder")?;
    assert_eq!(holder.rest()?.finish(), "stop");
    // Only the first runs now.
    let mut first = first.stream()?;
    assert_eq!(first.pieces(1)?, ["first"]);
    assert_eq!(host.queued(1).value("cascadia_engine_requests_running", &[]), 1.0);
    drop(first);
    assert_eq!(second.answer()?.content(), "second");
    let metrics = host.quiet();
    assert_eq!((metrics.rejected("capacity"), metrics.all_rejected()), (1.0, 1.0));
    assert_eq!((metrics.all_ended(), metrics.ended("stop")), (3.0, 1.0));
    // The one that was admitted at once waited 0 seconds and is a sample too.
    assert_eq!(metrics.value("cascadia_queue_wait_seconds_count", &[]), 3.0);
    assert_eq!(metrics.value("cascadia_queue_wait_seconds_bucket", &[("le", "0.001")]), 1.0);
    Ok(())
}

#[test]
fn a_wait_over_the_deadline_is_a_503_that_says_so() -> Result<()> {
    let host = Host::mock(&["--max-concurrent", "1", "--queue-timeout", "200ms"]);
    let held = hold(&host, "a")?;
    let error = host.chat("x")?.error(503);
    is_capacity(&error);
    assert!(error["message"].as_str().is_some_and(|m| m.contains("200ms")), "{error}");
    let metrics = host.scrape();
    assert_eq!((metrics.rejected("capacity"), metrics.all_ended()), (1.0, 0.0));
    assert_eq!(metrics.value("cascadia_queue_depth", &[]), 0.0);
    assert_eq!(metrics.value("cascadia_inflight_tasks", &[]), 1.0);
    drop(held);
    host.quiet();
    Ok(())
}

#[test]
fn the_queue_holds_twice_the_slots_unless_told_otherwise() -> Result<()> {
    let host = Host::mock(&["--max-concurrent", "1"]);
    let holder = hold(&host, "holder")?;
    let waiting: Vec<Call> =
        (0..2).map(|_| host.begin(&Request::post(CHAT, &chat("w")))).collect::<Result<_>>()?;
    host.queued(2);
    is_capacity(&host.chat("x")?.error(503));
    drop(holder);
    for mut call in waiting {
        assert_eq!(call.answer()?.content(), "w");
    }
    assert_eq!(host.quiet().ended("stop"), 2.0);
    Ok(())
}

#[test]
fn a_full_queue_of_the_engine_is_capacity_too() -> Result<()> {
    let host = Host::mock(&["--plugin-opt", "mock.slots=1", "--plugin-opt", "mock.max-waiting=1"]);
    let a = hold(&host, "a")?;
    // The engine has accepted and not begun it.
    let mut b = host.begin(&Request::post(CHAT, &chat("b")))?;
    host.until("waiting in the engine", 1.0, |s| s.value("cascadia_engine_requests_waiting", &[]));
    is_capacity(&host.chat("c")?.error(503));
    let metrics = host.scrape();
    assert_eq!((metrics.rejected("capacity"), metrics.value("cascadia_queue_depth", &[])), (1.0, 0.0));
    assert_eq!(metrics.value("cascadia_inflight_tasks", &[]), 2.0);
    drop(a);
    assert_eq!(b.answer()?.content(), "b");
    assert_eq!(host.quiet().all_ended(), 2.0);
    Ok(())
}
