//! What is asked of the library, without the library.

use super::sampling::Grammar;
use super::setup::writable_if_file;
use super::*;
use crate::ffi::value::Value;
use cascadia_ov_base::profile::Profile;

fn value(sampling: &Sampling, key: &str) -> Option<Value> {
    let found = sampling.entries().unwrap().into_iter().find(|(name, _)| name.to_str() == Ok(key));
    found.map(|(_, value)| value)
}

#[test]
fn greedy_requests_set_no_filter() {
    let greedy = Sampling { top_p: 0.5, top_k: 7, seed: 3, ..Sampling::default() };
    assert_eq!(value(&greedy, "do_sample"), Some(Value::Bool(false)));
    for key in ["temperature", "top_p", "top_k", "min_p", "rng_seed"] {
        assert_eq!(value(&greedy, key), None, "{key}");
    }
}

#[test]
fn what_leaves_the_likeliest_alone_is_greedy_and_sets_nothing_that_the_library_would_refuse() {
    let hot = Sampling { temperature: 1.0, seed: 3, ..Sampling::default() };
    let cold = |temperature| Sampling { temperature, ..hot.clone() };
    let below = 1e-5f32.next_down();
    for greedy in [
        Sampling { top_p: 0.0, ..hot.clone() },
        Sampling { top_p: -0.0, ..hot.clone() },
        Sampling { min_p: 1.0, ..hot.clone() },
        cold(below),
        cold(1e-39),
        cold(f32::from_bits(1)),
        cold(0.0),
    ] {
        assert_eq!(value(&greedy, "do_sample"), Some(Value::Bool(false)), "{greedy:?}");
        for key in ["temperature", "top_p", "min_p"] {
            assert_eq!(value(&greedy, key), None, "{key} of {greedy:?}");
        }
    }
    for drawn in [
        Sampling { top_p: f32::from_bits(1), ..hot.clone() },
        Sampling { min_p: 1.0f32.next_down(), ..hot.clone() },
        cold(1e-5),
    ] {
        assert_eq!(value(&drawn, "do_sample"), Some(Value::Bool(true)), "{drawn:?}");
        assert_eq!(value(&drawn, "temperature"), Some(Value::Float(drawn.temperature)));
    }
}

#[test]
fn the_fewest_tokens_are_no_more_than_the_most() {
    let least = |min_tokens, max_tokens| {
        let sampling = Sampling { min_tokens, max_tokens, eos: Some(2), ..Sampling::default() };
        value(&sampling, "min_new_tokens")
    };
    assert_eq!(least(50, 4), Some(Value::Size(4)));
    assert_eq!(least(usize::MAX, 1), Some(Value::Size(1)));
    assert_eq!(least(3, 4), Some(Value::Size(3)));
}

#[test]
fn values_have_the_types_that_the_library_reads() {
    let sampling =
        Sampling { temperature: 0.5, top_k: 7, eos: Some(2), logprobs: true, ..Sampling::default() };
    assert_eq!(value(&sampling, "top_k"), Some(Value::Size(7)));
    assert_eq!(value(&sampling, "temperature"), Some(Value::Float(0.5)));
    assert_eq!(value(&sampling, "eos_token_id"), Some(Value::Int(2)));
    assert_eq!(value(&sampling, "stop_token_ids"), Some(Value::Ids(vec![2])));
    assert_eq!(value(&sampling, "logprobs"), Some(Value::Size(1)));
}

#[test]
fn no_limit_on_top_k_is_the_largest_size() {
    let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
    assert_eq!(value(&sampling, "top_k"), Some(Value::Size(usize::MAX)));
}

#[test]
fn stop_ids_and_the_end_of_text_are_one_set() {
    let sampling = Sampling { eos: Some(2), stop_ids: vec![7, 9], ..Sampling::default() };
    assert_eq!(value(&sampling, "stop_token_ids"), Some(Value::Ids(vec![7, 9, 2])));
    assert_eq!(value(&Sampling::default(), "stop_token_ids"), None, "the model's own stay");
}

#[test]
fn ignoring_the_end_of_text_keeps_the_stop_ids() {
    let ignore = Sampling { eos: Some(2), ignore_eos: true, min_tokens: 3, ..Sampling::default() };
    assert_eq!(value(&ignore, "ignore_eos"), Some(Value::Bool(true)));
    assert_eq!(value(&ignore, "min_new_tokens"), Some(Value::Size(0)), "there is no end to hold back");

    let stops = Sampling { stop_ids: vec![7], ..ignore.clone() };
    assert_eq!(value(&stops, "ignore_eos"), Some(Value::Bool(false)));
    assert_eq!(value(&stops, "eos_token_id"), Some(Value::Int(7)));
    assert_eq!(value(&stops, "stop_token_ids"), Some(Value::Ids(vec![7])));

    let unknown = Sampling { eos: None, ..ignore };
    assert_eq!(value(&unknown, "stop_token_ids"), Some(Value::Ids(vec![0])), "-1 would be refused");
}

