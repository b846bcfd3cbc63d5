//! The API around the answers: keys, web pages, methods, single models, tokens, HTTP/2.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};
use cascadia_tests::client::{CHAT, COMPLETIONS, Client, chat, completion, streamed, with};
use cascadia_tests::host::run;
use cascadia_tests::http::Request;
use cascadia_tests::{Host, TempDir, setup};
use serde_json::{Value, json};

const CLIENT: &str = "client-key-0123456789";
const OTHER: &str = "other-key-0123456789a";
const ADMIN: &str = "admin-key-0123456789a";

fn text(path: &std::path::Path) -> &str {
    path.to_str().expect("PANIC: temporary paths are text")
}

#[test]
fn with_keys_every_route_but_health_asks_for_one() -> Result<()> {
    let dir = TempDir::new();
    let keys = dir.file("keys", format!("# clients\n{CLIENT}\n\n{OTHER} # a second one\n"));
    let admins = dir.file("admins", ADMIN);
    let host = Host::mock(&["--api-keys", text(&keys), "--admin-keys", text(&admins)]);
    let ask = |method: &str, path: &str, key: Option<&str>| {
        let body = json!({"model": "mock", "prompt": "x", "messages": [{"role": "user", "content": "x"}], "tokens": []});
        let request = match method {
            "POST" => Request::post(path, &body),
            _ => Request::new(method, path),
        };
        host.call(&match key {
            Some(key) => request.header("authorization", &format!("Bearer {key}")),
            None => request,
        })
    };
    let routes = [
        ("POST", CHAT),
        ("POST", COMPLETIONS),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/mock"),
        ("POST", "/v1/cancel/x"),
        ("POST", "/tokenize"),
        ("POST", "/v1/detokenize"),
    ];
    for (method, path) in routes {
        for key in [None, Some("client-key-012345678"), Some(""), Some("client-key-0123456789x")] {
            let answer = ask(method, path, key)?;
            let error = answer.error(401);
            assert_eq!(
                (&error["code"], &error["type"]),
                (&json!("invalid_api_key"), &json!("authentication_error"))
            );
            assert_eq!(answer.head.header("www-authenticate"), Some("Bearer"), "{path}");
        }
        for key in [CLIENT, OTHER, ADMIN] {
            assert_eq!(ask(method, path, Some(key))?.status(), 200, "{path}");
        }
    }
    for path in ["/livez", "/readyz", "/health", "/metrics"] {
        assert_eq!(ask("GET", path, None)?.status(), 200, "{path}");
    }
    let request = Request::post(CHAT, &chat("the other header")).header("x-api-key", CLIENT);
    assert_eq!(host.call(&request)?.content(), "the other header");
    // Nothing of a key is in the log, and a refusal is no rejection of the engine's.
    for secret in [CLIENT, OTHER, ADMIN] {
        assert!(!host.log().contains(secret), "a key is in the log");
    }
    assert_eq!(host.quiet().all_rejected(), 0.0);
    Ok(())
}

#[test]
fn metrics_ask_for_a_key_where_the_configuration_says_so() -> Result<()> {
    let dir = TempDir::new();
    let keys = dir.file("keys", CLIENT);
    let host = Host::mock(&["--api-keys", text(&keys), "--set", "server.metrics_auth=true"]);
    host.get("/metrics")?.error(401);
    let with_key = Request::new("GET", "/metrics").header("x-api-key", CLIENT);
    assert_eq!(host.call(&with_key)?.status(), 200);
    Ok(())
}

