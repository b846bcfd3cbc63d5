//! Floods that only HTTP/2 has: many streams, resets, heads without an end, questions whether one is there.

use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cascadia_tests::Host;
use cascadia_tests::client::{CHAT, chat, order, streamed};
use cascadia_tests::two::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GO_AWAY, HEADERS, PING, RESET, SETTINGS, Two, field, frame,
    head,
};
use serde_json::{Value, json};

use super::{begin, held, is_calm, peak_within};

/// Streams that the host lets a connection have.
const STREAMS: u32 = 256;
/// Memory that a flood of frames may take, in KiB.
const LITTLE: u64 = 48 << 10;

/// Number of the client's stream number `i`.
fn number(i: u32) -> u32 {
    2 * i + 1
}

fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &head("GET", path, &[]))
}

fn post(stream: u32, body: &Value) -> Vec<u8> {
    let mut out =
        frame(HEADERS, END_HEADERS, stream, &head("POST", CHAT, &[("content-type", "application/json")]));
    out.extend(frame(DATA, END_STREAM, stream, body.to_string().as_bytes()));
    out
}

/// Reads until so many streams have ended; the bytes of each, by its number.
fn ended(two: &mut Two, n: usize) -> Result<std::collections::BTreeMap<u32, Vec<u8>>> {
    let (mut bytes, mut over) = (std::collections::BTreeMap::<u32, Vec<u8>>::new(), 0);
    while over < n {
        let frame = two.frame()?.with_context(|| format!("ended after {over} streams of {n}"))?;
        if frame.kind == DATA {
            bytes.entry(frame.stream).or_default().extend(&frame.bytes);
        }
        if frame.kind == RESET || (matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0) {
            over += 1;
        }
    }
    Ok(bytes)
}

#[test]
fn hundreds_of_streams_of_one_connection_are_each_answered() -> Result<()> {
    let (host, before) = begin(&["--max-queued", "1000", "--queue-timeout", "1h"]);
    let mut two = Two::open(host.client().address)?;
    for i in 0..200 {
        assert!(two.send(&post(number(i), &chat(&format!("number {i}")))));
    }
    let answers = ended(&mut two, 200)?;
    for i in 0..200 {
        let answer: Value = serde_json::from_slice(&answers[&number(i)])?;
        assert_eq!(answer["choices"][0]["message"]["content"], format!("number {i}"));
    }
    drop(two);
    assert_eq!(host.quiet().ended("stop"), 202.0);
    is_calm(&host, before)
}

#[test]
fn a_stream_that_is_not_read_is_reset_and_the_others_of_its_connection_go_on() -> Result<()> {
    let (host, before) = begin(&["--set", "limits.slow_client_timeout=1s"]);
    let mut two = Two::open(host.client().address)?;
    // Its window is 64 kB and never grows: this client reads one stream and leaves the other.
    let unread = order(&"x".repeat(8 << 10), &json!({"repeat": 100}));
    assert!(two.send(&post(number(0), &streamed(chat(&unread)))));
    let words: Vec<String> = (0..60).map(|i| format!("word{i} ")).collect();
    let paced = order("x", &json!({"script": words, "token_delay_ms": 50}));
    assert!(two.send(&post(number(1), &streamed(chat(&paced)))));
    let (mut reset, mut read) = (None, Vec::new());
    loop {
        let frame = two.frame()?.context("the connection goes on")?;
        match (frame.stream, frame.kind) {
            (1, RESET) => reset = frame.code(),
            (1, DATA) => assert_eq!(frame.flags & END_STREAM, 0, "it is not told as ended"),
            (3, DATA) => read.extend(&frame.bytes),
            _ => {}
        }
        if frame.stream == number(1) && frame.flags & END_STREAM != 0 && frame.kind == DATA {
            break;
        }
    }
    // CANCEL, long before the other has ended.
    assert_eq!(reset, Some(8));
    let told = String::from_utf8(read)?;
    assert!(
        words.iter().all(|word| told.contains(word.as_str())) && told.ends_with("data: [DONE]\n\n"),
        "{told}"
    );
    assert!(two.send(&get(number(2), "/livez")));
    assert!(!ended(&mut two, 1)?[&number(2)].is_empty());
    let metrics = host.quiet();
    assert_eq!(metrics.value("cascadia_slow_clients_total", &[]), 1.0);
    assert_eq!((metrics.ended("cancelled"), metrics.ended("stop")), (1.0, 3.0));
    drop(two);
    is_calm(&host, before)
}

