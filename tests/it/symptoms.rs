//! What users of other servers reported, and the test that keeps it out of this one. The numbers are those of the list of
//! reports that this project keeps. A symptom of a part that does not exist yet is named with what it waits for.
//!
//! | row | symptom | test |
//! | --- | --- | --- |
//! | 1 | a stop string over two chunks is half shown | `streams::a_stop_string_over_two_chunks_is_never_shown_in_part` |
//! | 2 | with stop strings the first frames are empty | `streams::text_that_waits_for_a_stop_string_sends_no_empty_frames` |
//! | 3 | a stop string inside a half tool call loses text | later, with the tool parsers: nothing holds text for a call yet |
//! | 4 | split characters and lone bytes | `streams::characters_split_over_tokens_are_joined_and_a_lone_byte_is_one_mark` |
//! | 6 | generation goes on after its client was killed | `cancel::generation_does_not_go_on_after_its_client_was_killed` |
//! | 7 | who left the queue is generated all the same | `cancel::who_left_the_queue_is_not_generated` |
//! | 9 | a killed client ends the engine's thread | `cancel::killing_streaming_clients_does_not_harm_the_engine_thread` |
//! | 10 | n of 0 in a stream leaves the connection open | `streams::n_of_0_is_refused_before_any_head_of_a_stream`, `symptoms::an_error_frame_is_the_end_of_the_answer_and_the_connection_goes_on` |
//! | 11 | one client's reset ends the others of the batch | `cancel::resetting_one_of_eight_streams_leaves_the_other_seven_whole` |
//! | 13 | a tool call ends with `stop` | later, with the tool parsers: `tools` is refused until then, by `choices::what_the_card_lacks_is_refused_by_its_name` |
//! | 14 | a cut tool call reads as a whole one | later, with the tool parsers |
//! | 16 | an engine that dies mid-stream is a silent end | `streams::an_engine_that_dies_mid_stream_gives_an_error_frame_and_done` |
//! | 17 | aborted requests are in no metric | `cancel::aborted_requests_are_in_every_counter` |
//! | 19 | gauges keep the load of what was cancelled | `cancel::after_everything_was_cancelled_at_once_the_gauges_fall_without_new_traffic` |
//! | 20 | an empty `tool_calls` fails in the template | `symptoms::an_empty_list_of_tool_calls_is_absent_for_every_template` |
//! | 22 | the body limit is small, mute and fixed | `symptoms::the_body_limit_is_configurable_and_named_where_it_is_hit`, `flood::bodies::a_hundred_megabytes_are_refused_and_the_answer_is_readable_while_the_client_still_sends` |
//! | 24 | a cached prompt counts as 0 tokens | `symptoms::a_prompt_from_the_cache_counts_as_it_did_before` |
//! | 25 | a plugin of another build fails at first use | `plugins::bad_files_in_a_plugin_folder_are_each_told_and_the_good_one_serves`, `plugins::a_bad_plugin_that_was_asked_for_ends_the_host_with_its_own_reason` |
//! | 27 | an abort in a pipeline ends the engine's loop | needs a pipeline of two stages |
//! | 28 | one failed remote call ends the coordinator | needs a pipeline of three stages |
//! | 30 | a request to a stage that is leaving hangs | needs a pipeline; in one process it is `hot::an_engine_that_stands_still_is_given_up_and_built_anew` |
//! | 32 | the engine's child outlives its server | `isolate::the_child_dies_with_its_host_however_that_dies`, `lifecycle::the_port_is_free_after_the_end_and_taken_before_it` |
//! | 34 | output to a slow reader is buffered without bound | `flood::readers::output_to_slow_readers_is_bounded_and_others_are_unaffected`, `cancel::output_to_a_client_that_does_not_read_is_bounded_and_ends` |

use anyhow::{Context, Result};
use cascadia_tests::client::{CHAT, COMPLETIONS, chat, completion, order, streamed, with};
use cascadia_tests::http::{Connection, Request};
use cascadia_tests::{Host, setup};
use serde_json::{Value, json};

/// The rows of the list.
const ROWS: [u32; 23] = [1, 2, 3, 4, 6, 7, 9, 10, 11, 13, 14, 16, 17, 19, 20, 22, 24, 25, 27, 28, 30, 32, 34];

#[test]
fn each_row_is_in_the_table_and_each_test_of_it_is_there() -> Result<()> {
    each_has_a_test("symptoms.rs", &ROWS)
}

/// Asserts that the tables at the head of a file have exactly these rows, and that each names tests that there are, or what
/// it waits for.
pub(crate) fn each_has_a_test(file: &str, wanted: &[u32]) -> Result<()> {
    let folder = setup::root().join("tests/it");
    let table = std::fs::read_to_string(folder.join(file))?;
    let rows = table.lines().filter_map(|line| line.strip_prefix("//! | ")?.split_once(" | "));
    let rows: Vec<(u32, &str)> =
        rows.filter_map(|(number, rest)| Some((number.parse().ok()?, rest))).collect();
    assert_eq!(rows.iter().map(|(number, _)| *number).collect::<Vec<_>>(), wanted);
    for (number, rest) in rows {
        let tests: Vec<&str> = rest.split('`').skip(1).step_by(2).filter(|t| t.contains("::")).collect();
        let waits = ["later, with the tool parsers", "needs a pipeline"].iter().any(|why| rest.contains(why));
        assert!(!tests.is_empty() || waits, "row {number} has neither a test nor a reason");
        for test in tests {
            let (module, name) = test.rsplit_once("::").context("a path")?;
            let file = folder.join(format!("{}.rs", module.replace("::", "/")));
            let source = std::fs::read_to_string(&file).with_context(|| format!("row {number}: {test}"))?;
            assert!(source.contains(&format!("#[test]\nfn {name}(")), "row {number}: there is no {test}");
        }
    }
    Ok(())
}

