//! The table of decisions 3, row by row, as far as a refusal goes: status, body, reason, and what is not booked.
//! Ends after admission are in `metrics` and `streams`, the shutdown's in `lifecycle`.

use anyhow::Result;
use cascadia_tests::client::{
    CHAT, COMPLETIONS, Client, chat, check_error, completion, order, streamed, with,
};
use cascadia_tests::http::{Connection, Request};
use cascadia_tests::{Host, Scrape, setup};
use serde_json::{Value, json};

/// A request that is refused before anything is generated.
struct Case {
    what: &'static str,
    request: Request,
    endpoint: &'static str,
    status: u16,
    code: &'static str,
    param: Option<&'static str>,
    reason: Option<&'static str>,
}

impl Case {
    fn of(what: &'static str, endpoint: &'static str, body: &Value, status: u16, code: &'static str) -> Case {
        let request = Request::post(endpoint, body);
        Case { what, request, endpoint, status, code, param: None, reason: None }
    }

    fn raw(what: &'static str, body: impl Into<Vec<u8>>, status: u16, code: &'static str) -> Case {
        let request = Request::new("POST", CHAT).body(body);
        Case { what, request, endpoint: CHAT, status, code, param: None, reason: None }
    }

    fn param(mut self, param: &'static str) -> Case {
        self.param = Some(param);
        self
    }

    fn reason(mut self, reason: &'static str) -> Case {
        self.reason = Some(reason);
        self
    }

    /// Sends it and compares the answer and what it moved in the metrics.
    fn check(&self, client: &Client, scrape: impl Fn() -> Scrape) -> Result<()> {
        let before = scrape();
        let answer = client.call(&self.request)?;
        assert_eq!(answer.status(), self.status, "{}: {}", self.what, answer.text());
        let error = answer.error(self.status);
        assert_eq!(error["code"], self.code, "{}: {error}", self.what);
        if let Some(param) = self.param {
            assert_eq!(error["param"], param, "{}: {error}", self.what);
        }
        let after = scrape();
        let reasons = ["capacity", "empty_prompt", "multi_prompt", "prompt_too_large", "prompt_over_window"];
        for reason in reasons.into_iter().chain(["engine_unavailable", "engine_error", "invalid_request"]) {
            let expected = if self.reason == Some(reason) { 1.0 } else { 0.0 };
            assert_eq!(after.rejected(reason) - before.rejected(reason), expected, "{}: {reason}", self.what);
        }
        let status = self.status.to_string();
        let booked = |s: &Scrape| s.requests(self.endpoint, &status);
        assert_eq!(booked(&after) - booked(&before), 1.0, "{}: cascadia_http_requests_total", self.what);
        no_generation(self.what, &before, &after);
        Ok(())
    }
}

/// Nothing of a generation was booked.
fn no_generation(what: &str, before: &Scrape, after: &Scrape) {
    assert_eq!(after.all_ended(), before.all_ended(), "{what}: no duration sample");
    assert_eq!(after.value("cascadia_inflight_tasks", &[]), 0.0, "{what}: nothing is left in flight");
    for name in [
        "cascadia_generation_ttft_seconds_count",
        "cascadia_generation_inter_token_seconds_count",
        "cascadia_tokens_generated_total",
        "cascadia_tokens_prompt_total",
        "cascadia_tasks_cancelled_total",
        "cascadia_tasks_failed_total",
    ] {
        assert_eq!(after.sum(name, &[]), before.sum(name, &[]), "{what}: {name}");
    }
}

fn check(host: &Host, cases: Vec<Case>) -> Result<()> {
    cases.iter().try_for_each(|case| case.check(&host.client(), || host.scrape()))
}