#[test]
fn an_answer_that_does_not_wait_for_the_body_is_not_followed_by_a_reset() -> Result<()> {
    const PART: usize = 16 << 10;
    let (host, before) = begin(&["--set", "server.max_body_mb=1"]);
    let mut two = Two::open(host.client().address)?;
    let much = (2_u64 << 20).to_string();
    let asked = [
        ("/nowhere", &[("content-type", "application/json")][..], 404),
        (CHAT, &[("content-type", "text/plain")], 415),
        (CHAT, &[("content-type", "application/json"), ("content-length", &much)], 413),
    ];
    for (i, (path, more, status)) in (0..).zip(asked) {
        assert!(two.send(&frame(HEADERS, END_HEADERS, number(i), &head("POST", path, more))));
        let (mut told, mut over) = (None, false);
        while !over {
            let frame = two.frame()?.context("it answers")?;
            assert_ne!((frame.stream, frame.kind), (number(i), RESET), "{path} {status}");
            told = told.or(frame.status().filter(|_| frame.kind == HEADERS));
            over = frame.stream == number(i) && frame.flags & END_STREAM != 0 && frame.kind == DATA;
        }
        assert_eq!(told, Some(status));
        // The client has not looked yet, and goes on with its body, within the window that streams begin with.
        for _ in 0..3 {
            assert!(two.send(&frame(DATA, 0, number(i), &[b' '; PART])));
        }
        assert!(status == 413 || two.send(&frame(DATA, END_STREAM, number(i), &[])));
    }
    assert!(two.send(&get(number(3), "/livez")));
    // The one whose body never ends is not waited for without end.
    let reset = loop {
        let frame = two.frame()?.context("the connection goes on")?;
        if frame.kind == RESET {
            break frame;
        }
    };
    assert_eq!((reset.stream, reset.code()), (number(2), Some(0)), "NO_ERROR: the answer is whole");
    drop(two);
    is_calm(&host, before)
}

#[test]
fn few_bodies_are_read_on_at_once_and_leave_the_connection_to_others() -> Result<()> {
    const ASKED: u32 = 200;
    const READ_ON: u32 = 16;
    let (host, before) = begin(&[]);
    let mut two = Two::open(host.client().address)?;
    for i in 0..ASKED {
        let head = head("POST", "/nowhere", &[("content-type", "application/json")]);
        assert!(two.send(&frame(HEADERS, END_HEADERS, number(i), &head)));
    }
    // None of these bodies ever ends: all but a few are let go, and with them their streams.
    let (mut answered, mut reset) = (0, 0);
    while answered < ASKED || reset < ASKED - READ_ON {
        let frame = two.frame()?.context("the connection goes on")?;
        answered += u32::from(frame.kind == DATA && frame.flags & END_STREAM != 0);
        reset += u32::from(frame.kind == RESET);
    }
    assert!(two.send(&get(number(ASKED), "/livez")));
    while reset < ASKED {
        let frame = two.frame()?.context("the connection goes on")?;
        reset += u32::from(frame.kind == RESET);
        assert!(frame.kind != RESET || frame.code() == Some(0), "{frame:?}");
    }
    drop(two);
    is_calm(&host, before)
}

#[test]
fn streams_over_the_bound_are_refused_and_a_connection_that_ends_frees_all() -> Result<()> {
    let (host, before) = begin(&["--max-queued", "1000", "--queue-timeout", "1h"]);
    let mut two = Two::open(host.client().address)?;
    for i in 0..STREAMS + 40 {
        // The bound is told in the settings; this client does not keep to it.
        if !two.send(&post(number(i), &held())) {
            break;
        }
    }
    host.inflight(STREAMS);
    drop(two);
    host.until("cancelled", f64::from(STREAMS), |s| s.ended("cancelled"));
    assert_eq!(host.quiet().all_rejected(), 0.0);
    is_calm(&host, before)
}

#[test]
fn streams_that_are_reset_as_fast_as_they_are_opened_end_the_connection() -> Result<()> {
    let (host, before) = begin(&["--max-queued", "1000", "--queue-timeout", "1h"]);
    for body in [None, Some(chat(&order("w", &json!({"stall_after": 0}))))] {
        let mut two = Two::open(host.client().address)?;
        let mut sent = 0;
        for i in 0..20_000 {
            let mut frames = match &body {
                None => get(number(i), "/v1/models"),
                Some(body) => post(number(i), body),
            };
            frames.extend(frame(RESET, 0, number(i), &8_u32.to_be_bytes()));
            if !two.send(&frames) {
                break;
            }
            sent = i;
        }
        // Either it was ended early, or it took all of them; in neither case does anything go on.
        let frames = two.rest_or_silence(Duration::from_secs(2))?;
        let told_why = frames.iter().any(|f| f.kind == GO_AWAY);
        assert!(told_why || sent >= 1_000, "ended after {sent} without a word");
        drop(two);
        host.quiet();
    }
    peak_within(&host, before, LITTLE);
    is_calm(&host, before)
}

