//! Generations that end early: by the cancel route, by a client that leaves, by a client that does not read. Each frees
//! its slot and its engine, and books one sample. Tests are named after the symptoms that users of other servers reported.

use std::time::{Duration, Instant};

use anyhow::Result;
use cascadia_tests::client::{CHAT, COMPLETIONS, Call, Stream, chat, completion, order, streamed, with};
use cascadia_tests::http::{Connection, Request};
use cascadia_tests::{Host, Scrape, wait};
use serde_json::{Value, json};

/// A chat that would go on for longer than any test.
fn endless() -> Value {
    chat(&order("word", &json!({"repeat": 20_000, "token_delay_ms": 20})))
}

/// A chat that gives `n` tokens and then nothing.
fn stalled(n: u64) -> Value {
    chat(&order(&"w ".repeat(20), &json!({"stall_after": n})))
}

/// A chat that an engine answers at full speed, without end as far as a test sees.
fn flat_out() -> Value {
    chat(&order("w", &json!({"repeat": 1_000_000_000_u64})))
}

fn with_id(body: &Value, id: &str) -> Request {
    Request::post(CHAT, body).header("x-request-id", id)
}

/// One cancelled generation and nothing else, and the engine knows.
#[track_caller]
fn one_cancelled(host: &Host, generations: f64) -> Scrape {
    host.until("cancelled samples", generations, |s| s.ended("cancelled"));
    let metrics = host.quiet();
    assert_eq!(metrics.value("cascadia_tasks_cancelled_total", &[]), generations);
    assert_eq!(metrics.value("cascadia_tasks_failed_total", &[]), 0.0);
    metrics
}

#[test]
fn the_id_of_an_answer_cancels_its_stream() -> Result<()> {
    let host = Host::mock(&[]);
    for (path, body) in
        [(CHAT, stalled(3)), (COMPLETIONS, completion(&order("a b c d", &json!({"stall_after": 3}))))]
    {
        let mut stream = host.stream(path, &streamed(body))?;
        let text = stream.pieces(3)?.concat();
        let id = stream.id()?;
        host.cancel(&id)?;
        let told = stream.rest()?;
        assert_eq!((&told.text, told.finish(), told.completion_tokens()), (&text, "stop", 3));
    }
    let metrics = one_cancelled(&host, 2.0);
    assert_eq!((metrics.all_ended(), metrics.mock_tasks("cancelled")), (2.0, 2.0));
    assert_eq!(metrics.requests("/v1/cancel/:task_id", "200"), 2.0);
    assert_eq!(metrics.generated(), 6.0);
    Ok(())
}

#[test]
fn the_clients_own_id_cancels_a_stream_and_a_whole_answer() -> Result<()> {
    let host = Host::mock(&[]);
    let mut stream = host.begin(&with_id(&streamed(stalled(2)), "mine-1"))?.stream()?;
    assert_eq!(stream.head.header("x-request-id"), Some("mine-1"));
    stream.pieces(2)?;
    host.cancel("mine-1")?;
    assert_eq!(stream.rest()?.finish(), "stop");
    // A whole answer has no id that its client could know, but the client's own.
    let mut call = host.begin(&with_id(&stalled(2), "mine-2"))?;
    host.until("tokens of the engine", 4.0, |s| s.mock_tokens());
    host.cancel("mine-2")?;
    let answer = call.answer()?;
    assert_eq!((answer.content().as_str(), answer.finish().as_str()), ("w w", "stop"));
    assert_eq!(answer.completion_tokens(), 2);
    let metrics = one_cancelled(&host, 2.0);
    assert_eq!((metrics.all_ended(), metrics.generated()), (2.0, 4.0));
    Ok(())
}

