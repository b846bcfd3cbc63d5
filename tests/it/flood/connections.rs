//! Very many connections: all at once, half open, ended rudely.

use std::io::Write;
use std::net::TcpStream;

use anyhow::{Context, Result};
use cascadia_tests::client::{CHAT, chat, streamed};
use cascadia_tests::http::{Connection, Request};
use cascadia_tests::{Host, Scrape, setup, sys, wait};

use super::{begin, has_descriptors, held, is_calm, settled};

/// The name of each of very many prompts.
fn prompt(i: usize) -> String {
    format!("number {i}")
}

#[test]
fn two_thousand_connections_at_once_are_all_served() -> Result<()> {
    const N: usize = 2_000;
    if !has_descriptors(3_000) {
        return Ok(());
    }
    // As a service manager starts it: with fewer descriptors than its clients will need.
    let plugin = setup::plugin("mock").display().to_string();
    let args = ["--plugin", &plugin, "--max-queued", "4000", "--queue-timeout", "1h"];
    let host = Host::start_as(&args, &[], |command| sys::begin_with_descriptors(command, 256));
    host.ready();
    let before = settled(&host);
    let mut connections =
        (0..N).map(|_| Connection::open(host.client().address)).collect::<Result<Vec<_>>>()?;
    // All are there before the first is used. A quarter of them generates.
    for (i, connection) in connections.iter_mut().enumerate() {
        let request = match i % 4 {
            0 => Request::post(CHAT, &chat(&prompt(i))),
            _ => Request::new("GET", &format!("/v1/models/number-{i}")),
        };
        connection.send(&request).with_context(|| prompt(i))?;
    }
    for (i, connection) in connections.iter_mut().enumerate() {
        let status = connection.head().with_context(|| prompt(i))?.status;
        let body = String::from_utf8(connection.body()?)?;
        let (expected, own) = match i % 4 {
            0 => (200, format!("\"{}\"", prompt(i))),
            _ => (404, format!("number-{i}")),
        };
        assert!(status == expected && body.contains(&own), "{i}: {status} {body}");
    }
    assert!(host.footprint().descriptors >= N, "they are all still open");
    drop(connections);
    let metrics = host.quiet();
    assert_eq!(metrics.ended("stop"), (N / 4 + 2) as f64);
    assert_eq!(metrics.all_rejected(), 0.0);
    is_calm(&host, before)
}

#[test]
fn connections_over_the_bound_wait_and_are_served_when_others_leave() -> Result<()> {
    let (host, before) = begin(&["--set", "server.max_connections=8", "--set", "server.header_timeout=1h"]);
    let mut held: Vec<_> =
        (0..8).map(|_| TcpStream::connect(host.client().address)).collect::<Result<_, _>>()?;
    for socket in &mut held {
        socket.write_all(b"GET /li")?;
    }
    let mut waiting = Connection::open(host.client().address)?;
    waiting.send(&Request::new("GET", "/livez"))?;
    // The kernel has accepted it, the host has not: it has the eight and no more, and says so once.
    wait("the host to say why", || {
        let told = host.log().matches("all connections are in use").count();
        if told == 1 { Ok(()) } else { Err(told.to_string()) }
    });
    drop(held);
    assert_eq!(waiting.head()?.status, 200);
    waiting.body()?;
    drop(waiting);
    // The default bound is far above; eight held streams would take all of this one.
    host.quiet();
    assert!(host.footprint().descriptors <= before.descriptors + 8);
    assert!(!host.log().contains("panicked"));
    assert_eq!(host.log().matches("all connections are in use").count(), 1);
    Ok(())
}

