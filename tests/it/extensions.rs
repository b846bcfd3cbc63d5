//! The extensions of the boundary, through the mock: each is checked as `plugin check` checks a stranger's plugin, each
//! has a broken form that the check names; and what the host lends for traces and faults, seen from outside.

use std::path::Path;

use anyhow::Result;
use cascadia_tests::host::run;
use cascadia_tests::{Host, TempDir, chat, order, setup, wait};
use serde_json::{Value, json};

use crate::plugin_commands::echo_c;

const CHAT: &str = "/v1/chat/completions";

/// The extensions, as the names of their tests begin.
const ALL: [&str; 9] = [
    "kv-events",
    "token-mask",
    "tokenize",
    "embeddings",
    "stage",
    "kv-state",
    "adapters",
    "pause",
    "async-sink",
];

/// Checks the mock with these options and only these tests; the verdicts.
fn check(only: &str, options: &[&str]) -> (Option<i32>, Vec<Value>) {
    let options = [&["prefix-cache=4"], options].concat();
    verdicts(&setup::plugin("mock"), &["--adapter", "upper", "--only", only], &options)
}

fn verdicts(library: &Path, flags: &[&str], options: &[&str]) -> (Option<i32>, Vec<Value>) {
    let library = library.to_str().expect("PANIC: a path of text");
    let mut args = [&["plugin", "check", library, "--json"], flags].concat();
    for option in options {
        args.extend(["--option", option]);
    }
    let ended = run(&args);
    let found: Value = serde_json::from_str(&ended.output).unwrap_or_else(|e| {
        panic!("{e} in {}{}", ended.output, ended.complaint);
    });
    let tests = found["tests"].as_array().unwrap_or_else(|| panic!("no tests in {found}")).clone();
    (ended.status.code(), tests)
}

#[test]
fn the_mock_keeps_to_every_extension() {
    for name in ALL {
        let (code, tests) = check(&format!("{name}:"), &[]);
        assert_eq!(code, Some(0), "{name}: {tests:#?}");
        assert!(!tests.is_empty() && tests.iter().all(|t| t["verdict"] == "pass"), "{name}: {tests:#?}");
    }
}

#[test]
fn drafts_and_choices_that_are_taken_back_keep_to_the_mask() {
    for order in [json!({"drafts": 3}), json!({"take_back": true}), json!({"take_back": true, "drafts": 2})] {
        let (code, tests) = check("token-mask:", &[&format!("order={order}")]);
        assert_eq!(code, Some(0), "{order}: {tests:#?}");
    }
}

#[test]
fn a_broken_extension_is_named_by_its_test() {
    for (broken, test, found) in [
        ("kv-gap", "kv-events: numbers have no gap", "comes after"),
        ("kv-orphan", "kv-events: numbers have no gap", "which is not held"),
        ("mask-ignored", "token-mask: a mask is obeyed", "did not allow"),
        ("mask-ignored", "token-mask: a dead end", "dead end after 3 tokens"),
        ("detok-lossy", "tokenize: a text comes back", "comes back as"),
        ("embed-short", "embeddings: one vector for each input", "64 are declared"),
        ("embed-missing", "embeddings: one vector for each input", "vectors for"),
        ("stage-silent", "stage: a batch that goes on from nothing", "stand still"),
        ("kv-state-blind", "kv-state: a state that does not fit", "is taken"),
        ("adapter-any", "adapters: an unknown name", "is taken"),
        ("pause-deaf", "pause: a paused task is silent", "after the pause"),
        ("async-late", "async-sink: when close returns", "after close had returned"),
    ] {
        let (mock, flags) = (setup::plugin("mock"), ["--adapter", "upper", "--timeout", "6", "--only", test]);
        let (code, tests) = verdicts(&mock, &flags, &["prefix-cache=4", &format!("break={broken}")]);
        assert_eq!(code, Some(1), "{broken}: {tests:#?}");
        let [told] = tests.as_slice() else { panic!("{test:?} names {} tests", tests.len()) };
        assert_eq!(told["verdict"], "fail", "{broken}: {told}");
        assert!(told.to_string().contains(found), "{broken}: {found:?} is not in {told}");
    }
}

#[test]
fn a_window_of_one_row_is_a_window() {
    let (code, tests) = check("stage:", &["stage-window=1"]);
    assert_eq!(code, Some(0), "{tests:#?}");
}

#[test]
fn a_plugin_that_offers_none_is_passed_over() -> Result<()> {
    let dir = TempDir::new();
    let library = echo_c(dir.path())?;
    for name in ALL {
        let (code, tests) = verdicts(&library, &["--only", &format!("{name}:")], &[]);
        assert_eq!(code, Some(0), "{name}: {tests:#?}");
        let id = format!("does not offer cascadia.{name}/1");
        assert!(tests.iter().all(|t| t["verdict"] == "skip" && t.to_string().contains(&id)), "{tests:#?}");
    }
    Ok(())
}

#[test]
fn a_span_of_a_task_is_in_the_trace_that_the_log_has() -> Result<()> {
    for isolate in [&[][..], &["--isolate"]] {
        let host = Host::mock(isolate);
        assert_eq!(host.post(CHAT, &chat(&order("a b", &json!({"span": true}))))?.content(), "a b");
        let lines = wait("the end of the span in the log", || {
            let lines: Vec<_> = host.log_lines().into_iter().filter(|l| l["target"] == "plugin").collect();
            let ended = lines.iter().any(|line| line.to_string().contains("span ended"));
            if ended { Ok(lines) } else { Err(format!("{} lines of plugins", lines.len())) }
        });
        let inside = lines.iter().find(|line| line.to_string().contains("first token")).expect("an event");
        assert_eq!((&inside["plugin"], &inside["part"]), (&json!("mock"), &json!("task")), "{inside}");
        assert!(!inside.to_string().contains("a b"), "no prompt text in {inside}");
        // Of another process the span comes as its words, in its line.
        let span = if isolate.is_empty() { &inside["span"]["fields"] } else { &inside["span"] };
        assert!(span.as_str().is_some_and(|words| words.contains("task=")), "{inside}");
    }
    Ok(())
}

#[test]
fn an_engine_whose_own_thread_dies_is_built_anew_at_once() -> Result<()> {
    for isolate in [&[][..], &["--isolate"]] {
        let host = Host::mock(isolate);
        // Without the report the task would stand still for minutes.
        let dies = json!({"thread_panic": true, "stall_after": 1});
        let answer = host.post(CHAT, &chat(&order("a b c", &dies)))?;
        let error = answer.error(500);
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains("mock watcher") && message.contains("panic"), "{error}");
        wait("the engine to serve again", || match host.chat("again") {
            Ok(answer) if answer.status() == 200 => Ok(()),
            other => Err(format!("{other:?}")),
        });
        let metrics = host.quiet();
        assert_eq!((metrics.ended("error"), metrics.ended("stop")), (1.0, 1.0));
    }
    Ok(())
}
