//! Bodies that are too large, never end, or do not come.

use std::io::Write;

use anyhow::{Context, Result};
use cascadia_tests::client::CHAT;
use cascadia_tests::http::{Connection, Request};
use serde_json::Value;

use super::{begin, is_calm, peak_within};

/// Memory that refusing may take, in KiB.
const LITTLE: u64 = 32 << 10;

fn head(length: &str) -> String {
    format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{length}\r\n\r\n")
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// The error code of an answer with that status.
fn code(connection: &mut Connection, status: u16) -> Result<String> {
    let head = connection.head()?;
    let body = connection.body()?;
    assert_eq!(head.status, status, "{}", String::from_utf8_lossy(&body));
    let body: Value = serde_json::from_slice(&body)?;
    body["error"]["code"].as_str().map(str::to_owned).context("a code")
}

#[test]
fn a_length_over_the_limit_is_refused_before_a_byte_of_the_body_is_sent() -> Result<()> {
    let (host, before) = begin(&[]);
    for length in [(33_u64 << 20).to_string(), (1_u64 << 30).to_string(), u64::MAX.to_string()] {
        // The last ones are no lengths that HTTP software takes; they must not be read as small ones.
        let mut connection = Connection::open(host.client().address)?;
        connection.send_bytes(head(&format!("content-length: {length}")).as_bytes())?;
        match length.len() {
            ..=18 => assert_eq!(code(&mut connection, 413)?, "body_too_large", "{length}"),
            _ => assert!((400..500).contains(&connection.head()?.status), "{length}"),
        }
    }
    peak_within(&host, before, LITTLE);
    is_calm(&host, before)
}

#[test]
fn a_hundred_megabytes_are_refused_and_the_answer_is_readable_while_the_client_still_sends() -> Result<()> {
    const BODY: usize = 100 << 20;
    let (host, before) = begin(&["--api-max-body-mb", "1"]);
    let part = vec![b' '; 1 << 20];
    for _ in 0..3 {
        let mut connection = Connection::open(host.client().address)?;
        connection.send_bytes(head(&format!("content-length: {BODY}")).as_bytes())?;
        // As clients do that send first and read then: the whole body, whatever comes back meanwhile.
        for _ in 0..BODY / part.len() {
            connection.send_all(&part).context("the connection was reset while the client was sending")?;
        }
        assert_eq!(code(&mut connection, 413)?, "body_too_large");
        connection.closed()?;
    }
    peak_within(&host, before, LITTLE);
    assert_eq!(host.scrape().requests(CHAT, "413"), 3.0);
    is_calm(&host, before)
}

#[test]
fn a_chunked_body_without_an_end_is_refused_at_the_limit() -> Result<()> {
    let (host, before) = begin(&["--api-max-body-mb", "1"]);
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 16, " ".repeat(1 << 16));
    let mut connections = Vec::new();
    for _ in 0..20 {
        let mut connection = Connection::open(host.client().address)?;
        connection.send_bytes(head("transfer-encoding: chunked").as_bytes())?;
        for _ in 0..17 {
            connection.send_all(chunk.as_bytes())?;
        }
        connections.push(connection);
    }
    for connection in &mut connections {
        assert_eq!(code(connection, 413)?, "body_too_large");
    }
    drop(connections);
    // Chunks of one byte are as bounded as large ones: what counts is the body.
    let mut connection = Connection::open(host.client().address)?;
    connection.send_bytes(head("transfer-encoding: chunked").as_bytes())?;
    let small = "1\r\n \r\n".repeat(10_000);
    for _ in 0..110 {
        connection.send_all(small.as_bytes())?;
    }
    assert_eq!(code(&mut connection, 413)?, "body_too_large");
    drop(connection);
    // Twenty bodies of a megabyte at once, each with the copy that joins its parts.
    peak_within(&host, before, LITTLE + (40 << 10));
    is_calm(&host, before)
}