#[test]
fn a_thousand_half_open_sockets_cost_nobody_else_anything_and_end() -> Result<()> {
    const EACH: usize = 250;
    const BEGINNINGS: [&[u8]; 4] =
        [b"", b"P", b"POST /v1/chat/completions HTTP/1.1\r\nhost: loc", b"PRI * HTTP/2.0\r\n\r\nSM"];
    if !has_descriptors(2_000) {
        return Ok(());
    }
    let (host, before) = begin(&["--set", "server.header_timeout=2s"]);
    let mut halves = Vec::new();
    for begin in BEGINNINGS {
        for _ in 0..EACH {
            let mut socket = TcpStream::connect(host.client().address)?;
            socket.write_all(begin)?;
            halves.push(socket);
        }
    }
    for i in 0..40 {
        assert_eq!(host.chat(&prompt(i))?.content(), prompt(i));
        assert_eq!(host.told(CHAT, &streamed(chat(&prompt(i))))?.text, prompt(i));
    }
    // Each is closed by the host, not by its client, within the time for a head.
    wait("the half open ones to be closed", || {
        let now = host.footprint().descriptors;
        if now <= before.descriptors + 8 { Ok(()) } else { Err(format!("{now} descriptors")) }
    });
    let open = host.scrape().connections_ended("no_request");
    assert_eq!(open, (EACH * BEGINNINGS.len()) as f64, "each is counted");
    drop(halves);
    is_calm(&host, before)
}

#[test]
fn connections_are_counted_with_how_they_ended() -> Result<()> {
    let (host, _) = begin(&["--set", "server.header_timeout=1s", "--set", "limits.slow_client_timeout=1s"]);
    let before = host.scrape();
    let raw = |bytes: &[u8]| -> Result<Connection> {
        let mut connection = Connection::open(host.client().address)?;
        connection.send_all(bytes)?;
        Ok(connection)
    };
    // No HTTP; a probe that says nothing; a head that does not end.
    assert_eq!(raw(b"\x16\x03\x01 nothing\r\n\r\n")?.head()?.status, 400);
    drop(raw(b"")?);
    raw(b"GET /livez HTTP/1.1\r\n")?.closed()?;
    // An answer that is whole, in a connection that is kept until it is idle for too long.
    let mut kept = raw(b"GET /livez HTTP/1.1\r\nhost: here\r\n\r\n")?;
    kept.head()?;
    kept.body()?;
    kept.closed()?;
    drop(kept);
    // A client that leaves in the middle of an answer.
    let call = host.begin(&Request::post(CHAT, &held()))?;
    host.inflight(1);
    call.reset();
    let ended = |metrics: &Scrape, how: &str| metrics.connections_ended(how) - before.connections_ended(how);
    let metrics = host.until("clients gone", 1.0, |metrics| ended(metrics, "client_left"));
    let told = ["malformed", "no_request", "idle", "cut", "tls", "error"].map(|how| ended(&metrics, how));
    assert_eq!(told, [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    assert!(ended(&metrics, "closed") >= 1.0, "the probe's");
    let open = metrics.value("cascadia_connections_total", &[])
        - metrics.sum("cascadia_connections_ended_total", &[]);
    assert_eq!(open, 1.0, "only the one that asks");
    Ok(())
}

#[test]
fn resets_of_hundreds_of_streams_at_once_free_every_slot() -> Result<()> {
    let (host, before) = begin(&["--max-queued", "1000", "--queue-timeout", "1h"]);
    for round in 1..=4_u32 {
        let calls: Vec<_> =
            (0..200).map(|_| host.begin(&Request::post(CHAT, &held()))).collect::<Result<_>>()?;
        host.inflight(200);
        calls.into_iter().for_each(cascadia_tests::Call::reset);
        let metrics = host.until("cancelled", f64::from(round * 200), |s| s.ended("cancelled"));
        assert_eq!(metrics.rejected("capacity"), 0.0);
        assert_eq!(metrics.connections_ended("client_left"), f64::from(round * 200));
    }
    // Resets before anything was asked, and within a head.
    for i in 0..500 {
        let mut socket = TcpStream::connect(host.client().address)?;
        // The host may be gone from it already; that is no matter.
        let _sent = socket.write_all(&b"POST /v1/chat/completions HTTP/1.1\r\n"[..i % 37]);
        sys::reset(socket);
    }
    is_calm(&host, before)
}