#[test]
fn clients_with_different_keys_do_not_cancel_each_other() -> Result<()> {
    let dir = TempDir::new();
    let keys = dir.file("keys", format!("{CLIENT}\n{OTHER}"));
    let host = Host::mock(&["--api-keys", text(&keys)]);
    let slow =
        cascadia_tests::order("w", &json!({"token_delay_ms": 20, "script": [{"repeat": 2000, "item": "x"}]}));
    let body = streamed(with(chat(&slow), &json!({"max_tokens": 3000})));
    let begin = |key: &str| {
        host.begin(&Request::post(CHAT, &body).header("x-api-key", key).header("x-request-id", "mine"))
    };
    let cancel =
        |key: &str| host.call(&Request::post("/v1/cancel/mine", &json!({})).header("x-api-key", key));
    // The same id of two clients is no clash.
    let (mut first, mut second) = (begin(CLIENT)?.stream()?, begin(OTHER)?.stream()?);
    first.pieces(1)?;
    second.pieces(1)?;
    assert_eq!(cancel(OTHER)?.status(), 200);
    assert_eq!(second.rest()?.finish(), "stop");
    first.pieces(3)?;
    assert_eq!(cancel(CLIENT)?.status(), 200);
    assert_eq!(first.rest()?.finish(), "stop");
    assert_eq!(host.scrape().ended("cancelled"), 2.0);
    Ok(())
}

#[test]
fn bad_key_files_are_refused_at_the_start() {
    let dir = TempDir::new();
    let plugin = setup::plugin("mock");
    let start = |file: &str| run(&["--plugin", text(&plugin), "--api", ":0", "--api-keys", file]);
    start("/nowhere/keys").complains(2, &["/nowhere/keys"]);
    start(text(&dir.file("empty", "# none\n"))).complains(2, &["has no key"]);
    let short = dir.file("short", "secret");
    let ended = start(text(&short));
    ended.complains(2, &["key 1", "openssl rand"]);
    assert!(!ended.complaint.contains("secret"), "{}", ended.complaint);
    // With keys an address that others reach is fine; this one nobody can listen on.
    let keys = dir.file("keys", CLIENT);
    let args = ["--plugin", text(&plugin), "--api", "192.0.2.1:0", "--api-keys", text(&keys)];
    run(&args).complains(1, &["cannot listen"]);
}

