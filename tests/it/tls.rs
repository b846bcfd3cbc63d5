//! TLS: a client that trusts the certificate is answered, over HTTP/1.1 and with HTTP/2 agreed; others do no harm.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use cascadia_tests::client::{CHAT, chat, order, streamed};
use cascadia_tests::host::run;
use cascadia_tests::{Host, TempDir, setup, wait};
use serde_json::json;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A certificate for `localhost` and its key, made for these tests and worth nothing else.
const CERTIFICATE: &str = include_str!("tls/cert.pem");
const KEY: &str = include_str!("tls/key.pem");
/// Another one, as after a renewal.
const OTHER_CERTIFICATE: &str = include_str!("tls/other-cert.pem");
const OTHER_KEY: &str = include_str!("tls/other-key.pem");
/// A third, as `openssl req -x509` makes it without more: it signed itself, as an authority may.
const AUTHORITY_CERTIFICATE: &str = include_str!("tls/authority-cert.pem");
const AUTHORITY_KEY: &str = include_str!("tls/authority-key.pem");
const SIGHUP: i32 = 1;

fn text(path: &std::path::Path) -> &str {
    path.to_str().expect("PANIC: temporary paths are text")
}

/// A connection that offers these protocols.
fn connect(host: &Host, protocols: &[&[u8]]) -> Result<StreamOwned<ClientConnection, TcpStream>> {
    trusting(CERTIFICATE, host, protocols)
}

/// The same, of a client that trusts this certificate.
fn trusting(
    certificate: &str,
    host: &Host,
    protocols: &[&[u8]],
) -> Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes())?)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
    let client = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost")?)?;
    let socket = TcpStream::connect(host.client().address)?;
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    Ok(StreamOwned::new(client, socket))
}

/// Asks for `/livez` and answers what came.
fn ask(stream: &mut StreamOwned<ClientConnection, TcpStream>) -> Result<String> {
    ask_for(stream, "/livez")
}

fn ask_for(stream: &mut StreamOwned<ClientConnection, TcpStream>, path: &str) -> Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context("an answer and a proper end")?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Asks for a streamed answer of these words.
fn send_chat(
    stream: &mut StreamOwned<ClientConnection, TcpStream>,
    words: &str,
    how: &serde_json::Value,
) -> Result<()> {
    let body = streamed(chat(&order(words, how))).to_string();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    Ok(stream.write_all(format!("{head}{body}").as_bytes())?)
}

/// A host with a certificate and the mock, that is up.
fn secure(dir: &TempDir) -> Host {
    let (cert, key) = (dir.file("cert.pem", CERTIFICATE), dir.file("key.pem", KEY));
    let plugin = setup::plugin("mock");
    let host = Host::start(&["--plugin", text(&plugin), "--tls-cert", text(&cert), "--tls-key", text(&key)]);
    wait("the model", || {
        let answer = connect(&host, &[]).and_then(|mut stream| ask_for(&mut stream, "/readyz"));
        answer
            .map_err(|e| e.to_string())
            .and_then(|a| if a.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(a) })
    });
    host
}

#[test]
fn a_host_with_a_certificate_speaks_tls_and_nothing_else() -> Result<()> {
    let dir = TempDir::new();
    let (cert, key) = (dir.file("cert.pem", CERTIFICATE), dir.file("key.pem", KEY));
    let plugin = setup::plugin("mock");
    let args = ["--plugin", text(&plugin), "--tls-cert", text(&cert), "--tls-key", text(&key)];
    let host = Host::start(&args);
    let answer = ask(&mut connect(&host, &[b"http/1.1"])?)?;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // Without a word about protocols it is HTTP/1.1 too.
    assert!(ask(&mut connect(&host, &[])?)?.contains("\"ok\""));
    let mut two = connect(&host, &[b"h2", b"http/1.1"])?;
    two.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")?;
    let mut head = [0; 9];
    two.read_exact(&mut head)?;
    assert_eq!((two.conn.alpn_protocol(), head[3]), (Some(&b"h2"[..]), 4), "the host's settings come first");
    // Who speaks plainly is not answered, and the next one is.
    let mut plain = TcpStream::connect(host.client().address)?;
    plain.set_read_timeout(Some(Duration::from_secs(30)))?;
    plain.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    let mut rest = Vec::new();
    // It may end with an alert or a reset; it must end.
    drop(plain.read_to_end(&mut rest));
    assert!(!rest.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&rest));
    let metrics = ask_for(&mut connect(&host, &[])?, "/metrics")?;
    assert!(metrics.contains("cascadia_connections_ended_total{reason=\"tls\"} 1\n"), "{metrics}");
    assert!(ask(&mut connect(&host, &[])?)?.contains("\"ok\""));
    Ok(())
}