#[test]
fn a_malformed_request_is_a_400_without_a_reason() -> Result<()> {
    let host = Host::mock(&[]);
    let field = |name: &'static str, value: Value| {
        let body = with(chat("x"), &json!({name: value}));
        Case::of(name, CHAT, &body, 400, "invalid_value").param(name)
    };
    let mut cases = vec![
        Case::raw("half an object", "{", 400, "invalid_json"),
        Case::raw("a list", "[]", 400, "invalid_json"),
        Case::raw("nothing", "", 400, "invalid_json"),
        Case::raw("not UTF-8", b"{\"model\":\"\xff\"}".to_vec(), 400, "invalid_json"),
        field("messages", json!("x")),
        field("temperature", json!("hot")),
        field("temperature", json!(9)),
        field("max_tokens", json!(0)),
        field("max_tokens", json!(1.5)),
        field("stream", json!("yes")),
        field("stop", json!({})),
        field("seed", json!("x")),
        Case::of(
            "role",
            CHAT,
            &json!({"model": "mock", "messages": [{"role": "robot", "content": "x"}]}),
            400,
            "invalid_value",
        )
        .param("messages[0].role"),
        Case::of(
            "prompt of ids and texts",
            COMPLETIONS,
            &with(completion(""), &json!({"prompt": [1, "a"]})),
            400,
            "invalid_value",
        )
        .param("prompt"),
        Case::of(
            "stream_options without stream",
            CHAT,
            &with(chat("x"), &json!({"stream_options": {}})),
            400,
            "invalid_value",
        )
        .param("stream_options"),
        Case::of(
            "a field that is not there yet",
            CHAT,
            &with(chat("x"), &json!({"logit_bias": {"1": 2}})),
            400,
            "unsupported_parameter",
        )
        .param("logit_bias"),
    ];
    // Said before the head, as a stream too.
    for (what, n) in [("n is 0", json!(0)), ("n is -1", json!(-1)), ("n is a text", json!("2"))] {
        let body = with(streamed(chat("x")), &json!({"n": n}));
        cases.push(Case::of(what, CHAT, &body, 400, "invalid_value").param("n"));
    }
    check(&host, cases)
}

#[test]
fn an_empty_prompt_is_a_400() -> Result<()> {
    let host = Host::mock(&[]);
    let messages = |m: Value| with(chat(""), &json!({"messages": m}));
    let case =
        |what, path, body: &Value| Case::of(what, path, body, 400, "empty_prompt").reason("empty_prompt");
    check(
        &host,
        vec![
            case("no messages", CHAT, &json!({"model": "mock"})),
            case("messages is null", CHAT, &messages(Value::Null)),
            case("messages is empty", CHAT, &messages(json!([]))),
            case("messages say nothing", CHAT, &chat("")),
            case("streamed", CHAT, &streamed(chat(""))),
            case("no prompt", COMPLETIONS, &json!({"model": "mock"})),
            case("prompt is empty", COMPLETIONS, &completion("")),
            case("prompt is an empty list", COMPLETIONS, &with(completion(""), &json!({"prompt": []}))),
        ],
    )?;
    let second = with(completion(""), &json!({"prompt": ["a", ""]}));
    assert_eq!(host.post(COMPLETIONS, &second)?.error(400)["message"], "prompt[1] is empty");
    Ok(())
}

#[test]
fn more_prompts_or_choices_than_allowed_are_a_400() -> Result<()> {
    let host = Host::mock(&["--set", "limits.max_choices=8"]);
    let case =
        |what, path, body: &Value| Case::of(what, path, body, 400, "multi_prompt").reason("multi_prompt");
    check(
        &host,
        vec![
            case("choices of a chat", CHAT, &with(chat("x"), &json!({"n": 9}))),
            case("choices of a stream", CHAT, &with(streamed(chat("x")), &json!({"n": 9}))),
            case("choices of a completion", COMPLETIONS, &with(completion("x"), &json!({"n": 9}))),
            case(
                "prompts times choices",
                COMPLETIONS,
                &with(completion(""), &json!({"prompt": ["a", "b", "c"], "n": 3})),
            ),
            case("several prompts", COMPLETIONS, &with(completion(""), &json!({"prompt": vec!["a"; 9]}))),
        ],
    )
}

