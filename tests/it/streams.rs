//! What a stream shows: stop strings, characters that are split, errors, ends. Tests are named after the symptoms that
//! users of other servers reported.

use std::time::Duration;

use anyhow::Result;
use cascadia_tests::client::{CHAT, COMPLETIONS, chat, check_error, completion, order, streamed, with};
use cascadia_tests::http::{Connection, Request};
use cascadia_tests::{Host, Scrape, sse};
use serde_json::{Value, json};

/// A chat of a script.
fn script(items: &Value) -> Value {
    chat(&order("x", &json!({"script": items})))
}

#[test]
fn a_stop_string_over_two_chunks_is_never_shown_in_part() -> Result<()> {
    let host = Host::mock(&[]);
    let body = with(script(&json!(["Hi", "<|im", "_end|>", "X"])), &json!({"stop": ["<|im_end|>"]}));
    let told = host.told(CHAT, &streamed(body.clone()))?;
    assert_eq!((told.text.as_str(), told.finish()), ("Hi", "stop"));
    // What was generated counts, shown or not.
    assert_eq!(told.completion_tokens(), 3);
    let answer = host.post(CHAT, &body)?;
    assert_eq!((answer.content().as_str(), answer.finish().as_str()), ("Hi", "stop"));
    let metrics = host.quiet();
    assert_eq!((metrics.ended("stop"), metrics.all_ended()), (2.0, 2.0));
    assert_eq!(metrics.value("cascadia_tasks_cancelled_total", &[]), 0.0);
    // The engine was told to stop before it came to the X.
    assert_eq!(metrics.mock_tasks("cancelled"), 2.0);
    assert_eq!(metrics.mock_tokens(), 6.0);
    Ok(())
}

#[test]
fn text_that_waits_for_a_stop_string_sends_no_empty_frames() -> Result<()> {
    let host = Host::mock(&[]);
    let words: Vec<String> = (0..20).map(|i| format!("Zword{i} ")).collect();
    for stop in ["ZZZZZZ", "Zword19 and more", "nowhere"] {
        let body = with(script(&json!(words)), &json!({"stop": [stop]}));
        let told = host.told(CHAT, &streamed(body.clone()))?;
        assert_eq!(told.empty_pieces, 0, "{stop}: {:?}", told.frames);
        assert_eq!(told.text, host.post(CHAT, &body)?.content(), "{stop}");
        assert_eq!(told.text, words.concat(), "{stop}");
        assert_eq!((told.finish(), told.completion_tokens()), ("stop", 20), "{stop}");
    }
    Ok(())
}

#[test]
fn the_earliest_of_several_stop_strings_ends_the_text_wherever_chunks_are_cut() -> Result<()> {
    let host = Host::mock(&[]);
    let text = "alpha beta END gamma STOP delta";
    for chunk in [1, 2, 3, 7, 31] {
        let bytes: Vec<char> = text.chars().collect();
        let items: Vec<String> = bytes.chunks(chunk).map(|c| c.iter().collect()).collect();
        for order in [["STOP", "END"], ["END", "STOP"]] {
            let body = with(script(&json!(items)), &json!({"stop": order}));
            let told = host.told(CHAT, &streamed(body))?;
            assert_eq!((told.text.as_str(), told.finish()), ("alpha beta ", "stop"), "in pieces of {chunk}");
        }
    }
    Ok(())
}