#[test]
fn a_slow_stream_over_tls_is_whole_and_leaves_its_connection_to_the_next() -> Result<()> {
    let dir = TempDir::new();
    let host = secure(&dir);
    let mut stream = connect(&host, &[b"http/1.1"])?;
    for _ in 0..2 {
        send_chat(&mut stream, "slow but whole", &json!({"token_delay_ms": 30}))?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"data: [DONE]\n\n\r\n0\r\n\r\n") {
            let mut part = [0; 4096];
            let n = stream.read(&mut part)?;
            anyhow::ensure!(n > 0, "ended after {:?}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&part[..n]);
        }
        let answer = String::from_utf8(answer)?;
        for word in ["slow", "but", "whole"] {
            assert_eq!(answer.matches(word).count(), 1, "{answer}");
        }
    }
    assert!(
        ask(&mut stream)?.starts_with("HTTP/1.1 200"),
        "the same connection serves on, and ends when asked to"
    );
    Ok(())
}

#[test]
fn a_client_that_sent_ahead_over_tls_and_leaves_is_seen_to_have_left() -> Result<()> {
    let dir = TempDir::new();
    let host = secure(&dir);
    let mut stream = connect(&host, &[b"http/1.1"])?;
    send_chat(&mut stream, "never ends", &json!({"stall_after": 1}))?;
    let mut part = [0; 4096];
    assert!(stream.read(&mut part)? > 0);
    stream.write_all(b"GET /")?;
    // Time for the host to have read that before the end comes.
    std::thread::sleep(Duration::from_millis(300));
    // It still reads, so nothing that is written to it would tell.
    stream.sock.shutdown(std::net::Shutdown::Write)?;
    wait("its end", || {
        let metrics = connect(&host, &[]).and_then(|mut other| ask_for(&mut other, "/metrics"));
        let metrics = metrics.map_err(|e| e.to_string())?;
        let left = "cascadia_connections_ended_total{reason=\"client_left\"} 1\n";
        if metrics.contains(left) { Ok(()) } else { Err(metrics) }
    });
    Ok(())
}

#[test]
fn files_that_make_no_certificate_are_refused_at_the_start() {
    let dir = TempDir::new();
    let (cert, key) = (dir.file("cert.pem", CERTIFICATE), dir.file("key.pem", KEY));
    let none = dir.file("none.pem", "no certificate");
    let plugin = setup::plugin("mock");
    let start = |cert: &str, key: &str| {
        run(&["--plugin", text(&plugin), "--api", ":0", "--tls-cert", cert, "--tls-key", key])
    };
    start("/nowhere/cert.pem", text(&key)).complains(2, &["/nowhere/cert.pem"]);
    start(text(&none), text(&key)).complains(2, &["none.pem", "no certificate"]);
    start(text(&cert), text(&none)).complains(2, &["none.pem"]);
    run(&["--plugin", text(&plugin), "--set", "server.tls_cert=\"x\""]).complains(2, &["go together"]);
}