#[test]
fn pages_of_this_machine_may_call_and_others_may_not() -> Result<()> {
    let host = Host::mock(&[]);
    let preflight = |origin: &str| {
        let asked = "authorization, x-stainless-lang";
        let request = Request::new("OPTIONS", CHAT)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", asked);
        host.call(&request)
    };
    let allowed = preflight("http://localhost:3000")?;
    assert_eq!(allowed.status(), 204);
    let header = |name: &str| allowed.head.header(name);
    assert_eq!(header("access-control-allow-origin"), Some("http://localhost:3000"));
    assert_eq!(header("access-control-allow-headers"), Some("authorization, x-stainless-lang"));
    assert!(header("access-control-allow-methods").is_some_and(|m| m.contains("POST")));
    assert_eq!(header("allow"), Some("POST, OPTIONS"));
    assert_eq!(preflight("https://evil.example")?.head.header("access-control-allow-origin"), None);
    // Answers and streams carry it too.
    for body in [chat("x"), streamed(chat("x"))] {
        let request = Request::post(CHAT, &body).header("origin", "http://localhost:3000");
        let answer = host.call(&request)?;
        assert_eq!(answer.head.header("access-control-allow-origin"), Some("http://localhost:3000"));
        assert!(answer.head.header("vary").is_some_and(|v| v.contains("origin")));
    }
    let named = Host::mock(&["--set", r#"server.cors_origins=["https://my.app"]"#]);
    let ask = |origin: &str| named.call(&Request::new("GET", "/v1/models").header("origin", origin));
    assert_eq!(ask("https://my.app")?.head.header("access-control-allow-origin"), Some("https://my.app"));
    assert_eq!(ask("http://localhost:3000")?.head.header("access-control-allow-origin"), None);
    Ok(())
}

#[test]
fn every_route_answers_options_and_head_where_it_has_get() -> Result<()> {
    let host = Host::mock(&[]);
    for path in ["/v1/models", "/livez", "/metrics"] {
        let head = host.call(&Request::new("HEAD", path))?;
        assert_eq!((head.status(), head.body.len()), (200, 0), "{path}");
        let options = host.call(&Request::new("OPTIONS", path))?;
        assert_eq!((options.status(), options.head.header("allow")), (204, Some("GET, HEAD, OPTIONS")));
    }
    let wrong = host.call(&Request::new("HEAD", CHAT))?;
    assert_eq!((wrong.status(), wrong.head.header("allow")), (405, Some("POST, OPTIONS")));
    host.call(&Request::new("OPTIONS", "/nowhere"))?.error(404);
    // How long a whole answer took is told, as clients know it.
    let told = host.chat("x")?;
    let millis = told.head.header("openai-processing-ms").and_then(|v| v.parse::<u64>().ok());
    assert!(millis.is_some(), "{:?}", told.head);
    Ok(())
}

#[test]
fn a_single_model_is_found_by_its_name_with_slashes() -> Result<()> {
    let host = Host::mock(&["--served-model-name", "org/small"]);
    for path in ["/v1/models/org/small", "/v1/models/org%2Fsmall"] {
        let model = host.get(path)?.json();
        assert_eq!((&model["id"], &model["object"]), (&json!("org/small"), &json!("model")), "{path}");
    }
    let missing = host.get("/v1/models/org/large")?.error(404);
    assert_eq!(missing["code"], "model_not_found");
    // Asking whether a model is there is no request to it.
    let metrics = host.scrape();
    assert_eq!(metrics.all_rejected(), 0.0);
    assert_eq!(metrics.requests("/v1/models/*model", "404"), 1.0);
    Ok(())
}

#[test]
fn texts_become_tokens_and_tokens_texts() -> Result<()> {
    let host = Host::mock(&[]);
    for path in ["/tokenize", "/v1/tokenize"] {
        for field in ["prompt", "content"] {
            let answer = host.post(path, &json!({"model": "mock", field: "hi \u{1F600}"}))?.json();
            let expected: Vec<u32> = "hi \u{1F600}".bytes().map(u32::from).collect();
            assert_eq!((&answer["tokens"], &answer["count"]), (&json!(expected), &json!(expected.len())));
            assert_eq!(answer["max_model_len"], 32_768);
            let back = host.post("/detokenize", &json!({"tokens": expected}))?.json();
            assert_eq!((&back["prompt"], &back["content"]), (&json!("hi \u{1F600}"), &json!("hi \u{1F600}")));
        }
    }
    let messages = json!([{"role": "user", "content": "ab"}]);
    let answer = host.post("/tokenize", &json!({"messages": messages, "return_token_strs": true}))?.json();
    assert_eq!((&answer["tokens"], &answer["token_strs"]), (&json!([97, 98]), &json!(["a", "b"])));
    assert_eq!(host.post("/tokenize", &json!({"prompt": ""}))?.json()["tokens"], json!([]));
    for (path, body, param) in [
        ("/tokenize", json!({}), "prompt"),
        ("/tokenize", json!({"prompt": 3}), "prompt"),
        ("/detokenize", json!({}), "tokens"),
        ("/detokenize", json!({"tokens": [99_999_999]}), "tokens"),
        ("/detokenize", json!({"tokens": ["a"]}), "tokens"),
    ] {
        assert_eq!(host.post(path, &body)?.error(400)["param"], param, "{body}");
    }
    assert_eq!(host.quiet().all_ended(), 0.0);
    Ok(())
}

#[test]
fn fields_that_nobody_knows_are_counted_and_refused_on_request() -> Result<()> {
    let odd = with(chat("x"), &json!({"frobnicate": 1, "user": "me", "store": true}));
    let host = Host::mock(&[]);
    assert_eq!(host.post(CHAT, &odd)?.content(), "x");
    assert_eq!(host.scrape().value("cascadia_api_unknown_fields_total", &[]), 1.0);
    let strict = Host::mock(&["--set", "server.strict_fields=true"]);
    let error = strict.post(CHAT, &odd)?.error(400);
    assert_eq!((&error["code"], &error["param"]), (&json!("unknown_parameter"), &json!("frobnicate")));
    let typo = with(streamed(chat("x")), &json!({"stream_options": {"include_usag": true}}));
    let error = strict.post(CHAT, &typo)?.error(400);
    assert_eq!(error["param"], "stream_options.include_usag");
    let known = with(completion("x"), &json!({"user": "me", "seed": 1, "n": 1, "echo": false}));
    assert_eq!(strict.post(COMPLETIONS, &known)?.content(), "x");
    let known = with(
        streamed(chat("x")),
        &json!({"stream_options": {"include_usage": true, "include_obfuscation": false}}),
    );
    assert_eq!(strict.told(CHAT, &known)?.text, "x");
    Ok(())
}

#[test]
fn packed_requests_are_read_and_large_answers_packed_for_those_who_ask() -> Result<()> {
    let host = Host::mock(&["--api-max-body-mb", "1"]);
    let pack = |bytes: &[u8]| -> Result<Vec<u8>> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes)?;
        Ok(encoder.finish()?)
    };
    let words = "word ".repeat(1000);
    let body = with(chat(&words), &json!({"max_tokens": 2000}));
    let request = Request::post(CHAT, &json!(null)).body(pack(body.to_string().as_bytes())?);
    let answer = host.call(&request.header("content-encoding", "gzip").header("accept-encoding", "gzip"))?;
    assert_eq!(
        (answer.status(), answer.head.header("content-encoding")),
        (200, Some("gzip")),
        "{:?}",
        answer.head
    );
    let mut plain = String::new();
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut plain)?;
    let content = serde_json::from_str::<Value>(&plain)?["choices"][0]["message"]["content"].clone();
    assert_eq!(content.as_str().map(str::trim_end), Some(words.trim_end()));
    // What grows over the limit is refused, however small it came; streams are never packed.
    let bomb = Request::post(CHAT, &json!(null)).body(pack(&vec![b' '; 8 << 20])?);
    assert_eq!(host.call(&bomb.header("content-encoding", "gzip"))?.error(413)["code"], "body_too_large");
    let garbage = Request::post(CHAT, &chat("x")).header("content-encoding", "gzip");
    host.call(&garbage)?.error(400);
    let stream = Request::post(CHAT, &streamed(chat(&words))).header("accept-encoding", "gzip");
    assert_eq!(host.call(&stream)?.head.header("content-encoding"), None);
    Ok(())
}

