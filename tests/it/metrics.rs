//! The metric contract, and the holes that an earlier server had in it. The names here are the contract's own text, not
//! the host's table: a renamed family must fail.

use anyhow::Result;
use cascadia_tests::client::{CHAT, COMPLETIONS, chat, completion, order, streamed};
use cascadia_tests::http::Request;
use cascadia_tests::sse::Told;
use cascadia_tests::{Host, Scrape};
use serde_json::json;

const TTFT: &str = "cascadia_generation_ttft_seconds_count";
const INTER_TOKEN: &str = "cascadia_generation_inter_token_seconds_count";

const DURATIONS: &str = "0.1 0.5 1 5 10 30 60 120 300 600";
const FRAMES: &str = "0.0001 0.001 0.01 0.05 0.1 0.5 1";
/// Name, type, labels and bounds, as published.
const CONTRACT: [(&str, &str, &str, &str); 17] = [
    ("cascadia_http_requests_total", "counter", "endpoint status", ""),
    ("cascadia_http_request_duration_seconds", "histogram", "endpoint", DURATIONS),
    ("cascadia_inflight_tasks", "gauge", "", ""),
    ("cascadia_api_rejected_total", "counter", "reason", ""),
    ("cascadia_generation_ttft_seconds", "histogram", "model", "0.05 0.1 0.25 0.5 1 2 5 10 30 60"),
    (
        "cascadia_generation_inter_token_seconds",
        "histogram",
        "model",
        "0.01 0.025 0.05 0.1 0.25 0.5 1 2 5 10",
    ),
    ("cascadia_generation_duration_seconds", "histogram", "finish_reason model", DURATIONS),
    ("cascadia_tokens_generated_total", "counter", "model", ""),
    ("cascadia_tokens_prompt_total", "counter", "model", ""),
    ("cascadia_tasks_cancelled_total", "counter", "model", ""),
    ("cascadia_tasks_failed_total", "counter", "model", ""),
    ("cascadia_engine_model_load_duration_seconds", "gauge", "device model", ""),
    ("cascadia_engine_warmup_duration_seconds", "gauge", "device model", ""),
    ("cascadia_transport_sent_bytes_total", "counter", "kind", ""),
    ("cascadia_transport_recv_bytes_total", "counter", "kind", ""),
    ("cascadia_transport_send_seconds", "histogram", "", FRAMES),
    ("cascadia_transport_recv_payload_seconds", "histogram", "", FRAMES),
];

#[test]
fn every_family_of_the_contract_is_there_with_its_type_labels_and_buckets() -> Result<()> {
    let host = Host::mock(&["--served-model-name", "m", "--model", "/nowhere", "--device", "D1"]);
    let metrics = host.scrape();
    for (name, ty, labels, bounds) in CONTRACT {
        assert_eq!(metrics.types.get(name).map(String::as_str), Some(ty), "{name}");
        let suffix = if ty == "histogram" { "_bucket" } else { "" };
        let series = metrics.named(&format!("{name}{suffix}"));
        assert!(!series.is_empty(), "{name} has no series");
        for one in &series {
            let found: Vec<_> = one.labels.keys().map(String::as_str).filter(|l| *l != "le").collect();
            assert_eq!(found.join(" "), labels, "labels of {name}");
        }
        if ty == "histogram" {
            let mut other = series[0].labels.clone();
            other.remove("le");
            let same = |l: &std::collections::BTreeMap<String, String>| {
                other.iter().all(|(k, v)| l.get(k) == Some(v))
            };
            let found: Vec<_> = series
                .iter()
                .filter(|s| same(&s.labels))
                .filter_map(|s| s.labels.get("le").cloned())
                .collect();
            assert_eq!(found.join(" "), format!("{bounds} +Inf"), "buckets of {name}");
        }
    }
    let device = [("model", "m"), ("device", "D1")];
    assert!(metrics.value("cascadia_engine_model_load_duration_seconds", &device) > 0.0);
    assert!(metrics.value("cascadia_engine_warmup_duration_seconds", &device) >= 0.0);
    Ok(())
}