#[test]
fn characters_split_over_tokens_are_joined_and_a_lone_byte_is_one_mark() -> Result<()> {
    let host = Host::mock(&[]);
    let items = json!([{"hex": "f09f"}, {"hex": "92a9"}, {"hex": "20"}, {"hex": "85"}, {"hex": "6f6b"}]);
    let expected = "\u{1f4a9} \u{fffd}ok";
    let told = host.told(CHAT, &streamed(script(&items)))?;
    assert_eq!((told.text.as_str(), told.finish(), told.empty_pieces), (expected, "stop", 0));
    assert_eq!(host.post(CHAT, &script(&items))?.content(), expected);
    // The same as token ids, which the host turns into bytes.
    let ids = json!([{"ids": [0xf0, 0x9f]}, {"ids": [0x92, 0xa9]}, {"ids": [0x20]}, {"ids": [0x85]}, {"ids": [0x6f, 0x6b]}]);
    assert_eq!(host.told(CHAT, &streamed(script(&ids)))?.text, expected);
    // Half a character at the end is flushed, not lost.
    let half = json!(["end", {"hex": "e282"}]);
    assert_eq!(host.told(CHAT, &streamed(script(&half)))?.text, "end\u{fffd}");
    assert_eq!(host.post(CHAT, &script(&half))?.content(), "end\u{fffd}");
    assert_eq!(host.quiet().ended("stop"), 5.0);
    Ok(())
}

#[test]
fn control_characters_and_quotes_survive_the_frames() -> Result<()> {
    let host = Host::mock(&[]);
    let text = "a\"b\\c\n\n\r\t\u{0}\u{1}\u{7f}\u{2028}data: x\n\n: y\u{1f600}";
    let told = host.told(CHAT, &streamed(script(&json!([text]))))?;
    assert_eq!(told.text, text);
    assert_eq!(host.post(CHAT, &script(&json!([text])))?.content(), text);
    Ok(())
}

#[test]
fn an_engine_that_dies_mid_stream_gives_an_error_frame_and_done() -> Result<()> {
    let host = Host::mock(&[]);
    let prompt = order("a b c d e", &json!({"fail_after": 3, "error_message": "out of paper"}));
    for (path, body) in [(CHAT, chat(&prompt)), (COMPLETIONS, completion(&prompt))] {
        let before = host.scrape();
        let told = host.told(path, &streamed(body.clone()))?;
        assert_eq!(
            (told.text.as_str(), told.finish.len()),
            ("a b c", 0),
            "no finish reason: {:?}",
            told.frames
        );
        let error = told.error.expect("PANIC: an error frame");
        check_error(&json!({"error": error}));
        assert_eq!((&error["code"], &error["type"]), (&json!("engine_error"), &json!("server_error")));
        assert!(error["message"].as_str().is_some_and(|m| m.contains("out of paper")), "{error}");
        // As a whole answer it is a 500.
        let error = host.post(path, &body)?.error(500);
        assert_eq!(error["code"], "engine_error");
        let after = host.quiet();
        let moved = |f: &dyn Fn(&Scrape) -> f64| f(&after) - f(&before);
        assert_eq!(moved(&|s| s.ended("error")), 2.0);
        assert_eq!(moved(&|s| s.all_ended()), 2.0);
        assert_eq!(moved(&|s| s.value("cascadia_tasks_failed_total", &[])), 2.0);
        assert_eq!(moved(&|s| s.value("cascadia_tasks_cancelled_total", &[])), 0.0);
        // Only the stream's tokens reached a client.
        assert_eq!(moved(&Scrape::generated), 3.0);
        assert_eq!(moved(&Scrape::all_rejected), 0.0);
        // The stream had its head, so it counts as 200; the unary one had not.
        assert_eq!(moved(&|s| s.requests(path, "200")), 1.0);
        assert_eq!(moved(&|s| s.requests(path, "500")), 1.0);
    }
    Ok(())
}

#[test]
fn an_engine_that_fails_before_the_first_token_is_a_real_500_to_a_stream_too() -> Result<()> {
    let host = Host::mock(&[]);
    let prompt = order("a", &json!({"fail_after": 0}));
    let error = host.post(CHAT, &streamed(chat(&prompt)))?.error(500);
    assert_eq!(error["code"], "engine_error");
    let metrics = host.quiet();
    assert_eq!((metrics.ended("error"), metrics.all_ended(), metrics.all_rejected()), (1.0, 1.0, 0.0));
    assert_eq!(metrics.value("cascadia_tasks_failed_total", &[]), 1.0);
    assert_eq!(metrics.value("cascadia_generation_ttft_seconds_count", &[]), 0.0);
    Ok(())
}