#[test]
fn an_id_in_the_body_is_the_requests_and_a_second_one_beside_a_header() -> Result<()> {
    let host = Host::mock(&[]);
    let named = |body: Value, id: &Value| with(body, &json!({"request_id": id}));
    let mut stream = host.stream(CHAT, &named(streamed(stalled(1)), &json!("mine-1")))?;
    assert_eq!(stream.head.header("x-request-id"), Some("mine-1"));
    stream.pieces(1)?;
    let error = host.post(CHAT, &named(chat("x"), &json!("mine-1")))?.error(409);
    assert_eq!((&error["code"], &error["param"]), (&json!("duplicate_request"), &json!("request_id")));
    host.cancel("mine-1")?;
    assert_eq!(stream.rest()?.finish(), "stop");
    // A proxy may have set the header: it is told, and either cancels.
    for cancelled in ["theirs", "mine-2"] {
        let body = named(streamed(stalled(1)), &json!("mine-2"));
        let mut stream = host.begin(&with_id(&body, "theirs"))?.stream()?;
        assert_eq!(stream.head.header("x-request-id"), Some("theirs"));
        stream.pieces(1)?;
        host.cancel(cancelled)?;
        assert_eq!(stream.rest()?.finish(), "stop");
    }
    // The same twice is one.
    assert_eq!(host.call(&with_id(&named(chat("x"), &json!("same")), "same"))?.content(), "x");
    for bad in [json!(7), json!(""), json!("a b"), json!("\u{e4}"), json!("x".repeat(129))] {
        let error = host.post(CHAT, &named(chat("x"), &bad))?.error(400);
        assert_eq!((&error["code"], &error["param"]), (&json!("invalid_value"), &json!("request_id")));
    }
    one_cancelled(&host, 3.0);
    Ok(())
}

#[test]
fn cancelling_an_unknown_id_is_a_200_and_leaves_nothing_behind() -> Result<()> {
    let host = Host::mock(&[]);
    host.cancel("never-seen")?;
    // An id that was cancelled before it ran is not remembered.
    let answer = host.call(&with_id(&chat("a b"), "never-seen"))?;
    assert_eq!((answer.content().as_str(), answer.finish().as_str()), ("a b", "stop"));
    // Nor is an ended one that is cancelled afterwards.
    host.cancel("never-seen")?;
    let mut stream = host.begin(&with_id(&streamed(stalled(1)), "running"))?.stream()?;
    stream.pieces(1)?;
    for i in 0..2_000 {
        host.cancel(&format!("unknown-{i}"))?;
    }
    assert_eq!(host.scrape().all_ended(), 1.0, "the running one goes on");
    host.cancel("running")?;
    assert_eq!(stream.rest()?.finish(), "stop");
    let metrics = one_cancelled(&host, 1.0);
    assert_eq!(
        metrics.all("cascadia_http_requests_total", &[("endpoint", "/v1/cancel/:task_id")]).count(),
        1
    );
    Ok(())
}

#[test]
fn a_running_request_id_cannot_be_used_twice() -> Result<()> {
    let host = Host::mock(&[]);
    let mut stream = host.begin(&with_id(&streamed(stalled(1)), "same"))?.stream()?;
    stream.pieces(1)?;
    for body in [chat("x"), streamed(chat("x"))] {
        let error = host.call(&with_id(&body, "same"))?.error(409);
        assert_eq!((&error["code"], &error["param"]), (&json!("duplicate_request"), &json!("x-request-id")));
    }
    // The refused ones have not taken the first one's place.
    host.cancel("same")?;
    assert_eq!(stream.rest()?.finish(), "stop");
    let metrics = one_cancelled(&host, 1.0);
    assert_eq!((metrics.all_ended(), metrics.all_rejected()), (1.0, 0.0));
    assert_eq!(host.call(&with_id(&chat("again"), "same"))?.content(), "again");
    Ok(())
}

#[test]
fn generation_does_not_go_on_after_its_client_was_killed() -> Result<()> {
    let host = Host::mock(&["--max-concurrent", "1"]);
    let mut stream = host.stream(CHAT, &streamed(endless()))?;
    stream.pieces(2)?;
    drop(stream);
    let metrics = one_cancelled(&host, 1.0);
    assert_eq!((metrics.all_ended(), metrics.mock_tasks("cancelled")), (1.0, 1.0));
    // The same with a whole answer, which has sent no byte yet.
    let call = host.begin(&Request::post(CHAT, &endless()))?;
    host.running(1);
    drop(call);
    let metrics = one_cancelled(&host, 2.0);
    assert_eq!((metrics.all_ended(), metrics.mock_tasks("cancelled")), (2.0, 2.0));
    assert_eq!(metrics.requests(CHAT, "499"), 1.0);
    // The slot is free.
    assert_eq!(host.chat("next")?.content(), "next");
    Ok(())
}

