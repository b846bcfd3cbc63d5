//! A real Prometheus scrapes the running host: the exposition is clean, and every example query of the metric contract
//! gives the number that the load implies.

use std::path::Path;

use anyhow::Result;
use cascadia_tests::client::{CHAT, COMPLETIONS, chat, completion, order, streamed};
use cascadia_tests::http::Request;
use cascadia_tests::prom::{self, INTERVAL, Prometheus};
use cascadia_tests::{Host, Scrape, setup, wait};
use serde_json::json;

const FIVE_MINUTES: f64 = 300.0;
const MINUTE: f64 = 60.0;

/// One of everything that has a series of its own only after its first use.
fn touch_every_series(host: &Host) -> Result<()> {
    for (path, body) in [
        (CHAT, chat(&order("x", &json!({"stall_after": 0})))),
        (COMPLETIONS, completion(&order("x", &json!({"stall_after": 0})))),
    ] {
        // Cancelled before its first token, so that the time to first token stands at zero.
        let mut call = host.begin(&Request::post(path, &body).header("x-request-id", "first"))?;
        host.running(1);
        host.cancel("first")?;
        assert_eq!(call.answer()?.status(), 200);
        host.quiet();
    }
    Ok(())
}

/// Two answers hold both slots, without a token, while others are refused.
fn overload(host: &Host, refusals: usize) -> Result<()> {
    let hold = chat(&order("a", &json!({"stall_after": 0})));
    let begin = |id| host.begin(&Request::post(CHAT, &hold).header("x-request-id", id));
    let held = [("held-1", begin("held-1")?), ("held-2", begin("held-2")?)];
    host.running(2);
    for _ in 0..refusals {
        assert_eq!(host.chat("x")?.error(503)["code"], "capacity");
    }
    for (id, mut call) in held {
        host.cancel(id)?;
        assert_eq!(call.answer()?.finish(), "stop");
    }
    host.quiet();
    Ok(())
}

/// What `histogram_quantile` gives for these observations: the same straight line through the bucket.
fn quantile(q: f64, buckets: &[(f64, f64)]) -> f64 {
    let total = buckets.last().map_or(0.0, |b| b.1);
    let rank = q * total;
    let at = buckets.iter().position(|b| b.1 >= rank).expect("PANIC: the last bucket holds all");
    let (start, below) = if at == 0 { (0.0, 0.0) } else { buckets[at - 1] };
    let (end, upto) = buckets[at];
    if end.is_infinite() { start } else { start + (end - start) * (rank - below) / (upto - below) }
}

/// The upper bounds of the times to first token, and how many were at most so long.
fn ttft_buckets(scrape: &Scrape) -> Vec<(f64, f64)> {
    let series = scrape.named("cascadia_generation_ttft_seconds_bucket").into_iter();
    let bound = |le: &str| if le == "+Inf" { f64::INFINITY } else { le.parse().expect("PANIC: a bound") };
    series.map(|s| (bound(&s.labels["le"]), s.value)).collect()
}

/// Holds a query's value against the increase that the host itself reports. Prometheus widens an increase by at most 1.1
/// intervals before the first sample, and by nothing where the counter stood at zero then.
struct Check {
    widest: f64,
}

impl Check {
    #[track_caller]
    fn rate(&self, query: &str, found: f64, window: f64, increase: f64) {
        let increase_found = found * window;
        let (low, high) = (increase * (1.0 - 1e-9), increase * self.widest * (1.0 + 1e-9));
        assert!(
            (low..=high).contains(&increase_found),
            "{query} gives {found}, an increase of {increase_found}; the host counted {increase}"
        );
    }
}

#[test]
fn promtool_finds_nothing_to_complain_about() -> Result<()> {
    let Some(folder) = setup::prometheus() else { return Ok(()) };
    let host = Host::mock(&[]);
    clean(&folder, &host)?;
    assert_eq!(host.chat("a b")?.content(), "a b");
    host.told(CHAT, &streamed(chat(&order("a b", &json!({"fail_after": 1})))))?;
    assert_eq!(host.chat("")?.status(), 400);
    assert_eq!(host.get("/nowhere")?.status(), 404);
    clean(&folder, &host)
}