#[test]
fn a_body_over_the_limit_is_a_413_that_names_the_flag() -> Result<()> {
    let host = Host::mock(&["--api-max-body-mb", "1"]);
    let large = vec![b' '; (1 << 20) + 1];
    check(&host, vec![Case::raw("stated length", large, 413, "body_too_large")])?;
    // Without a stated length it is found while it comes.
    let mut chunked = Vec::new();
    for _ in 0..17 {
        chunked.extend_from_slice(format!("{:x}\r\n{}\r\n", 1 << 16, " ".repeat(1 << 16)).as_bytes());
    }
    let request =
        Request::new("POST", CHAT).header("transfer-encoding", "chunked").header("content-length", "");
    drop(request);
    let mut connection = Connection::open(host.client().address)?;
    connection.send_bytes(
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n").as_bytes(),
    )?;
    connection.send_bytes(&chunked)?;
    let head = connection.head()?;
    assert_eq!(head.status, 413);
    let body: Value = serde_json::from_slice(&connection.body()?)?;
    check_error(&body);
    assert_eq!(body["error"]["code"], "body_too_large");
    let message = body["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("--api-max-body-mb"), "{message}");
    assert_eq!(host.quiet().all_rejected(), 0.0);
    Ok(())
}

#[test]
fn a_rendered_prompt_over_the_body_limit_is_a_413() -> Result<()> {
    let template = "mock.chat-template={% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}";
    let host = Host::mock(&["--api-max-body-mb", "1", "--plugin-opt", template]);
    let long = "x".repeat(600 << 10);
    let case =
        Case::of("twice 600 KiB", CHAT, &chat(&long), 413, "prompt_too_large").reason("prompt_too_large");
    check(&host, vec![case])
}

#[test]
fn a_prompt_over_the_window_is_a_413_with_the_code_clients_know() -> Result<()> {
    let host = Host::mock(&["--plugin-opt", "mock.context-length=64"]);
    let long = "x".repeat(64);
    let refused = order("x", &json!({"submit_error": "prompt_too_long"}));
    let case = |what, path, body: &Value| {
        Case::of(what, path, body, 413, "context_length_exceeded").reason("prompt_over_window")
    };
    check(
        &host,
        vec![
            case("a chat", CHAT, &chat(&long)),
            case("a stream", CHAT, &streamed(chat(&long))),
            case("a completion", COMPLETIONS, &completion(&long)),
            case("as the engine says", CHAT, &chat(&refused)),
            case("as the engine says to a stream", CHAT, &streamed(chat(&refused))),
        ],
    )
}

#[test]
fn an_unknown_model_is_a_404() -> Result<()> {
    let host = Host::mock(&[]);
    let named = |body: Value| with(body, &json!({"model": "gpt-9"}));
    let case = |what, path, body: &Value| {
        Case::of(what, path, body, 404, "model_not_found").param("model").reason("invalid_request")
    };
    check(
        &host,
        vec![
            case("a chat", CHAT, &named(chat("x"))),
            case("a stream", CHAT, &named(streamed(chat("x")))),
            case("a completion", COMPLETIONS, &named(completion("x"))),
        ],
    )
}

#[test]
fn a_submit_that_the_engine_refuses_books_its_reason_and_no_generation() -> Result<()> {
    let host = Host::mock(&[]);
    let mut cases = Vec::new();
    for (error, status, code, reason) in [
        ("queue_full", 503, "capacity", "capacity"),
        ("invalid_config", 400, "engine_refused", "invalid_request"),
        ("shard_rejected", 400, "engine_refused", "invalid_request"),
        ("peer_rejected", 400, "engine_refused", "invalid_request"),
        ("unsupported", 400, "engine_refused", "invalid_request"),
        ("model_not_found", 404, "model_not_found", "invalid_request"),
        ("closed", 503, "engine_unavailable", "engine_unavailable"),
        ("not_connected", 503, "engine_unavailable", "engine_unavailable"),
        ("plugin_crashed", 503, "engine_unavailable", "engine_unavailable"),
        ("backend", 500, "engine_error", "engine_error"),
        ("out_of_memory", 500, "engine_error", "engine_error"),
        ("batch_aborted", 500, "engine_error", "engine_error"),
    ] {
        let prompt = order("x", &json!({"submit_error": error}));
        cases.push(Case::of(error, CHAT, &chat(&prompt), status, code).reason(reason));
        cases.push(Case::of(error, CHAT, &streamed(chat(&prompt)), status, code).reason(reason));
    }
    let unheard = order("x", &json!({"submit_error": 99}));
    cases.push(
        Case::of("a code from the future", CHAT, &chat(&unheard), 500, "engine_error").reason("engine_error"),
    );
    let panic = order("x", &json!({"panic_in": "submit"}));
    cases.push(Case::of("a panic", CHAT, &chat(&panic), 500, "engine_error").reason("engine_error"));
    check(&host, cases)?;
    assert_eq!(host.chat("still here")?.content(), "still here");
    Ok(())
}

#[test]
fn what_an_engine_refuses_after_it_took_it_is_the_requests_fault_too() -> Result<()> {
    let host = Host::mock(&[]);
    for (error, status, code) in [
        ("invalid_config", 400, "engine_refused"),
        ("unsupported", 400, "engine_refused"),
        ("prompt_too_long", 413, "context_length_exceeded"),
        ("backend", 500, "engine_error"),
        ("queue_full", 500, "engine_error"),
    ] {
        let prompt = order("a b", &json!({"fail_after": 0, "error_code": error}));
        for body in [chat(&prompt), streamed(chat(&prompt))] {
            assert_eq!(host.post(CHAT, &body)?.error(status)["code"], code, "{error}");
        }
        // Where the answer has begun, its error says the same.
        let late = order("a b", &json!({"fail_after": 1, "error_code": error}));
        let told = host.told(CHAT, &streamed(chat(&late)))?;
        assert_eq!(told.error.as_ref().map(|e| &e["code"]), Some(&json!(code)), "{error}");
    }
    Ok(())
}

#[test]
fn an_engine_that_fails_whole_is_no_fault_of_the_requests_that_end_with_it() -> Result<()> {
    for error in ["invalid_config", "prompt_too_long", "backend"] {
        let host = Host::mock(&[]);
        let waits = order("bystander", &json!({"prefill_delay_ms": 60_000}));
        let mut bystander = host.begin(&Request::post(CHAT, &chat(&waits)))?;
        host.running(1);
        let fails = order("x", &json!({"step_error_after": 0, "error_code": error}));
        assert_eq!(host.chat(&fails)?.error(500)["code"], "engine_error", "{error}");
        assert_eq!(bystander.answer()?.error(500)["code"], "engine_error", "{error}");
    }
    Ok(())
}

#[test]
fn what_is_no_route_or_no_json_has_the_same_error_body_and_no_reason() -> Result<()> {
    let host = Host::mock(&[]);
    let none = |request: Request, endpoint, status, code| Case {
        what: code,
        request,
        endpoint,
        status,
        code,
        param: None,
        reason: None,
    };
    check(
        &host,
        vec![
            none(Request::new("GET", "/v1/embeddings"), "unmatched", 404, "unknown_route"),
            none(Request::new("GET", CHAT), CHAT, 405, "method_not_allowed"),
            none(Request::new("DELETE", "/metrics"), "/metrics", 405, "method_not_allowed"),
            none(
                Request::new("POST", CHAT).header("content-type", "text/plain").body("{}"),
                CHAT,
                415,
                "unsupported_media_type",
            ),
            none(
                Request::post(CHAT, &chat("x")).header("content-encoding", "br"),
                CHAT,
                415,
                "unsupported_media_type",
            ),
        ],
    )
}

#[test]
fn after_its_engine_failed_a_model_is_unavailable_and_the_host_not_ready() -> Result<()> {
    let host = Host::mock(&[]);
    let prompt = order("a b c", &json!({"step_error_after": 1, "error_message": "the device is gone"}));
    let told = host.told(CHAT, &streamed(chat(&prompt)))?;
    let error = told.error.expect("PANIC: an error frame");
    assert_eq!(error["code"], "engine_error");
    let after = host.until("engine errors", 1.0, |s| s.ended("error"));
    assert_eq!(after.value("cascadia_worker_up", &[]), 0.0);
    assert_eq!(host.get("/readyz")?.status(), 503);
    assert_eq!(host.get("/livez")?.status(), 200);
    let case = |what, body: &Value| {
        Case::of(what, CHAT, body, 503, "engine_unavailable").reason("engine_unavailable")
    };
    check(&host, vec![case("a chat", &chat("x")), case("a stream", &streamed(chat("x")))])
}

/// Every file of the tests, as text.
fn sources(folder: &std::path::Path, out: &mut String) -> Result<()> {
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, out)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            out.push_str(&std::fs::read_to_string(path)?);
        }
    }
    Ok(())
}