#[test]
fn an_error_frame_is_the_end_of_the_answer_and_the_connection_goes_on() -> Result<()> {
    let host = Host::mock(&[]);
    let failing = order("a b c", &json!({"fail_after": 2}));
    let mut connection = Connection::open(host.client().address)?;
    for body in [
        with(streamed(chat("x")), &json!({"n": 0})),
        streamed(chat(&failing)),
        with(streamed(chat("x")), &json!({"n": -1})),
        streamed(chat("still here")),
    ] {
        connection.send(&Request::post(CHAT, &body))?;
        let status = connection.head()?.status;
        // The body has an end of its own: whoever waits for it does not wait for the connection's.
        let text = String::from_utf8(connection.body()?)?;
        match status {
            400 => assert!(!text.contains("data:") && text.contains("\"n\""), "{text}"),
            _ => assert!(text.ends_with("\n\ndata: [DONE]\n\n"), "{text}"),
        }
    }
    let metrics = host.quiet();
    assert_eq!(
        (metrics.requests(CHAT, "400"), metrics.ended("error"), metrics.ended("stop")),
        (2.0, 1.0, 1.0)
    );
    // A client that wants no second request is told the end by the connection too.
    let request = Request::post(CHAT, &streamed(chat(&failing))).header("connection", "close");
    connection.send(&request)?;
    assert_eq!(connection.head()?.status, 200);
    connection.body()?;
    connection.closed()
}

#[test]
fn an_empty_list_of_tool_calls_is_absent_for_every_template() -> Result<()> {
    // Habits of templates: they ask whether it is there, and take the first of it then.
    for asks in ["m.tool_calls is defined", "'tool_calls' in m"] {
        let first = "{{ m.tool_calls[0].function.name }}";
        let template = format!(
            "mock.chat-template={{% for m in messages %}}{{% if {asks} %}}{first}{{% else %}}{{{{ m.content }}}} \
             {{% endif %}}{{% endfor %}}"
        );
        let host = Host::mock(&["--plugin-opt", &template]);
        for empty in [json!([]), Value::Null] {
            let messages = json!([
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "two", "tool_calls": empty},
                {"role": "user", "content": "three"},
            ]);
            let body = with(chat(""), &json!({"messages": messages}));
            assert_eq!(host.post(CHAT, &body)?.content().trim(), "one two three", "{asks}: {empty}");
            assert_eq!(host.told(CHAT, &streamed(body))?.text.trim(), "one two three", "{asks}: {empty}");
        }
    }
    Ok(())
}

#[test]
fn the_body_limit_is_configurable_and_named_where_it_is_hit() -> Result<()> {
    let window = ["--plugin-opt", "mock.context-length=20000000"];
    let host = Host::mock(&[&["--api-max-body-mb", "16"], &window[..]].concat());
    let of_size =
        |bytes: usize| with(completion(&format!("hi{}", " ".repeat(bytes))), &json!({"max_tokens": 1}));
    for bytes in [100 << 10, (1 << 20) + 1, 8 << 20] {
        let answer = host.post(COMPLETIONS, &of_size(bytes))?;
        assert_eq!(answer.content(), "hi", "{bytes} bytes");
    }
    let error = host.post(COMPLETIONS, &of_size(16 << 20))?.error(413);
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.contains("16 MiB") && message.contains("--api-max-body-mb"), "{message}");
    assert_eq!(host.scrape().requests(COMPLETIONS, "413"), 1.0);
    // What the default lets through is more than any of these.
    let host = Host::mock(&window);
    assert_eq!(host.post(COMPLETIONS, &of_size(16 << 20))?.content(), "hi");
    Ok(())
}

#[test]
fn a_prompt_from_the_cache_counts_as_it_did_before() -> Result<()> {
    let host = Host::mock(&["--plugin-opt", "mock.prefix-cache=8"]);
    let prompt = "the same words again and again, over two blocks of the cache at least";
    let counts = |usage: &Value| {
        (usage["prompt_tokens"].clone(), usage["prompt_tokens_details"]["cached_tokens"].clone())
    };
    let first = counts(&host.chat(prompt)?.json()["usage"]);
    assert_eq!(first.0, prompt.len());
    assert!(first.1.as_u64().unwrap_or(0) == 0, "nothing is cached yet: {first:?}");
    let again = counts(&host.chat(prompt)?.json()["usage"]);
    assert_eq!(again.0, first.0, "the count does not depend on the cache");
    assert!(again.1.as_u64().is_some_and(|n| n > 0 && n <= prompt.len() as u64), "{again:?}");
    let told = host.told(CHAT, &streamed(chat(prompt)))?;
    assert_eq!(told.usage.as_ref().map(counts), Some(again), "a stream tells the same");
    // The counter has every prompt whole too.
    assert_eq!(host.quiet().value("cascadia_tokens_prompt_total", &[]), 3.0 * prompt.len() as f64);
    Ok(())
}