#[test]
fn a_head_that_never_ends_ends_the_connection_and_takes_no_memory() -> Result<()> {
    let (host, before) = begin(&[]);
    let mut fields = head("GET", "/livez", &[]);
    let mut more = Vec::new();
    for i in 0..100 {
        field(&format!("x-{i}"), &"v".repeat(100), &mut more);
    }
    fields.extend(&more);
    for filling in [&more[..], &[]] {
        let mut two = Two::open(host.client().address)?;
        let mut open = two.send(&frame(HEADERS, END_STREAM, 1, &fields));
        // 10,000 of these are 100 MB; of the empty ones, ten thousand frames that say nothing.
        for _ in 0..10_000 {
            open = open && two.send(&frame(CONTINUATION, 0, 1, filling));
        }
        assert!(!open || two.rest()?.iter().any(|f| f.kind == GO_AWAY), "it goes on");
    }
    peak_within(&host, before, LITTLE);
    is_calm(&host, before)
}

#[test]
fn heads_over_their_bound_are_a_431_or_a_reset_and_the_next_stream_is_answered() -> Result<()> {
    let (host, before) = begin(&[]);
    let mut two = Two::open(host.client().address)?;
    // 100 kB of fields, where 64 kB are allowed.
    let mut block = head("GET", "/livez", &[]);
    for i in 0..100 {
        field(&format!("x-{i}"), &"v".repeat(1_000), &mut block);
    }
    let parts: Vec<&[u8]> = block.chunks(16 << 10).collect();
    for (i, part) in parts.iter().enumerate() {
        let (kind, flags) = if i == 0 { (HEADERS, END_STREAM) } else { (CONTINUATION, 0) };
        let last = if i + 1 == parts.len() { END_HEADERS } else { 0 };
        assert!(two.send(&frame(kind, flags | last, 1, part)));
    }
    assert!(two.send(&get(3, "/livez")));
    let mut seen = Vec::new();
    while let Some(frame) = two.frame()? {
        let of_next = frame.stream == 3 && frame.kind == HEADERS;
        seen.push(frame);
        if of_next {
            break;
        }
    }
    let first: Vec<_> = seen.iter().filter(|f| f.stream == 1 && matches!(f.kind, HEADERS | RESET)).collect();
    assert!(first.iter().all(|f| f.kind == RESET || f.status() == Some(431)), "{first:?}");
    assert!(!first.is_empty(), "{seen:?}");
    assert_eq!(seen.last().and_then(|f| f.status()), Some(200), "{seen:?}");
    drop(two);
    is_calm(&host, before)
}

#[test]
fn pings_and_settings_whose_answers_nobody_reads_take_no_memory() -> Result<()> {
    let (host, before) = begin(&[]);
    for question in [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, &[])] {
        let mut two = Two::open(host.client().address)?;
        two.socket.set_write_timeout(Some(Duration::from_secs(1)))?;
        let many = question.repeat(1_000);
        // A host that stops reading until its answers are read is right; so is one that ends the connection.
        for _ in 0..1_000 {
            if two.socket.write_all(&many).is_err() {
                break;
            }
        }
        peak_within(&host, before, LITTLE);
        assert_eq!(host.chat("others")?.content(), "others");
    }
    is_calm(&host, before)
}

#[test]
fn what_is_no_frame_ends_the_connection() -> Result<()> {
    let (host, before) = begin(&[]);
    let cases = [
        vec![0xff; 64],
        frame(DATA, 0, 1, b"for a stream that was never opened"),
        frame(DATA, 0, 0, b"for no stream"),
        frame(HEADERS, END_HEADERS, 2, &head("GET", "/livez", &[])),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff; 40]),
        frame(PING, 0, 0, b"short"),
        frame(CONTINUATION, END_HEADERS, 1, &head("GET", "/livez", &[])),
        frame(8, 0, 0, &[0; 4]),
        frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff]),
    ];
    for (i, case) in cases.iter().enumerate() {
        let mut two = Two::open(host.client().address)?;
        two.send(case);
        // Were it taken for something, the connection would go on until its client leaves.
        let frames = two.rest().with_context(|| format!("case {i}"))?;
        assert!(frames.iter().all(|f| f.kind != HEADERS), "case {i} was answered: {frames:?}");
        let _gone = two.socket.shutdown(Shutdown::Both);
    }
    is_calm(&host, before)
}

#[test]
fn connections_that_ask_for_nothing_end_and_let_others_in() -> Result<()> {
    let begun = Instant::now();
    let flags = ["--set", "server.header_timeout=1s", "--set", "server.max_connections=20"];
    let host = Host::mock(&flags);
    let silent: Vec<Two> = (0..20).map(|_| Two::open(host.client().address)).collect::<Result<_>>()?;
    // One that asks stays, however long it is silent afterwards; so it is a later one, or there is no place for it.
    for mut two in silent {
        assert!(two.rest()?.iter().any(|frame| frame.kind == GO_AWAY), "they are told");
    }
    let mut asks = Two::open(host.client().address)?;
    assert!(asks.send(&get(number(0), "/livez")));
    ended(&mut asks, 1)?;
    asks.rest_or_silence(Duration::from_secs(4))?;
    assert!(asks.send(&get(number(1), "/livez")));
    assert!(!ended(&mut asks, 1)?.is_empty(), "it is still served");
    // Two pings take 40 seconds.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    Ok(())
}
