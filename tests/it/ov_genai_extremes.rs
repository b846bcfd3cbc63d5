//! The ends of every range that the host admits, sent to the real engine, which refuses some of them where it is told of them as they
//! are: each is answered, with the greedy text where it means that.

use anyhow::Result;
use cascadia_tests::Host;
use cascadia_tests::client::{CHAT, COMPLETIONS};
use serde_json::{Value, json};

use crate::ov_genai::{ask, host};

const QUESTION: &str = "What is the capital of France?";

/// Every one of `fields` leaves the likeliest token alone, however hot it is.
fn greedy() -> Vec<Value> {
    vec![
        json!({"temperature": 2, "top_p": 0}),
        json!({"temperature": 2, "top_p": -0.0}),
        // Nothing else in f32.
        json!({"temperature": 2, "top_p": 1e-46}),
        json!({"temperature": 2, "top_p": 1e-45}),
        json!({"temperature": 2, "min_p": 1}),
        json!({"temperature": 2, "min_p": 0.999_999_99}),
        json!({"temperature": 2, "min_p": 0.999_999_9}),
        json!({"temperature": 2, "top_p": 0, "min_p": 1, "top_k": 1}),
        json!({"temperature": 2, "top_k": 1}),
        json!({"temperature": 1e-46}),
        json!({"temperature": 1e-45}),
        json!({"temperature": 1e-40}),
        json!({"temperature": 1e-39}),
        json!({"temperature": 1e-38}),
        json!({"temperature": 9e-6}),
        json!({"temperature": 1e-5}),
        json!({"temperature": 1e-5, "top_k": u32::MAX}),
        json!({"temperature": 1e-5, "top_k": -1}),
        json!({"temperature": 0, "top_k": u32::MAX, "min_p": 1, "top_p": 0}),
        json!({"temperature": 0, "seed": i64::MIN}),
        json!({"temperature": 0, "n": 2}),
        json!({"temperature": 0, "stop": vec!["x".repeat(4096); 16]}),
        // No token of the model, with and without a fewest number of tokens.
        json!({"temperature": 0, "stop_token_ids": [u32::MAX]}),
        json!({"temperature": 0, "stop_token_ids": [49_152, 60_000, u32::MAX], "min_tokens": 3}),
    ]
}

/// What must be answered, whatever it says.
fn answered() -> Vec<Value> {
    vec![
        json!({"temperature": 2, "seed": i64::MAX}),
        json!({"temperature": 1, "seed": i64::MIN, "top_p": 1, "min_p": 0, "typical_p": 1}),
        json!({"temperature": 1, "min_p": 1e-45, "top_k": u32::MAX}),
        json!({"temperature": 2, "repetition_penalty": 0.01, "frequency_penalty": -2, "presence_penalty": -2}),
        json!({"temperature": 2, "repetition_penalty": 10, "frequency_penalty": 2, "presence_penalty": 2}),
        json!({"temperature": 1e-5, "repetition_penalty": 0.01}),
        json!({"temperature": 0, "repetition_penalty": 10, "frequency_penalty": -2}),
    ]
}

fn extremes(host: &Host) -> Result<()> {
    let whole = host.post(CHAT, &ask(QUESTION, &json!({"max_tokens": 12})))?;
    assert!(whole.content().contains("Paris") && whole.finish() == "stop", "{}", whole.content());
    for mut fields in greedy() {
        fields["max_tokens"] = json!(12);
        let answer = host.post(CHAT, &ask(QUESTION, &fields))?;
        assert_eq!((answer.status(), answer.content()), (200, whole.content()), "{fields}");
    }
    for mut fields in answered() {
        fields["max_tokens"] = json!(12);
        let answer = host.post(CHAT, &ask(QUESTION, &fields))?;
        assert_eq!(answer.status(), 200, "{fields}: {}", answer.text());
    }
    // The answer would end after seven tokens; as many as may come must come, and no more do.
    for (least, most) in [(50, 4), (9000, 12), (1 << 30, 12), (12, 12)] {
        for more in [json!({}), json!({"stop_token_ids": [u32::MAX]}), json!({"ignore_eos": true})] {
            let mut fields = more.clone();
            (fields["min_tokens"], fields["max_tokens"]) = (json!(least), json!(most));
            let answer = host.post(CHAT, &ask(QUESTION, &fields))?;
            assert_eq!(
                (answer.completion_tokens(), answer.finish()),
                (most, "length".to_owned()),
                "{fields}"
            );
            assert!(answer.content().starts_with("The capital of France"), "{fields}: {}", answer.content());
        }
    }
    // More than the window holds, ended by a text.
    let fields = json!({"min_tokens": 9000, "max_tokens": 1 << 30, "stop": "Paris"});
    let answer = host.post(CHAT, &ask(QUESTION, &fields))?;
    assert_eq!(answer.content(), "The capital of France is ");
    let scored = json!({"model": "smol", "prompt": "Paris", "max_tokens": 0, "min_tokens": 5});
    assert_eq!(host.post(COMPLETIONS, &scored)?.status(), 200);
    let metrics = host.quiet();
    assert_eq!(metrics.value("cascadia_tasks_failed_total", &[]), 0.0);
    assert_eq!(metrics.all_rejected(), 0.0);
    Ok(())
}

#[test]
fn the_ends_of_all_ranges_are_answered_in_one_batch() -> Result<()> {
    let options = ["--plugin-opt", "ov-genai.cb=true", "--plugin-opt", "ov-genai.profile=exact"];
    host(&options).map_or(Ok(()), |host| extremes(&host))
}

#[test]
fn the_ends_of_all_ranges_are_answered_by_a_model_in_one_piece() -> Result<()> {
    let options = ["--plugin-opt", "ov-genai.attention=stateful", "--plugin-opt", "ov-genai.profile=exact"];
    host(&options).map_or(Ok(()), |host| extremes(&host))
}