#[test]
fn closed_label_sets_stand_at_zero_before_the_first_request() -> Result<()> {
    let host = Host::mock(&[]);
    let metrics = host.scrape();
    let reasons = ["capacity", "empty_prompt", "multi_prompt", "prompt_too_large", "prompt_over_window"];
    for reason in reasons.into_iter().chain(["engine_unavailable", "engine_error", "invalid_request"]) {
        assert_eq!(metrics.rejected(reason), 0.0);
    }
    assert_eq!(metrics.named("cascadia_api_rejected_total").len(), 8);
    let duration = "cascadia_generation_duration_seconds_count";
    for finish in ["stop", "length", "cancelled", "error", "teardown"] {
        assert_eq!(metrics.value(duration, &[("model", "mock"), ("finish_reason", finish)]), 0.0);
    }
    assert_eq!(metrics.named(duration).len(), 5);
    for kind in ["tensor", "raw"] {
        for name in ["cascadia_transport_sent_bytes_total", "cascadia_transport_recv_bytes_total"] {
            assert_eq!(metrics.value(name, &[("kind", kind)]), 0.0);
        }
    }
    for name in [TTFT, INTER_TOKEN, "cascadia_tokens_generated_total", "cascadia_tokens_prompt_total"] {
        assert_eq!(metrics.value(name, &[("model", "mock")]), 0.0, "{name}");
    }
    for name in ["cascadia_tasks_cancelled_total", "cascadia_tasks_failed_total"] {
        assert_eq!(metrics.value(name, &[("model", "mock")]), 0.0, "{name}");
    }
    for name in ["cascadia_inflight_tasks", "cascadia_queue_depth", "cascadia_queue_wait_seconds_count"] {
        assert_eq!(metrics.value(name, &[]), 0.0, "{name}");
    }
    Ok(())
}

#[test]
fn routes_are_labelled_by_template_and_unknown_ones_as_unmatched() -> Result<()> {
    let host = Host::mock(&[]);
    let before = host.scrape();
    for i in 0..30 {
        host.cancel(&format!("id-{i}"))?;
        assert_eq!(host.get(&format!("/secret/{i}?q={i}"))?.status(), 404);
        assert_eq!(host.post(&format!("/v1/cancel/a/{i}"), &json!({}))?.status(), 404);
    }
    assert_eq!(host.get("/v1/models?limit=5")?.status(), 200);
    assert_eq!(host.get("/v1/cancel/x")?.status(), 405);
    assert_eq!(host.chat("x")?.status(), 200);
    for path in ["/livez", "/readyz", "/health", "/health/live", "/health/ready"] {
        assert_eq!(host.get(path)?.status(), 200);
    }
    let after = host.scrape();
    let moved =
        |endpoint: &str, status: &str| after.requests(endpoint, status) - before.requests(endpoint, status);
    assert_eq!(moved("/v1/cancel/:task_id", "200"), 30.0);
    assert_eq!(moved("/v1/cancel/:task_id", "405"), 1.0);
    assert_eq!(moved("unmatched", "404"), 60.0);
    assert_eq!(moved("/v1/models", "200"), 1.0);
    assert_eq!(moved(CHAT, "200"), 1.0);
    for path in ["/livez", "/health", "/health/live", "/health/ready"] {
        assert_eq!(moved(path, "200"), 1.0);
    }
    let known = [
        CHAT,
        COMPLETIONS,
        "/v1/models",
        "/v1/cancel/:task_id",
        "/livez",
        "/readyz",
        "/health",
        "/health/live",
        "/health/ready",
        "/metrics",
        "unmatched",
    ];
    for series in after.named("cascadia_http_requests_total") {
        assert!(known.contains(&series.labels["endpoint"].as_str()), "{series:?}");
    }
    // Each request is one sample of its endpoint's duration too.
    for endpoint in known {
        let label = [("endpoint", endpoint)];
        assert_eq!(
            after.sum("cascadia_http_request_duration_seconds_count", &label),
            after.sum("cascadia_http_requests_total", &label),
            "{endpoint}"
        );
    }
    Ok(())
}

#[test]
fn a_client_that_left_before_its_answer_is_counted_as_499() -> Result<()> {
    let host = Host::mock(&[]);
    for (path, body) in [
        (CHAT, chat(&order("x", &json!({"stall_after": 0})))),
        (COMPLETIONS, completion(&order("x", &json!({"stall_after": 0})))),
    ] {
        let call = host.begin(&Request::post(path, &body))?;
        host.running(1);
        drop(call);
        let metrics = host.until("requests left", 1.0, |s| s.requests(path, "499"));
        assert_eq!(metrics.sum("cascadia_http_request_duration_seconds_count", &[("endpoint", path)]), 1.0);
        host.quiet();
    }
    // A stream whose head was sent is a 200, whatever becomes of it.
    let mut stream = host.stream(CHAT, &streamed(chat(&order("a b", &json!({"stall_after": 1})))))?;
    stream.pieces(1)?;
    drop(stream);
    host.until("cancelled", 3.0, |s| s.ended("cancelled"));
    let metrics = host.quiet();
    assert_eq!((metrics.requests(CHAT, "200"), metrics.requests(CHAT, "499")), (1.0, 1.0));
    Ok(())
}

