//! What is no HTTP, and what two readers of HTTP could take for two different things.

use anyhow::{Context, Result};
use cascadia_tests::client::{CHAT, chat, order, streamed};
use cascadia_tests::http::Connection;
use serde_json::{Value, json};

use super::{begin, is_calm};

/// What came back: the statuses of all answers until the connection ended.
fn statuses(connection: &mut Connection) -> Result<Vec<u16>> {
    let mut statuses = Vec::new();
    while let Some(head) = connection.next_head()? {
        statuses.push(head.status);
        connection.body()?;
    }
    Ok(statuses)
}

/// A chat whose body is framed by these lines.
fn framed(lines: &str, body: &str) -> String {
    format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{lines}\r\n\r\n{body}"
    )
}

#[test]
fn what_is_no_http_is_refused_or_closed_and_runs_nothing() -> Result<()> {
    let (host, before) = begin(&[]);
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 500]].concat();
    let body = chat("x").to_string();
    let n = body.len();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a greeting of TLS", hello),
        ("bytes", (0..=255).collect()),
        ("an empty line and no more", b"\r\n\r\n".to_vec()),
        ("no version", b"GET /livez\r\n\r\n".to_vec()),
        ("a version of the future", b"GET /livez HTTP/9.9\r\n\r\n".to_vec()),
        ("NUL in a value", b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n".to_vec()),
        ("NUL in a name", b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx\0: a\r\n\r\n".to_vec()),
        ("NUL in the path", b"GET /li\0vez HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec()),
        ("a space before the colon", b"GET /livez HTTP/1.1\r\nhost : localhost\r\n\r\n".to_vec()),
        ("no name", b"GET /livez HTTP/1.1\r\n: localhost\r\n\r\n".to_vec()),
        ("two lengths", framed(&format!("content-length: {n}\r\ncontent-length: 3"), &body).into()),
        ("a list of lengths", framed(&format!("content-length: {n}, 3"), &body).into()),
        ("a length with a sign", framed(&format!("content-length: +{n}"), &body).into()),
        ("a negative length", framed("content-length: -1", &body).into()),
        ("a length in hex", framed(&format!("content-length: 0x{n:x}"), &body).into()),
        (
            "chunks in HTTP/1.0",
            format!("POST {CHAT} HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n").into(),
        ),
        ("an encoding that is not chunked", framed("transfer-encoding: identity", &body).into()),
        ("chunked, but not last", framed("transfer-encoding: chunked, gzip", &body).into()),
        ("a chunk size that is none", framed("transfer-encoding: chunked", "zz\r\n{}\r\n0\r\n\r\n").into()),
        ("a negative chunk size", framed("transfer-encoding: chunked", "-2\r\n{}\r\n0\r\n\r\n").into()),
        (
            "a chunk size beyond 64 bits",
            framed("transfer-encoding: chunked", "10000000000000002\r\n{}").into(),
        ),
        (
            "a chunk longer than its size",
            framed("transfer-encoding: chunked", "1\r\n{}{}\r\n0\r\n\r\n").into(),
        ),
        (
            "an extension of a chunk without end",
            framed("transfer-encoding: chunked", &format!("2;{}", "x".repeat(1 << 20))).into(),
        ),
    ];
    for (what, bytes) in cases {
        let mut connection = Connection::open(host.client().address)?;
        connection.send_bytes(&bytes)?;
        // No more will come: what waits for more may say so.
        connection.no_more()?;
        let statuses = statuses(&mut connection).with_context(|| what.to_owned())?;
        assert!(statuses.iter().all(|s| (400..500).contains(s)), "{what}: {statuses:?}");
        assert!(statuses.len() <= 1, "{what} is one request: {statuses:?}");
    }
    let metrics = host.quiet();
    assert_eq!(metrics.all_ended(), 2.0, "only the warm-up was generated");
    is_calm(&host, before)
}

#[test]
fn a_request_inside_the_body_of_another_is_not_a_request() -> Result<()> {
    let (host, before) = begin(&[]);
    let inner = "GET /nowhere-inside HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let body = chat("outer").to_string();
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let padded = format!("{body}{}{inner}", " ".repeat(8));
    let both = "transfer-encoding: chunked\r\ncontent-length: 4";
    let cases: [(String, &[u16]); 5] = [
        // Both lengths, in both orders: chunks are what counts, and nothing more is read from such a client.
        (framed("content-length: 4\r\ntransfer-encoding: chunked", &chunked), &[200]),
        (framed(both, &chunked), &[200]),
        (framed(both, &format!("0\r\n\r\n{inner}")), &[400]),
        // A length that covers a whole request hides it, in a body that is read and in one that is not.
        (framed(&format!("content-length: {}", padded.len()), &padded), &[400, 200]),
        (
            framed(&format!("content-encoding: x\r\ncontent-length: {}", inner.len() * 3), &inner.repeat(3)),
            &[415, 200],
        ),
    ];
    for (i, (request, expected)) in cases.iter().enumerate() {
        let mut connection = Connection::open(host.client().address)?;
        connection.send_bytes(request.as_bytes())?;
        connection.send_bytes(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        assert_eq!(statuses(&mut connection)?, *expected, "case {i}");
    }
    let metrics = host.scrape();
    assert_eq!(metrics.requests("unmatched", "404"), 0.0, "an inner request was served");
    is_calm(&host, before)
}

#[test]
fn heads_over_every_bound_are_a_431_and_take_no_memory() -> Result<()> {
    let (host, before) = begin(&[]);
    let many = (0..10_000).map(|i| format!("x-{i}: y\r\n")).collect::<String>();
    let cases = [
        format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(8 << 20)),
        format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"),
        format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "y".repeat(8 << 20)),
        "G".repeat(8 << 20),
    ];
    for (i, case) in cases.iter().enumerate() {
        let mut connection = Connection::open(host.client().address)?;
        connection.send_bytes(case.as_bytes())?;
        let refused = statuses(&mut connection).with_context(|| format!("case {i}"))?;
        assert!(refused.len() == 1 && [400, 414, 431].contains(&refused[0]), "case {i}: {refused:?}");
    }
    super::peak_within(&host, before, 32 << 10);
    is_calm(&host, before)
}

