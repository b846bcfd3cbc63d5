//! Echo, scripts, limits, pace and the faults of a task, step by step under a clock of our own.

use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::sdk::Task;

use super::*;
use crate::crash::Crash;
use crate::fixture::{run_of, task};

const MS: u64 = 1_000_000;

/// A step as a line: `1:text` per chunk, then `.stop`, `.length`, `.cancelled` or `.error` where it ends.
fn line(batch: &Batch) -> String {
    let chunk = |d: &Delivery| {
        let end = match &d.ending {
            Ending::No => "",
            Ending::End(End::Stop) => ".stop",
            Ending::End(End::Length) => ".length",
            Ending::End(End::Cancelled) => ".cancelled",
            Ending::Error(_) => ".error",
        };
        format!("{}:{}{end}", d.task, String::from_utf8_lossy(&d.bytes))
    };
    batch.chunks().iter().map(chunk).collect::<Vec<_>>().join("|")
}

fn step(batch: &mut Batch, now: u64) -> String {
    batch.pushed();
    batch.advance(now).unwrap();
    line(batch)
}

/// All steps of one task without a pace, at most twelve.
fn play(task: Task) -> Vec<String> {
    let options = Options { context_length: 400, ..Options::default() };
    let mut batch = Batch::new(&options);
    batch.admit(run_of(task, &options), 1);
    let mut lines = Vec::new();
    while batch.next(1) == Next::More && lines.len() < 12 {
        lines.push(step(&mut batch, 1));
    }
    lines
}

fn play_text(text: &str) -> Vec<String> {
    play(task(1, text))
}

fn play_order(order: &str) -> Vec<String> {
    play_text(&format!("a b c\n@mock {order}"))
}

#[test]
fn the_words_come_back_one_a_step() {
    assert_eq!(play_text("Hello  big\nworld"), ["1:Hello", "1: big", "1: world", "1:.stop"]);
    assert_eq!(play_text(" \n"), ["1:.stop"]);
}

#[test]
fn limits_end_the_answer() {
    let limited = |max_tokens, min_tokens, ignore_eos| {
        play(Task { max_tokens, min_tokens, ignore_eos, ..task(1, "a b") })
    };
    assert_eq!(limited(1, 0, false), ["1:a.length"]);
    assert_eq!(limited(2, 0, false), ["1:a", "1: b.length"]);
    assert_eq!(limited(3, 0, false), ["1:a", "1: b", "1:.stop"]);
    assert_eq!(limited(9, 3, false), ["1:a", "1: b", "1: a", "1: b", "1:.stop"]);
    assert_eq!(limited(4, 0, true), ["1:a", "1: b", "1: a", "1: b.length"]);
    let full = "x".repeat(398);
    assert_eq!(play_text(&format!("{full} ")), [format!("1:{full}.length")]);
    assert_eq!(play_text(&"x".repeat(400)), ["1:.length"]);
}

#[test]
fn a_stop_token_is_not_delivered() {
    let mut task = task(1, "a b c");
    task.stop_tokens = vec![7, Token::of(" b").id];
    assert_eq!(play(task), ["1:a", "1:.stop"]);
}

