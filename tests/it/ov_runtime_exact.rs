//! Our own batching says what the library's says, token for token, and what a request gets alone, whatever runs beside it.

use anyhow::Result;
use cascadia_tests::client::{CHAT, Stream, streamed};
use cascadia_tests::http::Request;
use cascadia_tests::{Host, setup};
use serde_json::{Value, json};

use crate::ov_genai::{COMPILED, ask};
use crate::ov_runtime;

const LIMIT: u64 = 24;
/// More than a block has.
const LONG: u64 = 40;

fn question(i: usize, tokens: u64) -> Value {
    // Of different lengths; the first words are those of many.
    let words = format!("Tell me about the number {}. {}", i % 7, "And more. ".repeat(i % 13));
    ask(&words, &json!({"max_tokens": tokens, "ignore_eos": true}))
}

/// All at once; each is told to its end.
fn texts(host: &Host, model: &str, count: usize) -> Result<Vec<String>> {
    let begin = |i: usize| {
        let mut body = streamed(question(i, LIMIT));
        body["model"] = json!(model);
        host.stream(CHAT, &body)
    };
    let streams: Vec<Stream> = (0..count).map(begin).collect::<Result<_>>()?;
    streams
        .into_iter()
        .map(|stream| {
            let told = stream.rest()?;
            assert_eq!((told.finish(), told.completion_tokens()), ("length", LIMIT));
            Ok(told.text)
        })
        .collect()
}

#[test]
fn one_to_thirty_two_streams_say_what_the_librarys_own_batching_says() -> Result<()> {
    let (Some(fixed), Some(model), Some(openvino)) = (ov_runtime::fixed(), setup::model(), setup::openvino())
    else {
        return Ok(());
    };
    let (model, genai) = (model.display().to_string(), setup::plugin("ov_genai").display().to_string());
    let (ours, theirs) =
        (format!("ours={model},engine=ov-runtime"), format!("theirs={model},engine=ov-genai"));
    let options = [
        format!("ov-genai.openvino-dir={}", openvino.display()),
        format!("ov-genai.cache-dir={}", setup::compiled_models().display()),
        "ov-genai.cb=true".to_owned(),
        "ov-genai.profile=exact".to_owned(),
        "ov-runtime.profile=exact".to_owned(),
    ];
    let mut arguments: Vec<&str> = fixed.iter().map(String::as_str).collect();
    arguments.extend(["--plugin", &genai, "--model", &ours, "--model", &theirs, "--max-concurrent", "32"]);
    arguments.extend(options.iter().flat_map(|option| ["--plugin-opt", option]));
    let host = Host::start(&arguments);
    host.ready_within(COMPILED);
    for count in [1, 4, 8, 16, 32] {
        let expected = texts(&host, "theirs", count)?;
        assert_eq!(texts(&host, "ours", count)?, expected, "{count} streams");
    }
    host.quiet();
    Ok(())
}

#[test]
fn texts_are_those_of_single_runs_beside_others_preempted_shared_and_around_cancelled_ones() -> Result<()> {
    let exact = ["--profile", "exact", "--cb-prefix-caching=false"];
    let Some(host) = ov_runtime::host(&exact) else { return Ok(()) };
    let alone: Vec<String> =
        (0..16).map(|i| Ok(host.post(CHAT, &question(i, LONG))?.content())).collect::<Result<_>>()?;
    drop(host);
    // Sixteen of about four blocks each in fourteen, and each needs one more on its way: they give way to each other.
    let small = ["--profile", "exact", "--cb-num-kv-blocks", "14", "--max-concurrent", "16"];
    let Some(host) = ov_runtime::host(&small) else { return Ok(()) };
    for given_up in [0, 5] {
        let begin = |i: usize| -> Result<Stream> {
            let tokens = if i < given_up { 5 * LONG } else { LONG };
            let request = Request::post(CHAT, &streamed(question(i, tokens)));
            host.begin(&request.header("x-request-id", &format!("{given_up}-{i}")))?.stream()
        };
        let mut streams: Vec<Stream> = (0..16).map(begin).collect::<Result<_>>()?;
        for (i, mut stream) in streams.drain(..given_up).enumerate() {
            stream.pieces(2 + i)?;
            assert!(alone[i].starts_with(&stream.told().text), "{i}: {:?}", stream.told().text);
            match i {
                0 | 1 => host.cancel(&format!("{given_up}-{i}"))?,
                2 => stream.reset(),
                _ => drop(stream),
            }
        }
        for (i, stream) in streams.into_iter().enumerate().map(|(at, stream)| (at + given_up, stream)) {
            let told = stream.rest()?;
            assert_eq!(told.text, alone[i], "stream {i} beside fifteen, {given_up} of them given up");
        }
    }
    let metrics = host.quiet();
    let own = |name: &str| metrics.sum(&format!("cascadia_plugin_ov_runtime_{name}"), &[]);
    assert!(own("preemptions_total") > 0.0, "nobody gave way");
    assert!(own("prefix_hit_tokens_total") > 0.0, "nothing was shared");
    assert_eq!(ov_runtime::blocks(&metrics, "held"), 0.0);
    Ok(())
}

#[test]
fn guesses_from_the_text_so_far_are_counted_and_change_no_text() -> Result<()> {
    // Beyond its end it repeats itself, as small models do.
    let ask = ask("Count from one to five, three times.", &json!({"max_tokens": 60, "ignore_eos": true}));
    let run = |options: &[&str]| -> Result<Option<(String, f64, f64)>> {
        let Some(host) = ov_runtime::host(&[&["--profile", "exact"], options].concat()) else {
            return Ok(None);
        };
        let text = host.told(CHAT, &streamed(ask.clone()))?.text;
        let metrics = host.quiet();
        let own = |name: &str, labels: &[(&str, &str)]| {
            metrics.sum(&format!("cascadia_plugin_ov_runtime_{name}"), labels)
        };
        let (accepted, rejected) = match options {
            [] => (0.0, 0.0),
            _ => {
                let of = |outcome| own("draft_tokens_total", &[("outcome", outcome)]);
                (of("accepted"), of("rejected"))
            }
        };
        // The trial of the host is a step too; each step gave one token and those that held.
        assert_eq!(own("step_rows_count", &[]) - 1.0 + accepted, 60.0, "{accepted} held, {rejected} did not");
        Ok(Some((text, accepted, own("step_rows_count", &[]))))
    };
    let (Some(plain), Some(guessed)) = (run(&[])?, run(&["--cb-prompt-lookup"])?) else { return Ok(()) };
    assert_eq!(plain.0, guessed.0);
    assert!(guessed.1 > 0.0 && guessed.2 < plain.2, "{guessed:?}");
    Ok(())
}
