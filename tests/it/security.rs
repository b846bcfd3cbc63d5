//! Who may reach the API: addresses, Host headers.

use anyhow::{Context, Result};
use cascadia_tests::Host;
use cascadia_tests::client::{CHAT, chat};
use cascadia_tests::host::{run, run_with};
use cascadia_tests::http::{Connection, Request};
use cascadia_tests::two::{END_HEADERS, END_STREAM, HEADERS, Two, frame, head_for};
use serde_json::{Value, json};

#[test]
fn an_address_that_others_can_reach_is_refused_without_keys() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:8000"] {
        let ended = run(&["--plugin", "mock", "--api", address]);
        // All ways out are named.
        ended.complains(2, &["127.0.0.1", "--api-keys", "--no-auth"]);
    }
    let ended = run_with(&["--plugin", "mock"], &[("CASCADIA__SERVER__LISTEN", "0.0.0.0:0")]);
    ended.complains(2, &["--no-auth"]);
}

#[test]
fn a_port_alone_is_loopback() {
    // The host asserts nothing about it but its own log line, which the harness reads.
    let host = Host::mock(&["--set", "server.listen=:0"]);
    assert!(host.client().address.ip().is_loopback());
}

#[test]
fn a_page_that_rebinds_its_name_to_loopback_is_refused() -> Result<()> {
    let host = Host::mock(&["--set", "server.allowed_hosts=[\"my.box\"]"]);
    let port = host.client().address.port();
    let ask = |name: &str| host.call(&Request::post(CHAT, &chat("x")).header("host", name));
    for name in [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.0.0.1",
        "",
    ] {
        let error = ask(name)?.error(403);
        assert_eq!(error["code"], "host_not_allowed", "{name:?}");
    }
    let with_port = [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")];
    let bare =
        ["localhost", "LOCALHOST", "127.9.9.9", "a.localhost", "my.box", "My.Box:80"].map(str::to_owned);
    for name in with_port.iter().chain(&bare) {
        assert_eq!(ask(name)?.content(), "x", "{name:?}");
    }
    for path in ["/metrics", "/readyz", "/v1/models", "/nowhere"] {
        let answer = host.call(&Request::new("GET", path).header("host", "evil.example"))?;
        answer.error(403);
    }
    let metrics = host.quiet();
    assert_eq!((metrics.requests(CHAT, "403"), metrics.requests("unmatched", "403")), (6.0, 1.0));
    assert_eq!(metrics.all_rejected(), 0.0);
    Ok(())
}

#[test]
fn the_host_that_a_request_of_http_2_is_for_is_looked_at_as_well() -> Result<()> {
    let host = Host::mock(&["--set", "server.allowed_hosts=[\"my.box\"]"]);
    let evil: &[(&str, &str)] = &[("host", "evil.example")];
    let asked = [
        ("localhost", &[][..], 200),
        ("my.box:80", &[], 200),
        ("evil.example", &[], 403),
        ("127.0.0.1.evil.example:80", &[], 403),
        ("[::1]", &[], 200),
        ("[::1]:80", &[], 200),
        ("[::1]evil.example", &[], 403),
        ("localhost", evil, 403),
    ];
    for (name, more, status) in asked {
        let mut two = Two::open(host.client().address)?;
        let head = head_for(name, "GET", "/livez", more);
        assert!(two.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head)));
        let mut told = None;
        while told.is_none() {
            let frame = two.frame()?.context("it answers")?;
            told = frame.status().filter(|_| frame.kind == HEADERS);
        }
        assert_eq!(told, Some(status), "{name} {more:?}");
    }
    // HTTP/1 may name the target's host too.
    let mut connection = Connection::open(host.client().address)?;
    connection.send_bytes(
        b"GET http://evil.example/livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    )?;
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut connection.into_socket(), &mut answer)?;
    assert_eq!(answer.split(' ').nth(1), Some("403"), "{answer}");
    Ok(())
}

#[test]
fn a_request_of_http_1_1_names_its_host_once() -> Result<()> {
    let host = Host::mock(&[]);
    for (head, status) in [
        ("GET /livez HTTP/1.1", 400),
        ("GET /livez HTTP/1.1\r\nhost: localhost\r\nhost: localhost", 400),
        ("GET http://localhost/livez HTTP/1.1", 400),
        ("GET /livez HTTP/1.1\r\nhost: localhost", 200),
        ("GET /livez HTTP/1.0", 200),
    ] {
        let mut connection = Connection::open(host.client().address)?;
        connection.send_bytes(format!("{head}\r\nconnection: close\r\n\r\n").as_bytes())?;
        let mut answer = Vec::new();
        std::io::Read::read_to_end(&mut connection.into_socket(), &mut answer)?;
        let answer = String::from_utf8(answer)?;
        assert!(answer.split(' ').nth(1) == Some(&status.to_string()), "{head}: {answer}");
        if status == 400 {
            let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap_or_default())?;
            assert_eq!(
                (&body["error"]["code"], &body["error"]["param"]),
                (&json!("invalid_value"), &json!("host"))
            );
            assert!(answer.contains("x-request-id: "), "{answer}");
        }
    }
    assert_eq!(host.quiet().requests("/livez", "400"), 3.0);
    Ok(())
}
