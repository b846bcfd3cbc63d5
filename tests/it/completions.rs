//! `POST /v1/completions`: the prompt as it is, a text or token ids.

use anyhow::Result;
use cascadia_tests::Host;
use cascadia_tests::client::{COMPLETIONS, completion, order, streamed, with};
use serde_json::json;

#[test]
fn a_prompt_is_completed_whole_and_streamed() -> Result<()> {
    let host = Host::mock(&[]);
    let answer = host.post(COMPLETIONS, &completion("one two three"))?;
    assert_eq!((answer.content().as_str(), answer.finish().as_str()), ("one two three", "stop"));
    let body = answer.json();
    assert_eq!(body["object"], "text_completion");
    assert!(body["id"].as_str().is_some_and(|id| id.starts_with("cmpl-")), "{body}");
    assert_eq!(body["usage"], json!({"prompt_tokens": 13, "completion_tokens": 3, "total_tokens": 16}));
    let told = host.told(COMPLETIONS, &streamed(completion("one two three")))?;
    assert_eq!(told.pieces, ["one", " two", " three"]);
    assert_eq!((told.finish(), told.completion_tokens()), ("stop", 3));
    assert!(told.frames.iter().all(|f| f["object"] == "text_completion"), "{:?}", told.frames);
    assert_eq!(host.quiet().ended("stop"), 2.0);
    Ok(())
}

#[test]
fn without_a_limit_a_completion_has_sixteen_tokens() -> Result<()> {
    let host = Host::mock(&[]);
    let answer = host.post(COMPLETIONS, &completion(&"w ".repeat(40)))?;
    assert_eq!((answer.completion_tokens(), answer.finish().as_str()), (16, "length"));
    Ok(())
}

#[test]
fn a_prompt_may_be_a_list_of_one_text_or_of_token_ids() -> Result<()> {
    let host = Host::mock(&[]);
    let ids: Vec<u32> = "hi there".bytes().map(u32::from).collect();
    for prompt in [json!("hi there"), json!(["hi there"]), json!(ids), json!([ids])] {
        let body = with(completion(""), &json!({"prompt": prompt}));
        assert_eq!(host.post(COMPLETIONS, &body)?.content(), "hi there", "{body}");
    }
    Ok(())
}

#[test]
fn stop_tokens_end_an_answer_and_are_not_part_of_it() -> Result<()> {
    let host = Host::mock(&[]);
    // Ids below 256 are bytes: the host makes their text.
    let prompt = order("x", &json!({"script": [{"ids": [72, 105]}, {"ids": [33]}, {"ids": [63]}]}));
    let answer = host.post(COMPLETIONS, &with(completion(&prompt), &json!({"stop_token_ids": [33]})))?;
    assert_eq!((answer.content().as_str(), answer.finish().as_str()), ("Hi", "stop"));
    assert_eq!(answer.completion_tokens(), 2);
    Ok(())
}

#[test]
fn min_tokens_and_ignore_eos_pass_over_the_end() -> Result<()> {
    let host = Host::mock(&[]);
    let fields = json!({"max_tokens": 5, "ignore_eos": true});
    let answer = host.post(COMPLETIONS, &with(completion("a b"), &fields))?;
    assert_eq!((answer.content().as_str(), answer.finish().as_str()), ("a b a b a", "length"));
    let answer = host.post(COMPLETIONS, &with(completion("a b"), &json!({"min_tokens": 3})))?;
    assert!(answer.completion_tokens() >= 3, "{}", answer.text());
    assert_eq!(answer.finish(), "stop");
    Ok(())
}