#[test]
fn n_of_0_is_refused_before_any_head_of_a_stream() -> Result<()> {
    let host = Host::mock(&[]);
    for n in [json!(0), json!(-1), json!("2")] {
        let answer = host.post(CHAT, &with(streamed(chat("x")), &json!({"n": n})))?;
        assert_eq!(answer.error(400)["param"], "n");
    }
    Ok(())
}

#[test]
fn an_engine_that_breaks_the_rules_costs_only_its_own_stream() -> Result<()> {
    let host = Host::mock(&[]);
    let cases = [
        (json!({"double_finish": true}), Some("unknown_task")),
        (json!({"push_after_finish": true}), Some("unknown_task")),
        (json!({"unknown_task": true}), Some("unknown_task")),
        (json!({"nan": true}), None),
        (json!({"timestamp_ns": 0}), None),
    ];
    for (overrides, kind) in cases {
        let before = host.scrape();
        let told = host.told(CHAT, &streamed(chat(&order("a b c", &overrides))))?;
        assert_eq!((told.text.as_str(), told.finish()), ("a b c", "stop"), "{overrides}");
        if let Some(kind) = kind {
            let of = |s: &Scrape| s.value("cascadia_plugin_protocol_errors_total", &[("kind", kind)]);
            host.until(&format!("protocol errors of {overrides}"), of(&before) + 1.0, of);
        }
    }
    assert_eq!(host.quiet().ended("stop"), 5.0);
    Ok(())
}

#[test]
fn the_head_of_a_slow_stream_does_not_wait_for_its_first_token() -> Result<()> {
    let host = Host::mock(&[]);
    let prompt = order("a b", &json!({"stall_after": 0}));
    let request =
        cascadia_tests::http::Request::post(CHAT, &streamed(chat(&prompt))).header("x-request-id", "late");
    // The head comes although the engine never gives a token.
    let stream = host.begin(&request)?.stream()?;
    assert_eq!(stream.head.header("x-request-id"), Some("late"));
    host.cancel("late")?;
    let told = stream.rest()?;
    assert_eq!((told.text.as_str(), told.finish()), ("", "stop"));
    let metrics = host.quiet();
    assert_eq!((metrics.ended("cancelled"), metrics.all_ended()), (1.0, 1.0));
    assert_eq!(metrics.value("cascadia_generation_ttft_seconds_count", &[]), 0.0);
    Ok(())
}

#[test]
fn what_a_client_sends_beside_a_stream_is_answered_behind_it_and_whole() -> Result<()> {
    let host = Host::mock(&[]);
    let address = host.client().address;
    let slow = |words: &str| streamed(chat(&order(words, &json!({"token_delay_ms": 20}))));
    let mut connection = Connection::open(address)?;
    // Requests that are longer than what is read ahead, in parts of any length that come between the tokens of a stream.
    let long = with(slow("and the second one too"), &json!({"user": "x".repeat(5000)}));
    let ahead = [
        Request::post(CHAT, &long).bytes(address),
        Request::new("GET", "/livez").bytes(address),
        Request::post(CHAT, &slow("the last")).header("connection", "Keep-Alive, Close").bytes(address),
    ]
    .concat();
    connection.send(&Request::post(CHAT, &slow("first of all comes this one with its words")))?;
    let first = connection.head()?;
    assert_eq!((first.status, first.header("transfer-encoding")), (200, Some("chunked")));
    for part in ahead.chunks(700) {
        std::thread::sleep(Duration::from_millis(15));
        connection.send_all(part)?;
    }
    assert_eq!(sse::told(&connection.body()?)?.text.trim(), "first of all comes this one with its words");
    assert_eq!(connection.head()?.status, 200);
    assert_eq!(sse::told(&connection.body()?)?.text.trim(), "and the second one too");
    assert_eq!(connection.head()?.status, 200);
    assert!(String::from_utf8(connection.body()?)?.contains("\"ok\""));
    let last = connection.head()?;
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    let told = sse::told(&connection.body()?)?;
    assert_eq!((told.text.trim(), told.done), ("the last", true));
    connection.closed()?;
    let metrics = host.quiet();
    let ended = |reason| metrics.value("cascadia_connections_ended_total", &[("reason", reason)]);
    assert_eq!((metrics.ended("stop"), ended("client_left"), ended("malformed")), (3.0, 0.0, 0.0));
    Ok(())
}