fn clean(folder: &Path, host: &Host) -> Result<()> {
    let answer = host.get("/metrics")?;
    assert_eq!(answer.head.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(prom::check(folder, &answer.body)?, "");
    Ok(())
}

#[test]
fn every_example_query_of_the_contract_gives_what_the_load_implies() -> Result<()> {
    let Some(folder) = setup::prometheus() else { return Ok(()) };
    let host = Host::mock(&["--max-concurrent", "2", "--max-queued", "0"]);
    touch_every_series(&host)?;
    overload(&host, 1)?;
    let before = host.scrape();
    let prometheus = Prometheus::start(&folder, host.client().address);
    wait("two scrapes before the load", || match prometheus.value("count_over_time(up[5m])", None) {
        Ok(n) if n >= 2.0 => Ok(()),
        other => Err(format!("{other:?}")),
    });

    // The load: 20 streams of 5 tokens, 8 whole completions of 3, 7 refusals beside 2 that are cancelled.
    for i in 0..20 {
        let prefill = [0, 0, 0, 60, 130, 300][i % 6];
        let prompt = order("a b c d e", &json!({"prefill_delay_ms": prefill}));
        assert_eq!(host.told(CHAT, &streamed(chat(&prompt)))?.completion_tokens(), 5);
    }
    for _ in 0..8 {
        assert_eq!(host.post(COMPLETIONS, &completion("a b c"))?.completion_tokens(), 3);
    }
    overload(&host, 7)?;
    let after = host.quiet();
    let increase = |name: &str, labels: &[(&str, &str)]| after.sum(name, labels) - before.sum(name, labels);
    assert_eq!(increase("cascadia_tokens_generated_total", &[]), 124.0);
    assert_eq!(increase("cascadia_api_rejected_total", &[("reason", "capacity")]), 7.0);
    assert_eq!(increase("cascadia_http_requests_total", &[("endpoint", CHAT)]), 29.0);
    assert_eq!(increase("cascadia_http_requests_total", &[("endpoint", COMPLETIONS)]), 8.0);
    assert_eq!(increase("cascadia_http_requests_total", &[("endpoint", "/v1/cancel/:task_id")]), 2.0);

    // Prometheus has seen all of it, and has enough samples for a narrow bound.
    let all = after.all_ended();
    let sum = "sum(cascadia_generation_duration_seconds_count)";
    wait("Prometheus to have the whole load", || match prometheus.value(sum, None) {
        Ok(n) if n == all => Ok(()),
        other => Err(format!("{other:?} of {all}")),
    });
    wait("ten scrapes", || match prometheus.value("count_over_time(up[5m])", None) {
        Ok(n) if n >= 10.0 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // All questions are about the moment of one scrape: nothing is guessed behind it.
    let at = Some(prometheus.value("timestamp(cascadia_inflight_tasks)", None)?);
    let samples = prometheus.value("count_over_time(up[5m])", at)?;
    assert_eq!(
        prometheus.value("count_over_time(up[1m])", at)?,
        samples,
        "the load lies within the last minute"
    );
    assert_eq!(prometheus.value("min_over_time(up[5m])", at)?, 1.0, "every scrape succeeded");
    let check = Check { widest: 1.0 + 1.1 * INTERVAL / ((samples - 1.0) * INTERVAL) };

    let query = "sum by (endpoint) (rate(cascadia_http_requests_total[5m]))";
    let found = prometheus.query(query, at)?;
    for endpoint in [CHAT, COMPLETIONS, "/v1/cancel/:task_id"] {
        let one = found.iter().find(|f| f.labels.get("endpoint").map(String::as_str) == Some(endpoint));
        let one = one.unwrap_or_else(|| panic!("{query} has no {endpoint}: {found:?}"));
        let expected = increase("cascadia_http_requests_total", &[("endpoint", endpoint)]);
        check.rate(query, one.value, FIVE_MINUTES, expected);
    }

    let query = "histogram_quantile(0.95, sum by (le) (rate(cascadia_generation_ttft_seconds_bucket[5m])))";
    let buckets = ttft_buckets(&after);
    assert_eq!(buckets.last().map(|b| b.1), Some(28.0));
    // All buckets stood at zero in the first scrape, so none is widened.
    let (found, expected) = (prometheus.value(query, at)?, quantile(0.95, &buckets));
    assert!((found / expected - 1.0).abs() < 1e-6, "{query} gives {found}, expected {expected}");

    let query = "sum(rate(cascadia_tokens_generated_total[1m]))";
    check.rate(query, prometheus.value(query, at)?, MINUTE, increase("cascadia_tokens_generated_total", &[]));

    let query = "rate(cascadia_api_rejected_total{reason=\"capacity\"}[5m])";
    check.rate(query, prometheus.value(query, at)?, FIVE_MINUTES, 7.0);

    let query = "rate(cascadia_transport_sent_bytes_total[1m])";
    let found = prometheus.query(query, at)?;
    let mut kinds: Vec<_> = found.iter().map(|f| f.labels["kind"].as_str()).collect();
    kinds.sort_unstable();
    assert_eq!((kinds, found.iter().map(|f| f.value).sum::<f64>()), (vec!["raw", "tensor"], 0.0));
    Ok(())
}

#[test]
fn a_first_increment_is_seen_because_closed_series_stand_at_zero() -> Result<()> {
    let Some(folder) = setup::prometheus() else { return Ok(()) };
    let host = Host::mock(&[]);
    let prometheus = Prometheus::start(&folder, host.client().address);
    wait("a scrape before the load", || match prometheus.value("count_over_time(up[5m])", None) {
        Ok(n) if n >= 1.0 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // One of each reason that a request alone can have.
    assert_eq!(host.chat("")?.status(), 400);
    for (code, status) in [("queue_full", 503), ("prompt_too_long", 413), ("closed", 503), ("backend", 500)] {
        assert_eq!(host.chat(&order("x", &json!({"submit_error": code})))?.status(), status);
    }
    let reasons = ["empty_prompt", "capacity", "prompt_over_window", "engine_unavailable", "engine_error"];
    for reason in reasons {
        let query = format!("increase(cascadia_api_rejected_total{{reason=\"{reason}\"}}[5m])");
        wait(&format!("{reason} to be seen"), || match prometheus.value(&query, None) {
            Ok(n) if n >= 1.0 => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    Ok(())
}