#[test]
fn renewed_certificates_are_shown_after_a_reload_and_broken_ones_change_nothing() -> Result<()> {
    let dir = TempDir::new();
    let (cert, key) = (dir.file("cert.pem", CERTIFICATE), dir.file("key.pem", KEY));
    let plugin = setup::plugin("mock");
    let args = ["--plugin", text(&plugin), "--tls-cert", text(&cert), "--tls-key", text(&key)];
    let host = Host::start(&args);
    let mut before = connect(&host, &[])?;
    before.conn.complete_io(&mut before.sock)?;
    let told = |message: &str| {
        host.signal(SIGHUP);
        wait(message, || if host.log().contains(message) { Ok(()) } else { Err(host.log()) });
    };
    dir.file("cert.pem", OTHER_CERTIFICATE);
    // A chain without its key, as when a renewal is half written.
    told("does not go with");
    assert!(ask(&mut connect(&host, &[])?)?.contains("\"ok\""));
    dir.file("key.pem", OTHER_KEY);
    told("configuration was read again");
    assert!(ask(&mut trusting(OTHER_CERTIFICATE, &host, &[])?)?.contains("\"ok\""));
    let old = ask(&mut connect(&host, &[])?);
    assert!(old.is_err(), "the old one is not shown any more: {old:?}");
    // Who was there keeps what it has.
    assert!(ask(&mut before)?.contains("\"ok\""));
    Ok(())
}

#[test]
fn the_model_commands_ask_a_host_with_tls_and_refuse_one_that_is_not_who_it_should_be() {
    let dir = TempDir::new();
    let (cert, key) = (dir.file("cert.pem", CERTIFICATE), dir.file("key.pem", KEY));
    let other = dir.file("other.pem", OTHER_CERTIFICATE);
    let plugin = setup::plugin("mock");
    let args = ["--plugin", text(&plugin), "--tls-cert", text(&cert), "--tls-key", text(&key)];
    let host = Host::start(&args);
    let port = host.client().address.port();
    for name in ["localhost", "127.0.0.1"] {
        let url = format!("https://{name}:{port}");
        let list = run(&["model", "list", "--host", &url, "--ca", text(&cert)]);
        assert!(list.status.success() && list.output.contains("mock/mock"), "{list:?}");
    }
    let url = format!("https://localhost:{port}");
    let load = run(&["model", "load", "b", "--wait", "--host", &url, "--ca", text(&cert)]);
    assert!(load.status.success() && load.output.contains("b  up"), "{load:?}");
    let ask = |url: &str, ca: &[&str]| run(&[&["model", "list", "--host", url], ca].concat());
    // Of the same name, as one that was renewed.
    ask(&url, &["--ca", text(&other)]).complains(1, &["its certificate is not signed by", "--ca"]);
    // The system's authorities, if it has any, have not signed it.
    ask(&url, &[]).complains(1, &[]);
    ask(&url, &["--ca", text(&key)]).complains(1, &["key.pem"]);
    ask(&url, &["--ca", "/nowhere.pem"]).complains(1, &["/nowhere.pem"]);
    ask(&format!("http://localhost:{port}"), &[]).complains(1, &[]);
}

#[test]
fn a_certificate_that_openssl_makes_by_default_is_refused_with_the_way_out() {
    let dir = TempDir::new();
    let (cert, key) = (dir.file("cert.pem", AUTHORITY_CERTIFICATE), dir.file("key.pem", AUTHORITY_KEY));
    let plugin = setup::plugin("mock");
    let host = Host::start(&["--plugin", text(&plugin), "--tls-cert", text(&cert), "--tls-key", text(&key)]);
    let url = format!("https://localhost:{}", host.client().address.port());
    let ended = run(&["model", "list", "--host", &url, "--ca", text(&cert)]);
    ended.complains(
        1,
        &["is an authority's (CA:TRUE)", "openssl req -x509 -addext basicConstraints=critical,CA:FALSE"],
    );
    assert!(!ended.complaint.contains("OtherError"), "{}", ended.complaint);
}
