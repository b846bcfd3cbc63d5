//! `cascadia-host plugin bench`: it counts what an engine gives, here and in a process of its own, and says in one line why
//! it cannot.

use cascadia_tests::host::run;
use cascadia_tests::setup;
use serde_json::Value;

fn mock() -> String {
    setup::plugin("mock").to_str().expect("PANIC: the target folder's path is text").to_owned()
}

/// How fast it was is not asked: the machine may be slow and busy.
#[track_caller]
fn is_whole(report: &Value, isolated: bool) {
    assert_eq!((&report["id"], &report["engine"]), (&"mock".into(), &"mock".into()), "{report}");
    assert_eq!((&report["isolated"], &report["rounds"]), (&isolated.into(), &2.into()), "{report}");
    let batches = report["batches"].as_array().expect("PANIC: batches are an array");
    assert_eq!(batches.iter().map(|b| &b["batch"]).collect::<Vec<_>>(), [1, 3], "{report}");
    for batch in batches {
        // Two rounds of at least that many.
        assert!(batch["tokens"].as_u64().is_some_and(|n| n >= 2 * 200), "{batch}");
        let figure = |name: &str| {
            let three = ["low", "median", "high"].map(|part| batch[name][part].as_f64());
            let [Some(low), Some(median), Some(high)] = three else { panic!("{name} of {batch}") };
            assert!(low <= median && median <= high, "{name} of {batch}");
            median
        };
        for name in ["tokens_per_second", "wall_ns_per_token", "host_cpu_ns_per_token", "core_share_at_50000"]
        {
            assert!(figure(name) > 0.0, "{name} of {batch}");
        }
        // In a process of its own a task that follows another comes a push late.
        let full = batch["batch"].as_f64().unwrap_or_default();
        let pushed = figure("chunks_per_push");
        assert!(pushed >= 1.0 && pushed <= full && (isolated || pushed == full), "{batch}");
        assert!(figure("steps_per_second") >= 0.0);
        assert!(batch["receiver_ns_per_token"].as_f64().is_some_and(|n| n >= 0.0), "{batch}");
        if isolated {
            assert!(figure("child_cpu_ns_per_token") > 0.0, "{batch}");
        } else {
            assert!(batch["child_cpu_ns_per_token"].is_null(), "{batch}");
        }
    }
}

#[test]
fn tokens_are_counted_in_the_host_and_in_a_process_of_its_own() {
    let mock = mock();
    let common =
        ["plugin", "bench", &mock, "--batch", "1", "--batch", "3", "--rounds", "2", "--tokens", "200"];
    for isolated in [false, true] {
        // A short window: tasks end and are followed by others.
        let more: &[&str] = if isolated { &["--isolate"] } else { &[] };
        let args = [&common[..], &["--json", "--option", "context-length=64"], more].concat();
        let ended = run(&args);
        assert_eq!(ended.status.code(), Some(0), "{}{}", ended.output, ended.complaint);
        is_whole(&serde_json::from_str(&ended.output).expect("JSON"), isolated);
    }
    let told = run(&["plugin", "bench", &mock, "--seconds", "0.01", "--rounds", "2"]);
    for words in ["batch 16", "wall ns/token", "% of a core"] {
        assert!(told.output.contains(words), "{words:?} is not in {}", told.output);
    }
}

#[test]
fn what_cannot_be_measured_is_said_in_one_line() {
    let mock = mock();
    let bench = |more: &[&str]| {
        run(&[&["plugin", "bench", &mock, "--rounds", "1", "--tokens", "100"], more].concat())
    };
    bench(&["--engine", "other"]).complains(2, &["mock has no engine other"]);
    bench(&["--batch", "0"]).complains(2, &["--batch is 0"]);
    bench(&["--option", "slot=2"]).complains(2, &["did you mean slots"]);
    bench(&["--option", "fail-load=no weights"]).complains(1, &["no weights"]);
    bench(&["--option", "max-waiting=0", "--option", "slots=2", "--batch", "3"])
        .complains(1, &["refused task 3 of 3"]);
    for isolate in [&[][..], &["--isolate"]] {
        let order = |order| [&["--option", order], isolate].concat();
        bench(&order(r#"order={"fail_after":2,"error_message":"no luck"}"#)).complains(1, &["no luck"]);
        bench(&order(r#"order={"step_error_after":2}"#)).complains(1, &["the engine failed"]);
    }
    bench(&["--isolate", "--option", r#"order={"segfault_in":"step"}"#]).complains(1, &["SIGSEGV"]);
}