#[test]
fn a_grammar_goes_under_the_name_of_its_kind() {
    let text = || "a|b".to_owned();
    for (grammar, key) in [
        (Grammar::JsonSchema(text()), "json_schema"),
        (Grammar::Regex(text()), "regex"),
        (Grammar::Ebnf(text()), "grammar"),
    ] {
        let sampling = Sampling { grammar: Some(grammar), ..Sampling::default() };
        assert_eq!(value(&sampling, key), Some(Value::Grammar(c"a|b".to_owned())));
    }
    let cut = Sampling { grammar: Some(Grammar::Regex("a\0b".to_owned())), ..Sampling::default() };
    assert_eq!(cut.entries(), Err(Error::Nul { what: "grammar".to_owned() }));
}

#[test]
fn what_a_draft_model_needs_no_match_for_is_not_sent() {
    let ask = |assistant| Sampling { assistant: Some(assistant), ..Sampling::default() };
    assert_eq!(value(&ask((5, 3)), "max_ngram_size"), Some(Value::Size(3)));
    assert_eq!(value(&ask((5, 0)), "max_ngram_size"), None);
    assert_eq!(value(&ask((5, 0)), "num_assistant_tokens"), Some(Value::Size(5)));
}

#[test]
fn the_exact_profile_is_f32_throughout() {
    let keys: Vec<&str> = Profile::Exact.properties().iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, ["INFERENCE_PRECISION_HINT", "KV_CACHE_PRECISION", "DYNAMIC_QUANTIZATION_GROUP_SIZE"]);
    assert!(Profile::Default.properties().is_empty());
    let computes = |profile, own: &[&str]| {
        let own = own.iter().map(|value| ("INFERENCE_PRECISION_HINT".to_owned(), (*value).to_owned()));
        Options { profile, properties: own.collect(), ..Options::default() }.computes()
    };
    assert_eq!(computes(Profile::Exact, &[]).as_deref(), Some("f32"));
    // The last one counts, as in the library's map; without a network nothing is chosen for it.
    assert_eq!(computes(Profile::Exact, &["f16", "bf16"]).as_deref(), Some("bf16"));
    assert_eq!(computes(Profile::Default, &[]), None);
}

#[test]
fn the_sizes_that_npu_is_compiled_for_are_numbers() {
    let given = [("MAX_PROMPT_LEN", "2048"), ("CACHE_DIR", "7"), ("MIN_RESPONSE_LEN", "many")];
    let properties = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let sent = Options { properties, ..Options::default() }.properties().unwrap();
    let values: Vec<Value> = sent.into_iter().map(|(_, value)| value).collect();
    let text = |text: &std::ffi::CStr| Value::Text(text.to_owned());
    assert_eq!(values, [Value::Int(2048), text(c"7"), text(c"many")]);
}

#[test]
fn the_id_that_ends_a_request_is_known_unless_it_is_the_models_own() {
    let stops = |sampling: Sampling| sampling.stops();
    assert_eq!(stops(Sampling { eos: Some(2), stop_ids: vec![7], ..Sampling::default() }), [7, 2]);
    let ignore = Sampling { eos: Some(2), ignore_eos: true, ..Sampling::default() };
    assert!(stops(ignore.clone()).is_empty());
    assert_eq!(stops(Sampling { stop_ids: vec![7], ..ignore }), [7]);
    assert!(stops(Sampling::default()).is_empty());
}

#[test]
fn progress_tells_how_a_request_ended() {
    for (status, reason, expected) in [
        (0, 0, Progress::Running),
        (1, 1, Progress::Stop),
        (1, 2, Progress::Length),
        (1, 3, Progress::Stop),
        (2, 0, Progress::OutOfCache),
        (3, 0, Progress::Cancelled),
        (3, 2, Progress::Cancelled),
        (4, 0, Progress::Stop),
    ] {
        assert_eq!(progress(status, reason), expected, "{status} {reason}");
    }
}

#[test]
fn a_model_file_that_cannot_be_written_is_refused_with_the_reason() {
    // Nobody, root included, may write to a running program.
    let busy = std::env::current_exe().unwrap();
    let error = writable_if_file(&busy).unwrap_err();
    assert!(error.contains("opens a GGUF for writing") && error.contains("make it writable"), "{error}");
    assert_eq!(writable_if_file(busy.parent().unwrap()), Ok(()), "a folder is only read");
}