#[test]
fn a_script_is_played_as_written() {
    let script = r#"{"script":["Hi",["x","y"],{"ids":[72,105]},{"finish":"length"},"never"]}"#;
    assert_eq!(play_order(script), ["1:Hi", "1:xy", "1:Hi", "1:.length"]);
    assert_eq!(play_order(r#"{"script":["a",{"error":"lost"}]}"#), ["1:a", "1:.error"]);
    assert_eq!(play_order(r#"{"script":["a"],"repeat":2,"finish":"length"}"#), ["1:a", "1:a", "1:.length"]);
    assert_eq!(play_order(r#"{"script":[]}"#), ["1:.stop"]);
}

#[test]
fn an_answer_comes_in_larger_pieces() {
    assert_eq!(play_order(r#"{"whole":true}"#), ["1:a b c.stop"]);
    assert_eq!(play_order(r#"{"chunk":2}"#), ["1:a b", "1: c.stop"]);
    assert_eq!(play_order(r#"{"whole":true,"script":["a",{"delay_ms":0},"b"]}"#), ["1:ab.stop"]);
    assert_eq!(play_order(r#"{"whole":true,"fail_after":2}"#), ["1:a b", "1:.error"]);
}

#[test]
fn a_breach_is_told_once_and_changes_no_chunk() {
    let mut batch = Batch::new(&Options::default());
    let breaches = "a\n@mock {\"push_from_thread\":true,\"unknown_finish\":true}";
    batch.admit(run_of(task(1, breaches), &Options::default()), 0);
    batch.admit(run_of(task(2, "b"), &Options::default()), 0);
    assert_eq!(batch.take_breach(0), Some((1, Breach::OtherThread)));
    assert_eq!(batch.take_breach(0), Some((1, Breach::UnknownFinish)));
    assert_eq!(batch.take_breach(0), None);
    assert_eq!(play_order(r#"{"push_from_thread":true}"#)[0], "1:a");
}

#[test]
fn a_task_fails_as_told() {
    assert_eq!(play_order(r#"{"fail_after":2}"#), ["1:a", "1: b", "1:.error"]);
    assert_eq!(play_order(r#"{"fail_after":0}"#), ["1:.error"]);
    assert_eq!(play_order(r#"{"stall_after":1}"#), ["1:a"]);
    assert_eq!(play_order(r#"{"no_finish":true}"#), ["1:a", "1: b", "1: c", ""]);
    assert_eq!(play_order(r#"{"double_finish":true}"#)[3], "1:.stop|1:.stop");
    assert_eq!(play_order(r#"{"push_after_finish":true}"#)[3..], ["1:.stop", "1:stray"]);
    assert_eq!(play_order(r#"{"unknown_task":true}"#)[..2], [format!("{}:stray|1:a", !1_u64), "1: b".into()]);
    let bytes = play_order(r#"{"invalid_utf8":true}"#);
    assert_eq!((bytes[0].as_str(), bytes[4].as_str()), ("1:\u{fffd}", "1:\u{fffd}"));
    let max_ignored = task(1, "a b @mock\n@mock {\"max_tokens_ignore\":true}");
    assert_eq!(play(Task { max_tokens: 1, ..max_ignored }).len(), 4);
}

#[test]
fn an_engine_fails_as_told() {
    let fault = |order: &str| {
        let options = Options::default();
        let mut batch = Batch::new(&options);
        batch.admit(run_of(task(1, &format!("a b\n@mock {order}")), &options), 1);
        batch.advance(1).and_then(|()| batch.advance(1)).unwrap_err()
    };
    assert!(matches!(fault(r#"{"panic_in":"step"}"#), Fault::Crash(Crash::Panic)));
    assert!(matches!(fault(r#"{"panic_after":1}"#), Fault::Crash(Crash::Panic)));
    assert!(matches!(fault(r#"{"abort_in":"step"}"#), Fault::Crash(Crash::Abort)));
    let Fault::Error(error) = fault(r#"{"step_error_after":1,"error_code":"out_of_memory"}"#) else {
        panic!("no error")
    };
    assert_eq!(error.code, code::OUT_OF_MEMORY);
}

#[test]
fn the_first_chunk_tells_what_is_known_of_the_prompt() {
    let options = Options { prefix_cache: 4, ..Options::default() };
    let mut batch = Batch::new(&options);
    let logged = |id| Task { prompt_logprobs: Some(0), logprobs: Some(2), ..task(id, "abc d") };
    batch.admit(run_of(logged(1), &options), 1);
    batch.admit(run_of(logged(2), &options), 1);
    batch.advance(1).unwrap();
    let [first, second] = batch.chunks() else { panic!("two chunks") };
    assert_eq!((first.prompt_tokens, first.cached_tokens), (Some(5), Some(0)));
    assert_eq!((second.prompt_tokens, second.cached_tokens), (Some(5), Some(4)));
    assert!(first.prompt_logprobs[0].is_nan());
    assert_eq!(first.prompt_logprobs[1..], [-0.51, -0.52, -0.53, -0.54]);
    assert_eq!((first.logprobs.as_slice(), first.top_k), (&[-0.5][..], 2));
    step(&mut batch, 1);
    assert_eq!(batch.chunks()[0].prompt_tokens, None);
    assert_eq!(batch.chunks()[0].logprobs, [-0.51]);
}

#[test]
fn what_is_reported_can_be_wrong() {
    let options = Options::default();
    let chunk = |order: &str| {
        let mut batch = Batch::new(&options);
        let task = Task { logprobs: Some(1), ..task(1, &format!("a\n@mock {order}")) };
        batch.admit(run_of(task, &options), 1);
        batch.advance(1).unwrap();
        batch.chunks()[0].clone()
    };
    assert_eq!(chunk(r#"{"prompt_tokens":9,"cached_tokens":3}"#).prompt_tokens, Some(9));
    assert_eq!(chunk(r#"{"cached_tokens":3}"#).cached_tokens, Some(3));
    assert_eq!(chunk(r#"{"no_prompt_tokens":true}"#).prompt_tokens, None);
    assert_eq!(chunk(r#"{"timestamp_ns":5}"#).timestamp_ns, 5);
    let nan = chunk(r#"{"nan":true}"#);
    assert!(nan.nan && nan.logprobs[0].is_nan());
    let bad = chunk(r#"{"bad_logprobs":true}"#);
    assert_eq!((bad.tokens.len(), bad.logprobs.len(), bad.top_ids.len(), bad.top_k), (1, 2, 1, 2));
}

#[test]
fn all_tasks_go_on_together_at_the_pace_of_the_engine() {
    let options = Options { token_delay_ms: 20, ..Options::default() };
    let mut batch = Batch::new(&options);
    let start = 1000 * MS;
    batch.admit(run_of(task(1, "a b c"), &options), start);
    assert_eq!(step(&mut batch, start), "1:a");
    assert_eq!(batch.next(start), Next::Until(start + 20 * MS));
    batch.admit(run_of(task(2, "x y"), &options), start + 5 * MS);
    assert_eq!(step(&mut batch, start + 5 * MS), "", "a step that comes early gives nothing");
    // A late step does not shift the beat, a missed one is not made up for.
    assert_eq!(step(&mut batch, start + 21 * MS), "1: b|2:x");
    assert_eq!(batch.next(start + 21 * MS), Next::Until(start + 40 * MS));
    assert_eq!(step(&mut batch, start + 90 * MS), "1: c|2: y");
    assert_eq!(batch.next(start + 90 * MS), Next::Until(start + 110 * MS));
    assert_eq!(step(&mut batch, start + 110 * MS), "1:.stop|2:.stop");
    assert_eq!(batch.next(start + 110 * MS), Next::Idle);
}

#[test]
fn a_task_has_a_pace_a_prefill_and_delays_of_its_own() {
    let options = Options { token_delay_ms: 20, prefill_delay_ms: 100, ..Options::default() };
    let mut batch = Batch::new(&options);
    let order = r#"{"token_delay_ms":3,"prefill_delay_ms":7,"script":["a",{"delay_ms":50},"b"]}"#;
    batch.admit(run_of(task(1, &format!("@mock {order}")), &options), 0);
    batch.admit(run_of(task(2, "x"), &options), 0);
    assert_eq!(batch.next(0), Next::Until(7 * MS));
    assert_eq!(step(&mut batch, 7 * MS), "1:a");
    assert_eq!(batch.next(7 * MS), Next::Until(57 * MS));
    assert_eq!(step(&mut batch, 57 * MS), "1:b");
    assert_eq!(step(&mut batch, 60 * MS), "1:.stop");
    assert_eq!(batch.next(60 * MS), Next::Until(100 * MS));
    assert_eq!(step(&mut batch, 100 * MS), "2:x");
}

#[test]
fn a_whole_answer_takes_as_long_as_a_streamed_one() {
    let options = Options { token_delay_ms: 20, prefill_delay_ms: 100, ..Options::default() };
    let mut batch = Batch::new(&options);
    let order = r#"{"whole":true,"script":["a",{"delay_ms":50},"b"]}"#;
    batch.admit(run_of(task(1, &format!("@mock {order}")), &options), 0);
    assert_eq!(batch.next(0), Next::Until(190 * MS));
    assert_eq!(step(&mut batch, 190 * MS), "1:ab.stop");
}

#[test]
fn a_cancel_ends_a_task_at_once_late_or_never() {
    let options = Options { token_delay_ms: 20, ..Options::default() };
    let mut batch = Batch::new(&options);
    for (id, order) in [
        (1, "{}"),
        (2, r#"{"stall_after":0}"#),
        (3, r#"{"cancel_delay_ms":30}"#),
        (4, r#"{"ignore_cancel":true}"#),
    ] {
        batch.admit(run_of(task(id, &format!("a b c\n@mock {order}")), &options), 0);
    }
    assert_eq!(step(&mut batch, MS), "1:a|3:a|4:a");
    (1..=5).for_each(|id| batch.cancel(id, 2 * MS));
    assert_eq!(step(&mut batch, 2 * MS), "1:.cancelled|2:.cancelled");
    assert_eq!(step(&mut batch, 21 * MS), "3: b|4: b");
    assert_eq!(batch.next(21 * MS), Next::Until(32 * MS));
    assert_eq!(step(&mut batch, 32 * MS), "3:.cancelled");
    assert_eq!((batch.len(), batch.take_over().0.as_slice()), (1, &[1, 2, 3][..]));
}

#[test]
fn a_slow_prefill_is_told_once_when_it_is_due() {
    let options = Options::default();
    let mut batch = Batch::new(&options);
    let order = r#"{"slow_step_ms":9,"prefill_delay_ms":5,"no_beat":true}"#;
    batch.admit(run_of(task(1, &format!("@mock {order}")), &options), 0);
    assert_eq!(batch.take_block(MS), None);
    let block = Block { task: 1, ms: 9, beat: false, watch: false };
    assert_eq!(batch.take_block(5 * MS), Some(block));
    assert_eq!(batch.take_block(5 * MS), None);
}

#[test]
fn a_paused_task_waits_and_the_others_go_on() {
    let options = Options::default();
    let mut batch = Batch::new(&options);
    for id in [1, 2] {
        batch.admit(run_of(task(id, "a b"), &options), 1);
    }
    assert_eq!(step(&mut batch, 1), "1:a|2:a");
    batch.pause(1, true);
    assert_eq!(step(&mut batch, 1), "2: b");
    assert_eq!(step(&mut batch, 1), "2:.stop");
    assert_eq!(batch.next(1), Next::Idle);
    batch.pause(1, false);
    assert_eq!(batch.next(1), Next::More);
    assert_eq!(step(&mut batch, 1), "1: b");
    batch.pause(1, true);
    batch.cancel(1, 1);
    assert_eq!(step(&mut batch, 1), "1:.cancelled");
}

#[test]
fn a_task_goes_on_where_another_engine_has_left_it() {
    let options = Options::default();
    let mut first = Batch::new(&options);
    first.admit(run_of(task(1, "a b c d"), &options), 1);
    assert_eq!((step(&mut first, 1), step(&mut first, 1)), ("1:a".into(), "1: b".into()));
    let tokens = first.sequence(1).unwrap();
    let answer = tokens[7..].to_vec();
    let mut run = run_of(Task { max_tokens: 3, ..task(9, "a b c d") }, &options);
    run.resume(&answer).unwrap();
    let mut second = Batch::new(&options);
    second.admit(run, 1);
    assert_eq!(step(&mut second, 1), "9: c.length", "limits count from the answer's beginning");
    let mut other = run_of(task(9, "x y z"), &options);
    assert_eq!(other.resume(&answer).unwrap_err().code, code::INVALID_CONFIG);
    assert_eq!(first.sequence(2), None);
}