#[test]
fn a_client_that_sent_its_next_request_and_left_is_noticed_although_nobody_read_that() -> Result<()> {
    let host = Host::mock(&["--max-concurrent", "1"]);
    let next = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 600000\r\n\r\n");
    let more = next.clone() + &" ".repeat(40_000);
    let (mut n, mut kept) = (0.0, Vec::new());
    for (body, behind, whole) in [
        (stalled(2), &next, true),
        (streamed(stalled(2)), &next, true),
        (stalled(2), &more, false),
        (streamed(stalled(2)), &more, false),
    ] {
        let mut connection = Connection::open(host.client().address)?;
        connection.send(&Request::post(CHAT, &body))?;
        host.running(1);
        host.until("tokens of the engine", 2.0 * (n + 1.0), |s| s.mock_tokens());
        connection.send_all(behind.as_bytes())?;
        let left = Instant::now();
        // Whether it has gone altogether or only will send no more.
        if whole {
            drop(connection);
        } else {
            connection.no_more()?;
            kept.push(connection);
        }
        n += 1.0;
        one_cancelled(&host, n);
        assert!(left.elapsed() < Duration::from_secs(5), "noticed after {:?}", left.elapsed());
    }
    // One that stays is answered, in turn.
    let mut connection = Connection::open(host.client().address)?;
    for words in ["first", "second"] {
        connection.send(&Request::post(CHAT, &chat(words)))?;
    }
    for words in ["first", "second"] {
        assert_eq!(connection.head()?.status, 200);
        assert!(String::from_utf8(connection.body()?)?.contains(words));
    }
    assert_eq!(host.quiet().mock_tasks("cancelled"), n);
    Ok(())
}

#[test]
fn a_lone_whole_answer_notices_that_its_client_left_although_the_engine_is_always_ready() -> Result<()> {
    let host = Host::mock(&["--plugin-opt", "mock.context-length=4000000000"]);
    let call = host.begin(&Request::post(CHAT, &flat_out()))?;
    host.running(1);
    call.reset();
    let metrics = one_cancelled(&host, 1.0);
    assert_eq!((metrics.all_ended(), metrics.requests(CHAT, "499")), (1.0, 1.0));
    // Nothing reached a client.
    assert_eq!(metrics.generated(), 0.0);
    assert_eq!(metrics.value("cascadia_generation_ttft_seconds_count", &[]), 0.0);
    // Eight together.
    let calls: Vec<Call> =
        (0..8).map(|_| host.begin(&Request::post(CHAT, &flat_out()))).collect::<Result<_>>()?;
    host.running(8);
    drop(calls);
    let metrics = one_cancelled(&host, 9.0);
    assert_eq!((metrics.all_ended(), metrics.requests(CHAT, "499")), (9.0, 9.0));
    Ok(())
}

#[test]
fn who_left_the_queue_is_not_generated() -> Result<()> {
    let host = Host::mock(&["--max-concurrent", "1", "--max-queued", "4"]);
    let mut a = host.begin(&with_id(&streamed(stalled(1)), "a"))?.stream()?;
    a.pieces(1)?;
    let b = host.begin(&Request::post(CHAT, &streamed(chat("b"))))?;
    host.queued(1);
    let mut c = host.begin(&Request::post(CHAT, &chat("c")))?;
    let waiting = host.queued(2);
    assert_eq!(waiting.value("cascadia_inflight_tasks", &[]), 3.0);
    drop(b);
    host.queued(1);
    host.inflight(2);
    let metrics = host.scrape();
    assert_eq!((metrics.ended("cancelled"), metrics.requests(CHAT, "499")), (1.0, 1.0));
    assert_eq!(metrics.value("cascadia_tasks_cancelled_total", &[]), 1.0);
    assert_eq!(metrics.value("cascadia_generation_ttft_seconds_count", &[]), 1.0, "that of a");
    host.cancel("a")?;
    assert_eq!(a.rest()?.finish(), "stop");
    assert_eq!(c.answer()?.content(), "c");
    let metrics = one_cancelled(&host, 2.0);
    assert_eq!(metrics.all_ended(), 3.0);
    // The engine has never heard of b.
    let heard: f64 = ["stop", "cancelled", "length", "error"].iter().map(|o| metrics.mock_tasks(o)).sum();
    assert_eq!(heard, 2.0);
    // Its wait has no end, so it is no sample.
    assert_eq!(metrics.value("cascadia_queue_wait_seconds_count", &[]), 2.0);
    Ok(())
}