#[test]
fn requests_sent_at_once_are_answered_one_after_the_other() -> Result<()> {
    const N: usize = 100;
    let (host, before) = begin(&[]);
    let mut connection = Connection::open(host.client().address)?;
    let mut sent = String::new();
    for i in 0..N {
        let body = chat(&format!("number {i}"));
        let body = if i % 3 == 0 { streamed(body) } else { body }.to_string();
        sent.push_str(&framed(&format!("content-length: {}", body.len()), &body));
    }
    connection.send_bytes(sent.as_bytes())?;
    for i in 0..N {
        assert_eq!(connection.head()?.status, 200, "{i}");
        let body = String::from_utf8(connection.body()?)?;
        match i % 3 {
            0 => assert!(body.contains(&format!("\" {i}\"")) && body.ends_with("[DONE]\n\n"), "{i}: {body}"),
            _ => {
                let body: Value = serde_json::from_str(&body)?;
                assert_eq!(body["choices"][0]["message"]["content"], format!("number {i}"));
            }
        }
    }
    drop(connection);
    assert_eq!(host.quiet().ended("stop"), (N + 2) as f64);
    // A client that leaves takes what waits behind its first request with it.
    let mut connection = Connection::open(host.client().address)?;
    let endless = chat(&order("w", &json!({"repeat": 100_000, "token_delay_ms": 10})));
    let body = streamed(endless).to_string();
    connection.send_bytes(framed(&format!("content-length: {}", body.len()), &body).repeat(50).as_bytes())?;
    host.running(1);
    connection.reset();
    let metrics = host.until("cancelled", 1.0, |s| s.ended("cancelled"));
    assert_eq!(metrics.all_ended(), (N + 3) as f64);
    is_calm(&host, before)
}