#[test]
fn bodies_share_a_bounded_memory_and_promises_take_none_of_it() -> Result<()> {
    const MIB: usize = 1 << 20;
    const REST: usize = 64 << 10;
    let (host, before) = begin(&[
        "--api-max-body-mb",
        "4",
        "--set",
        "server.max_bodies_mb=8",
        "--set",
        "server.body_timeout=30s",
    ]);
    // What is only promised is not held: a hundred megabytes of promises, and everybody is served.
    let mut promised = Vec::new();
    for _ in 0..25 {
        let mut connection = Connection::open(host.client().address)?;
        connection.send_bytes(head(&format!("content-length: {}", 4 * MIB)).as_bytes())?;
        promised.push(connection);
    }
    assert_eq!(host.chat("others")?.content(), "others");
    // Two bodies that lack their last bytes, almost all that may be held.
    let almost = " ".repeat(4 * MIB - REST);
    for connection in &mut promised[..2] {
        connection.send_all(almost.as_bytes())?;
    }
    host.until("held bodies", 2.0 * almost.len() as f64, |s| s.sum("cascadia_request_body_bytes", &[]));
    // The next is refused by its length alone, and one that does not say it when there is no room for it.
    let mut stated = Connection::open(host.client().address)?;
    stated.send_bytes(head(&format!("content-length: {MIB}")).as_bytes())?;
    assert_eq!(code(&mut stated, 503)?, "capacity");
    let mut chunked = Connection::open(host.client().address)?;
    chunked.send_bytes(head("transfer-encoding: chunked").as_bytes())?;
    chunked.send_all(format!("{MIB:x}\r\n{}\r\n", " ".repeat(MIB)).as_bytes())?;
    assert_eq!(code(&mut chunked, 503)?, "capacity");
    // So is one that grows when it is unpacked.
    let packed = gzip(&vec![b' '; MIB])?;
    assert!(packed.len() < 8 << 10);
    let request = Request::new("POST", CHAT).body(packed).header("content-type", "application/json");
    let refused = host.call(&request.header("content-encoding", "gzip"))?;
    assert_eq!(refused.error(503)["code"], "capacity");
    // Little ones still find room.
    assert_eq!(host.chat("little")?.content(), "little");
    assert_eq!(host.scrape().rejected("capacity"), 3.0);
    drop((stated, chunked));
    let rest = promised.split_off(1);
    drop(rest);
    host.until("one held body", almost.len() as f64, |s| s.sum("cascadia_request_body_bytes", &[]));
    // The first is read to its end: it is JSON of nothing.
    promised[0].send_all(" ".repeat(REST).as_bytes())?;
    assert_eq!(code(&mut promised[0], 400)?, "invalid_json");
    host.until("no held body", 0.0, |s| s.sum("cascadia_request_body_bytes", &[]));
    drop(promised);
    is_calm(&host, before)
}

#[test]
fn bodies_that_do_not_come_end_at_their_deadline() -> Result<()> {
    let (host, before) = begin(&["--set", "server.body_timeout=1s"]);
    let mut connections = Vec::new();
    for (i, length) in
        ["content-length: 100", "transfer-encoding: chunked"].iter().cycle().take(200).enumerate()
    {
        let mut connection = Connection::open(host.client().address)?;
        connection.send_bytes(head(length).as_bytes())?;
        connection.send_bytes(&b"5\r\n{\"mod"[..i % 8])?;
        connections.push(connection);
    }
    // Those who send are answered meanwhile.
    assert_eq!(host.chat("others")?.content(), "others");
    for connection in &mut connections {
        assert_eq!(code(connection, 408)?, "request_timeout");
    }
    drop(connections);
    is_calm(&host, before)
}

#[test]
fn a_body_that_is_cut_short_books_nothing_but_its_client_that_left() -> Result<()> {
    let (host, before) = begin(&[]);
    for _ in 0..200 {
        let mut connection = Connection::open(host.client().address)?;
        connection.send_bytes(head("content-length: 1000").as_bytes())?;
        connection.send_bytes(b"{\"messages\": [")?;
        connection.reset();
    }
    host.until("clients that left", 200.0, |s| s.requests(CHAT, "499") + s.requests(CHAT, "400"));
    let metrics = host.quiet();
    assert_eq!((metrics.all_ended(), metrics.all_rejected()), (2.0, 0.0));
    is_calm(&host, before)
}

#[test]
fn nesting_and_numbers_without_bound_are_refused_as_json() -> Result<()> {
    let (host, before) = begin(&[]);
    let deep = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    let bodies = [
        format!("{{\"messages\": {deep}}}"),
        deep,
        format!("{{\"a\":{}", "{\"a\":".repeat(100_000)),
        format!("{{\"n\": {}}}", "9".repeat(1 << 20)),
        format!("{{\"temperature\": 1e{}}}", "9".repeat(1000)),
    ];
    for body in bodies {
        let request =
            Request::new("POST", CHAT).body(body.clone()).header("content-type", "application/json");
        let answer = host.call(&request)?;
        assert_eq!(answer.status(), 400, "{}...: {}", &body[..20], answer.text());
    }
    // A name that comes a hundred thousand times is one field.
    let mut body = b"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]".to_vec();
    for _ in 0..100_000 {
        body.write_all(b",\"user\":\"me\"")?;
    }
    body.push(b'}');
    let request = Request::new("POST", CHAT).body(body).header("content-type", "application/json");
    assert_eq!(host.call(&request)?.content(), "x");
    is_calm(&host, before)
}

#[test]
fn a_body_of_millions_of_values_is_refused_before_it_takes_a_gigabyte() -> Result<()> {
    let (host, before) = begin(&[]);
    for item in ["0,", "[],", "{},"] {
        let body = format!(
            "{{\"messages\":[{{\"role\":\"user\",\"content\":\"x\"}}],\"x\":[{}0]}}",
            item.repeat((24 << 20) / item.len())
        );
        let request = Request::new("POST", CHAT).body(body).header("content-type", "application/json");
        let error = host.call(&request)?.error(413);
        assert_eq!(error["code"], "body_too_large", "{error}");
    }
    // The body, and the copy that joins its parts.
    peak_within(&host, before, LITTLE + (64 << 10));
    is_calm(&host, before)
}