/// One frame of HTTP/2: its type and its bytes.
fn frame(socket: &mut TcpStream) -> Result<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    socket.read_exact(&mut head).context("a frame's head")?;
    let mut bytes = vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
    socket.read_exact(&mut bytes).context("a frame's bytes")?;
    Ok((head[3], bytes))
}

#[test]
fn a_client_that_knows_of_http_2_beforehand_is_answered_in_it() -> Result<()> {
    let host = Host::mock(&[]);
    let Client { address } = host.client();
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
    // Empty settings, then the head of GET /livez on stream 1, which ends it.
    socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])?;
    let mut block = vec![0x82, 0x86, 0x44, 6];
    block.extend_from_slice(b"/livez");
    block.extend_from_slice(&[0x41, 9]);
    block.extend_from_slice(b"localhost");
    socket.write_all(&[0, 0, u8::try_from(block.len())?, 1, 5, 0, 0, 0, 1])?;
    socket.write_all(&block)?;
    let (mut status, mut body) = (None, Vec::new());
    while body.is_empty() {
        match frame(&mut socket)? {
            // The first byte of the head: entry 8 of the static table is status 200.
            (1, head) => status = head.first().copied(),
            (0, data) => body = data,
            _ => {}
        }
    }
    assert_eq!(status, Some(0x88));
    assert_eq!(serde_json::from_slice::<Value>(&body)?, json!({"status": "ok"}));
    Ok(())
}