#[test]
fn a_request_in_the_queue_can_be_cancelled_by_its_id() -> Result<()> {
    let host = Host::mock(&["--max-concurrent", "1", "--max-queued", "4"]);
    let mut a = host.begin(&with_id(&streamed(stalled(1)), "a"))?.stream()?;
    a.pieces(1)?;
    let mut b = host.begin(&with_id(&chat("b"), "b"))?;
    host.queued(1);
    host.cancel("b")?;
    let answer = b.answer()?;
    assert_eq!((answer.content().as_str(), answer.finish().as_str()), ("", "stop"));
    host.queued(0);
    drop(a);
    let metrics = one_cancelled(&host, 2.0);
    assert_eq!(metrics.all_ended(), 2.0);
    Ok(())
}

#[test]
fn a_client_that_leaves_while_the_engine_takes_its_task_is_booked() -> Result<()> {
    let host = Host::mock(&[]);
    // The engine's thread is held up by another task's submit.
    let slow = host.begin(&Request::post(CHAT, &chat(&order("slow", &json!({"slow_submit_ms": 700})))))?;
    host.inflight(1);
    let behind = host.begin(&Request::post(CHAT, &chat("behind")))?;
    host.inflight(2);
    drop(behind);
    drop(slow);
    let metrics = one_cancelled(&host, 2.0);
    assert_eq!((metrics.all_ended(), metrics.all_rejected()), (2.0, 0.0));
    Ok(())
}

#[test]
fn killing_streaming_clients_does_not_harm_the_engine_thread() -> Result<()> {
    let host = Host::mock(&[]);
    assert_eq!(host.chat("warm up")?.content(), "warm up");
    let threads = host.threads();
    for i in 0..50_usize {
        let mut stream = host.stream(CHAT, &streamed(chat(&order("word", &json!({"repeat": 20_000})))))?;
        stream.raw(i * 37)?;
        if i % 2 == 0 { stream.reset() } else { drop(stream) }
    }
    let metrics = one_cancelled(&host, 50.0);
    assert_eq!(metrics.all_ended(), 51.0);
    assert_eq!(host.chat("still here")?.content(), "still here");
    // A blocking thread may have come and gone; none is left for each of the dead.
    assert!(host.threads() <= threads + 4, "{} threads, {threads} before", host.threads());
    assert!(!host.log().contains("panicked"), "a panic in the log");
    Ok(())
}

#[test]
fn resetting_one_of_eight_streams_leaves_the_other_seven_whole() -> Result<()> {
    let host = Host::mock(&["--max-concurrent", "8", "--plugin-opt", "mock.slots=8"]);
    let words: Vec<String> = (0..60).map(|i| format!("word{i}")).collect();
    let body = streamed(chat(&order(&words.join(" "), &json!({"token_delay_ms": 5}))));
    let expected = words.join(" ");
    for round in 0..3_u32 {
        let mut streams: Vec<Stream> = (0..8).map(|_| host.stream(CHAT, &body)).collect::<Result<_>>()?;
        streams[3].pieces(3)?;
        streams.remove(3).reset();
        for stream in streams {
            let told = stream.rest()?;
            assert_eq!((told.text.as_str(), told.finish()), (expected.as_str(), "stop"));
            assert_eq!(told.pieces.len(), 60);
            assert_eq!(told.completion_tokens(), 60);
        }
        let metrics = one_cancelled(&host, f64::from(round + 1));
        assert_eq!(metrics.ended("stop"), f64::from(7 * (round + 1)));
    }
    // The eighth slot is usable again: eight at once, none of them waits.
    let streams: Vec<Stream> =
        (0..8).map(|_| host.stream(CHAT, &streamed(stalled(1)))).collect::<Result<_>>()?;
    host.running(8);
    assert_eq!(host.scrape().value("cascadia_queue_depth", &[]), 0.0);
    drop(streams);
    host.quiet();
    Ok(())
}