#[test]
fn every_code_of_the_reference_is_provoked_by_a_test() -> Result<()> {
    // These are faults of the host itself or cannot be told from a client that is merely slow.
    const OUT_OF_REACH: [&str; 1] = ["internal"];
    let reference = std::fs::read_to_string(setup::root().join("docs/ERRORS.md"))?;
    let mut tests = String::new();
    sources(&setup::root().join("tests/it"), &mut tests)?;
    let rows = reference.lines().filter_map(|line| line.strip_prefix("| `"));
    let codes: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    assert!(codes.len() > 20, "{codes:?}");
    let missing: Vec<_> = codes
        .iter()
        .filter(|code| !OUT_OF_REACH.contains(code) && !tests.contains(&format!("\"{code}\"")))
        .collect();
    assert_eq!(missing, Vec::<&&str>::new(), "codes that no test names");
    Ok(())
}

#[test]
fn messages_that_the_template_refuses_are_told_in_its_words() -> Result<()> {
    let template = "mock.chat-template={{ raise_exception('only one question at a time') }}";
    let host = Host::mock(&["--plugin-opt", template]);
    let error = host.chat("x")?.error(400);
    assert_eq!((&error["code"], &error["param"]), (&json!("template_error"), &json!("messages")));
    assert!(error["message"].as_str().is_some_and(|m| m.contains("only one question")), "{error}");
    assert_eq!(host.quiet().all_ended(), 0.0);
    Ok(())
}

#[test]
fn a_body_that_does_not_come_is_given_up() -> Result<()> {
    let host = Host::mock(&["--set", "server.body_timeout=200ms"]);
    let mut connection = Connection::open(host.client().address)?;
    connection.send_bytes(
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{").as_bytes(),
    )?;
    let head = connection.head()?;
    assert_eq!(head.status, 408);
    let body: Value = serde_json::from_slice(&connection.body()?)?;
    check_error(&body);
    assert_eq!(body["error"]["code"], "request_timeout");
    Ok(())
}