/// TTFT and inter-token samples that a prompt gives as a stream, and as a whole answer.
fn samples(host: &Host, prompt: &str) -> Result<([f64; 2], [f64; 2], Told)> {
    let read = |s: &Scrape| [s.value(TTFT, &[]), s.value(INTER_TOKEN, &[])];
    let start = read(&host.quiet());
    let told = host.told(CHAT, &streamed(chat(prompt)))?;
    let middle = read(&host.quiet());
    assert_eq!(host.chat(prompt)?.content(), told.text);
    let end = read(&host.quiet());
    let less = |a: [f64; 2], b: [f64; 2]| [a[0] - b[0], a[1] - b[1]];
    Ok((less(middle, start), less(end, middle), told))
}

#[test]
fn an_engine_that_gives_the_whole_answer_in_one_chunk_has_no_inter_token_samples() -> Result<()> {
    let host = Host::mock(&[]);
    let (stream, whole, told) = samples(&host, &order("a b c d e", &json!({"whole": true})))?;
    assert_eq!((stream, whole), ([1.0, 0.0], [1.0, 0.0]));
    assert_eq!((told.text.as_str(), told.completion_tokens()), ("a b c d e", 5));
    assert_eq!(host.scrape().generated(), 10.0);
    Ok(())
}

#[test]
fn each_token_after_the_first_is_one_inter_token_sample_however_they_are_chunked() -> Result<()> {
    let host = Host::mock(&[]);
    // The pause makes the first write hold the first token alone; how the rest is divided into writes does not matter.
    let pause = json!({"delay_ms": 500});
    let five = order("x", &json!({"script": ["a", pause, "b", "c", "d", "e"]}));
    let (stream, whole, told) = samples(&host, &five)?;
    assert_eq!((stream, whole, told.completion_tokens()), ([1.0, 4.0], [1.0, 4.0], 5));
    let three = order("x", &json!({"script": ["a", pause, ["b", "c", "d"]]}));
    let (stream, whole, told) = samples(&host, &three)?;
    assert_eq!((stream, whole, told.completion_tokens()), ([1.0, 3.0], [1.0, 3.0], 4));
    // The time between the two writes is shared out: three samples of a third each.
    let first = order("x", &json!({"script": [["a", "b", "c"], pause, "d"]}));
    let (stream, whole, told) = samples(&host, &first)?;
    assert_eq!((stream, whole, told.completion_tokens()), ([1.0, 1.0], [1.0, 1.0], 4));
    assert_eq!(host.quiet().generated(), 26.0);
    Ok(())
}

#[test]
fn warm_up_moves_no_request_metric() -> Result<()> {
    let host = Host::mock(&["--plugin-opt", "mock.warmup-delay-ms=50"]);
    let metrics = host.scrape();
    assert!(metrics.value("cascadia_engine_warmup_duration_seconds", &[]) >= 0.05);
    for name in [TTFT, "cascadia_tokens_generated_total", "cascadia_tokens_prompt_total"] {
        assert_eq!(metrics.sum(name, &[]), 0.0, "{name}");
    }
    assert_eq!((metrics.all_ended(), metrics.all_rejected()), (0.0, 0.0));
    Ok(())
}

#[test]
fn prompt_tokens_count_for_engines_that_do_not_report_them_too() -> Result<()> {
    let host = Host::mock(&[]);
    let prompt = order("x", &json!({"no_prompt_tokens": true}));
    assert_eq!(host.chat(&prompt)?.json()["usage"]["prompt_tokens"], prompt.len());
    assert_eq!(host.quiet().value("cascadia_tokens_prompt_total", &[]), prompt.len() as f64);
    Ok(())
}

#[test]
fn an_engine_that_loses_a_task_leaks_nothing_once_its_client_left() -> Result<()> {
    let host = Host::mock(&[]);
    let prompt = order("a b", &json!({"no_finish": true}));
    let mut stream = host.stream(CHAT, &streamed(chat(&prompt)))?;
    stream.pieces(2)?;
    drop(stream);
    let metrics = host.until("cancelled", 1.0, |s| s.ended("cancelled"));
    assert_eq!(metrics.value("cascadia_inflight_tasks", &[]), 0.0);
    Ok(())
}

#[test]
fn series_of_a_plugin_are_under_its_name() -> Result<()> {
    let host = Host::mock(&[]);
    assert_eq!(host.chat("a b c")?.content(), "a b c");
    let metrics = host.quiet();
    assert_eq!(metrics.mock_tokens(), 3.0);
    assert_eq!(metrics.mock_tasks("stop"), 1.0);
    Ok(())
}
