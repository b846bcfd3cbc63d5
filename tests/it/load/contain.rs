//! Panics and exceptions stay inside: code 13, the engine's tasks fail with the text, the host lives and builds anew.

use anyhow::Result;
use cascadia_tests::cc::{self, Options};
use cascadia_tests::client::{CHAT, chat, with};
use cascadia_tests::{Host, TempDir, order, wait};
use serde_json::{Value, json};

use super::text;

/// After an engine of `model` failed with `words`: told in the log with code 13's name, counted, and serving again.
#[track_caller]
fn built_anew(host: &mut Host, model: &str, words: &str, answer: &str) {
    wait("the engine to serve again", || {
        match host.post(CHAT, &with(chat("again"), &json!({"model": model}))) {
            Ok(found) if found.status() == 200 && found.content() == answer => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    let failed = |line: &Value| line["message"] == "engine failed" && line["code"] == "panic";
    let lines: Vec<_> = host.log_lines().into_iter().filter(failed).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["model"], model);
    assert!(lines[0]["error"].as_str().is_some_and(|e| e.contains(words)), "{}", lines[0]);
    assert_eq!(host.scrape().sum("cascadia_worker_restarts_total", &[("reason", "failed")]), 1.0);
    assert_eq!(host.quiet().ended("error"), 1.0);
    assert!(host.is_running());
}

#[test]
fn a_panic_is_code_13_and_the_engine_is_built_anew() -> Result<()> {
    let mut host = Host::mock(&[]);
    let words = "the plugin panicked: the prompt asked for a panic in step";
    let error = host.chat(&order("a", &json!({"panic_in": "step"})))?.error(500);
    assert_eq!(error["code"], "engine_error");
    assert!(error["message"].as_str().is_some_and(|m| m.contains(words)), "{error}");
    built_anew(&mut host, "mock", words, "again");
    Ok(())
}

#[test]
fn an_exception_is_code_13_and_the_engine_is_built_anew() -> Result<()> {
    let dir = TempDir::new();
    let library = cc::fixture("thrower.cpp", &dir.path().join("libthrower.so"), &Options::default())?;
    let mut host = Host::start(&["--plugin", text(&library)]);
    host.ready();
    let body = |prompt: &str| with(chat(prompt), &json!({"model": "word"}));
    assert_eq!(host.post(CHAT, &body("calm"))?.content(), "sound");
    let error = host.post(CHAT, &body("now!"))?.error(500);
    assert_eq!(error["code"], "engine_error");
    let words = "the weights fell off the shelf";
    assert!(error["message"].as_str().is_some_and(|m| m.contains(words)), "{error}");
    built_anew(&mut host, "word", words, "sound");
    Ok(())
}