#[test]
fn a_slow_stream_in_old_http_or_asked_for_in_chunks_is_as_whole_as_any() -> Result<()> {
    let host = Host::mock(&[]);
    let body = streamed(chat(&order("as whole as any", &json!({"token_delay_ms": 20})))).to_string();
    let mut connection = Connection::open(host.client().address)?;
    for _ in 0..2 {
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n");
        connection.send_all(format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).as_bytes())?;
        assert_eq!(connection.head()?.status, 200);
        let told = sse::told(&connection.body()?)?;
        assert_eq!((told.text.trim(), told.done), ("as whole as any", true));
    }
    let mut old = std::net::TcpStream::connect(host.client().address)?;
    let head = format!("POST {CHAT} HTTP/1.0\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    std::io::Write::write_all(&mut old, format!("{head}{body}").as_bytes())?;
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut old, &mut answer)?;
    let (_, events) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let told = sse::told(events.as_bytes())?;
    assert_eq!((told.text.trim(), told.done), ("as whole as any", true));
    Ok(())
}

#[test]
fn many_requests_behind_a_long_body_are_all_answered_and_nothing_else_is() -> Result<()> {
    let host = Host::mock(&[]);
    let address = host.client().address;
    // The longer the body that came before, the more is read at once of what lies behind it. A body behind a lost byte would be
    // read as requests: these bodies look like some.
    let first = streamed(chat(&order("one two three", &json!({"token_delay_ms": 30})))).to_string()
        + &" ".repeat(60_000);
    let mut all =
        Request::new("POST", CHAT).body(first).header("content-type", "application/json").bytes(address);
    let inner = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(4);
    for n in 0..60 {
        let body = streamed(chat(&order(&format!("q{n} w{n}"), &json!({"token_delay_ms": 5}))));
        let body = with(body, &json!({"user": inner}));
        all.extend(Request::post(CHAT, &body).header("x-fill", &"f".repeat(300)).bytes(address));
    }
    let mut connection = Connection::open(address)?;
    connection.send_all(&all)?;
    let expected = std::iter::once("one two three".to_owned()).chain((0..60).map(|n| format!("q{n} w{n}")));
    for text in expected {
        assert_eq!(connection.head()?.status, 200, "{text}");
        assert_eq!(sse::told(&connection.body()?)?.text.trim(), text);
    }
    assert_eq!(host.quiet().ended("stop"), 61.0);
    Ok(())
}

#[test]
fn a_client_that_leaves_behind_a_request_and_a_half_is_seen_to_have_left() -> Result<()> {
    let host = Host::mock(&[]);
    let address = host.client().address;
    let mut connection = Connection::open(address)?;
    connection
        .send(&Request::post(CHAT, &streamed(chat(&order("a b c d e", &json!({"token_delay_ms": 30}))))))?;
    assert_eq!(connection.head()?.status, 200);
    let stalls = streamed(chat(&order("aa bb", &json!({"stall_after": 1}))));
    let ahead =
        [Request::post(CHAT, &stalls).bytes(address), b"GET /livez HTTP/1.1\r\nhost: ".to_vec()].concat();
    connection.send_all(&ahead)?;
    assert_eq!(sse::told(&connection.body()?)?.text.trim(), "a b c d e");
    assert_eq!(connection.head()?.status, 200);
    host.running(1);
    // It still reads, so nothing that is written to it would tell.
    connection.no_more()?;
    let metrics = host.quiet();
    assert_eq!(metrics.ended("cancelled"), 1.0);
    assert_eq!(metrics.value("cascadia_connections_ended_total", &[("reason", "client_left")]), 1.0);
    Ok(())
}