#[test]
fn aborted_requests_are_in_every_counter() -> Result<()> {
    let host = Host::mock(&[]);
    let mut prompt_tokens = 0;
    for _ in 0..5 {
        let body = streamed(endless());
        prompt_tokens += body["messages"][0]["content"].as_str().map_or(0, str::len);
        let mut stream = host.stream(CHAT, &body)?;
        stream.raw(64)?;
        drop(stream);
    }
    let metrics = one_cancelled(&host, 5.0);
    assert_eq!(metrics.all_ended(), 5.0);
    assert_eq!(metrics.value("cascadia_generation_ttft_seconds_count", &[]), 5.0);
    // Documented: prompt tokens of generations that an engine accepted.
    assert_eq!(metrics.value("cascadia_tokens_prompt_total", &[]), prompt_tokens as f64);
    let (delivered, made) = (metrics.generated(), metrics.mock_tokens());
    assert!((5.0..=made).contains(&delivered), "{delivered} delivered of {made}");
    assert_eq!(metrics.requests(CHAT, "200"), 5.0, "each had its head");
    Ok(())
}

#[test]
fn after_everything_was_cancelled_at_once_the_gauges_fall_without_new_traffic() -> Result<()> {
    let host = Host::mock(&[]);
    let streams: Vec<Stream> = (0..16)
        .map(|i| host.begin(&with_id(&streamed(stalled(2)), &format!("s{i}")))?.stream())
        .collect::<Result<_>>()?;
    let busy = host.running(16);
    assert!(busy.value("cascadia_engine_kv_cache_usage_ratio", &[]) > 0.0);
    assert_eq!(busy.value("cascadia_inflight_tasks", &[]), 16.0);
    for i in 0..16 {
        host.cancel(&format!("s{i}"))?;
    }
    // Only looks from here on: no request moves the engine.
    let metrics = one_cancelled(&host, 16.0);
    assert_eq!(metrics.all_ended(), 16.0);
    for stream in streams {
        assert_eq!(stream.rest()?.finish(), "stop");
    }
    Ok(())
}

#[test]
fn an_engine_that_ignores_cancel_keeps_its_slot_and_its_client_does_not_wait() -> Result<()> {
    let host = Host::mock(&["--max-concurrent", "1", "--max-queued", "1"]);
    let prompt = order("w", &json!({"repeat": 100, "token_delay_ms": 20, "ignore_cancel": true}));
    let mut stream = host.begin(&with_id(&streamed(chat(&prompt)), "deaf"))?.stream()?;
    stream.pieces(2)?;
    host.cancel("deaf")?;
    assert_eq!(stream.rest()?.finish(), "stop");
    // The slot is the engine's until it has finished.
    let mut next = host.begin(&Request::post(CHAT, &chat("next")))?;
    assert_eq!(next.answer()?.content(), "next");
    let metrics = one_cancelled(&host, 1.0);
    assert_eq!((metrics.all_ended(), metrics.ended("stop")), (2.0, 1.0));
    Ok(())
}

/// Tokens of the stream that is not read, and bytes of each: 48 MB, more than any buffer on the way, over some seconds.
const LARGE: (usize, usize) = (3_000, 16 << 10);

