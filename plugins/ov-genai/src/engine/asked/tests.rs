//! What is refused, and what the library is told, without the library.

use cascadia_plugin_api::abi::code;

use super::*;

const LIMITS: Limits = Limits { context: 64, vocabulary: Some(100), grammars: true, logprobs: true };

fn task(change: impl FnOnce(&mut Task)) -> Task {
    let mut task = Task { tokens: vec![1, 2], stop_tokens: vec![7], ..Task::default() };
    change(&mut task);
    task
}

#[test]
fn the_ends_of_every_range_are_taken_and_what_lies_beyond_is_refused_by_name() {
    type Set = fn(&mut Task, f32);
    let fields: [(&str, Set, f32, f32); 6] = [
        ("temperature", |t, v| t.sampling.temperature = v, 0.0, f32::MAX),
        ("top_p", |t, v| t.sampling.top_p = v, 0.0, 1.0),
        ("min_p", |t, v| t.sampling.min_p = v, 0.0, 1.0),
        ("repetition_penalty", |t, v| t.sampling.repetition_penalty = v, 0.001, 1000.0),
        ("frequency_penalty", |t, v| t.sampling.frequency_penalty = v, -2.0, 2.0),
        ("presence_penalty", |t, v| t.sampling.presence_penalty = v, -2.0, 2.0),
    ];
    for (name, set, least, most) in fields {
        for good in [least, most] {
            assert_eq!(LIMITS.check(&task(|t| set(t, good))), Ok(()), "{name} {good}");
        }
        for bad in [least - 0.01, most * 2.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = LIMITS.check(&task(|t| set(t, bad))).unwrap_err();
            assert_eq!(error.code, code::INVALID_CONFIG, "{name} {bad}");
            assert!(error.message.starts_with(&format!("{name} is {bad}; it must be")), "{error}");
        }
    }
    let zero = task(|t| t.grammar = (GrammarKind::Regex, "a\0b".to_owned()));
    assert!(LIMITS.check(&zero).unwrap_err().message.contains("zero byte"));
}

#[test]
fn stop_tokens_that_the_model_lacks_are_not_sent() {
    let sent = |stops: &[u32], ignore_eos, vocabulary| {
        let asked = task(|t| (t.stop_tokens, t.ignore_eos) = (stops.to_vec(), ignore_eos));
        let sampling = sampling(&asked, vocabulary);
        (sampling.stop_ids, sampling.eos, sampling.ignore_eos)
    };
    assert_eq!(sent(&[u32::MAX, 99, 100, 7], false, Some(100)), (vec![99, 7], Some(99), false));
    assert_eq!(sent(&[u32::MAX], true, Some(100)), (vec![], None, true));
    assert_eq!(sent(&[100], false, Some(100)), (vec![], None, true), "as if there were none");
    assert_eq!(sent(&[100], false, None), (vec![100], Some(100), false));
}

#[test]
fn where_nobody_knows_how_many_tokens_there_are_there_is_no_fewest_number_of_them() {
    let unknown = Limits { vocabulary: None, ..LIMITS };
    let least = task(|t| t.min_tokens = 1);
    assert_eq!(LIMITS.check(&least), Ok(()));
    let error = unknown.check(&least).unwrap_err();
    assert!(error.code == code::UNSUPPORTED && error.message.contains("min_tokens"), "{error}");
    assert_eq!(unknown.check(&task(|t| t.stop_tokens = vec![u32::MAX])), Ok(()));
    // A prompt's tokens are looked at where they can be.
    let beyond = task(|t| t.tokens = vec![99, 100]);
    assert!(LIMITS.check(&beyond).unwrap_err().message.contains("token 100; the model has tokens below 100"));
    assert_eq!(unknown.check(&beyond), Ok(()));
}