/// One client that does not read beside one that does; the flags say how much is kept for the first.
fn slow_client(flags: &[&str]) -> Result<()> {
    let window = ["--plugin-opt", "mock.context-length=100000", "--set", "limits.slow_client_timeout=2s"];
    let host = Host::mock(&[&window, flags].concat());
    let script = json!([{"repeat": LARGE.0, "item": "x".repeat(LARGE.1)}]);
    let large = chat(&order("x", &json!({"script": script, "token_delay_ms": 1})));
    let mut slow = host.stream(CHAT, &streamed(large))?;
    slow.pieces(1)?;
    let words: Vec<String> = (0..100).map(|i| format!("word{i}")).collect();
    let other = streamed(chat(&order(&words.join(" "), &json!({"token_delay_ms": 10}))));
    let told = host.told(CHAT, &other)?;
    assert_eq!((told.text, told.pieces.len()), (words.join(" "), 100));
    let metrics = one_cancelled(&host, 1.0);
    assert_eq!((metrics.all_ended(), metrics.ended("stop")), (2.0, 1.0));
    assert_eq!(metrics.value("cascadia_slow_clients_total", &[]), 1.0);
    // What was never handed to the connection does not count as delivered.
    assert!(metrics.generated() < LARGE.0 as f64, "{}", metrics.generated());
    // Reading again, the client finds the connection closed, or the text so far and its end: never more.
    let ended = loop {
        match slow.event() {
            Ok(Some(_)) => {}
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    let told = slow.told();
    assert_eq!(ended, told.done, "an end is [DONE]");
    assert!(told.pieces.len() < LARGE.0, "{} tokens", told.pieces.len());
    assert!(told.pieces.iter().all(|piece| piece.len() == LARGE.1), "each token is whole");
    Ok(())
}

#[test]
fn output_to_a_client_that_does_not_read_is_bounded_and_ends() -> Result<()> {
    slow_client(&["--set", "limits.stream_buffer_kb=64"])
}

#[test]
fn a_client_that_does_not_read_within_its_time_is_cut_off() -> Result<()> {
    slow_client(&["--set", "limits.stream_buffer_kb=65536"])
}

#[test]
fn a_client_that_reads_is_not_taken_for_a_slow_one_however_fast_the_engine_is() -> Result<()> {
    let host = Host::mock(&["--plugin-opt", "mock.context-length=200000"]);
    let body = chat(&order("word", &json!({"repeat": 100_000})));
    let told = host.stream(CHAT, &streamed(body))?.swallow()?;
    let metrics = host.quiet();
    assert_eq!(metrics.value("cascadia_slow_clients_total", &[]), 0.0, "{} tokens came", told.pieces.len());
    assert_eq!((told.pieces.len(), told.finish(), told.completion_tokens()), (100_000, "stop", 100_000));
    assert_eq!((metrics.ended("stop"), metrics.all_ended()), (1.0, 1.0));
    Ok(())
}

#[test]
fn a_client_that_leaves_before_the_first_token_books_no_first_token() -> Result<()> {
    let host = Host::mock(&[]);
    let call = host.begin(&Request::post(CHAT, &streamed(stalled(0))))?;
    host.running(1);
    call.reset();
    let call = host.begin(&Request::post(CHAT, &stalled(0)))?;
    host.running(1);
    drop(call);
    let metrics = one_cancelled(&host, 2.0);
    assert_eq!(metrics.value("cascadia_generation_ttft_seconds_count", &[]), 0.0);
    assert_eq!((metrics.generated(), metrics.all_ended()), (0.0, 2.0));
    wait("both to be counted as left", || {
        let left = host.scrape().requests(CHAT, "499");
        if left == 2.0 { Ok(()) } else { Err(left.to_string()) }
    });
    Ok(())
}

#[test]
fn stop_strings_and_cancels_meet_without_a_second_sample() -> Result<()> {
    let host = Host::mock(&[]);
    for i in 0..20 {
        let id = format!("r{i}");
        let body =
            with(chat(&order("a b STOP c d", &json!({"token_delay_ms": 1}))), &json!({"stop": ["STOP"]}));
        let stream = host.begin(&with_id(&streamed(body), &id))?.stream()?;
        host.cancel(&id)?;
        let told = stream.rest()?;
        assert_eq!(told.finish(), "stop");
        assert!("a b ".starts_with(&told.text), "{:?}", told.text);
    }
    let metrics = host.quiet();
    assert_eq!(metrics.all_ended(), 20.0);
    assert_eq!(metrics.ended("stop") + metrics.ended("cancelled"), 20.0);
    assert_eq!(metrics.value("cascadia_tasks_cancelled_total", &[]), metrics.ended("cancelled"));
    Ok(())
}
