//! Each field of a request's sampling, through the real library: what it does shows in the tokens.

use super::*;

fn exact() -> Pipeline {
    Pipeline::open(&shim(), &options(Profile::Exact)).unwrap()
}

/// Hot enough that two seeds hardly agree.
fn hot(seed: u64) -> Sampling {
    Sampling { temperature: 1.5, seed, ..plain_run(24) }
}

fn most_often(ids: &[u32]) -> usize {
    ids.iter().map(|id| ids.iter().filter(|other| *other == id).count()).max().unwrap_or(0)
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn a_seed_gives_its_text_again_whatever_runs_beside_it() {
    let mut pipeline = exact();
    let first = generate(&mut pipeline, &france(), &hot(7)).ids();
    assert_ne!(generate(&mut pipeline, &france(), &hot(8)).ids(), first, "another seed");
    assert_eq!(generate(&mut pipeline, &france(), &hot(7)).ids(), first, "the same seed again");
    let mut runs: Vec<Run> =
        [9, 7, 10].map(|seed| Run::new(pipeline.add(&france(), &hot(seed)).unwrap())).into();
    finish(&mut pipeline, &mut runs);
    assert_eq!(runs[1].ids(), first, "beside two others");
    assert_ne!(runs[0].ids(), runs[2].ids());
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn filters_that_leave_one_token_make_a_hot_request_greedy() {
    let mut pipeline = exact();
    let greedy = generate(&mut pipeline, &france(), &plain_run(24)).ids();
    assert_ne!(generate(&mut pipeline, &france(), &hot(7)).ids(), greedy);
    for (field, narrow) in [
        ("top_k", Sampling { top_k: 1, ..hot(7) }),
        ("top_p", Sampling { top_p: 1e-6, ..hot(7) }),
        ("top_p", Sampling { top_p: 0.0, ..hot(7) }),
        ("min_p", Sampling { min_p: 0.999, ..hot(7) }),
        ("min_p", Sampling { min_p: 1.0, ..hot(7) }),
        ("temperature", Sampling { temperature: 1e-3, ..hot(7) }),
        ("temperature", Sampling { temperature: 1e-5, ..hot(7) }),
        ("temperature", Sampling { temperature: 1e-5, top_k: 5, ..hot(7) }),
        ("temperature", Sampling { temperature: 1e-39, ..hot(7) }),
    ] {
        assert_eq!(generate(&mut pipeline, &france(), &narrow).ids(), greedy, "{field}");
    }
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn each_penalty_makes_the_text_repeat_itself_less() {
    let mut pipeline = exact();
    let repeats = most_often(&generate(&mut pipeline, &france(), &plain_run(96)).ids());
    assert!(repeats >= 6, "the plain text repeats itself: {repeats}");
    for (field, penalized) in [
        ("repetition", Sampling { repetition_penalty: 2.0, ..plain_run(96) }),
        ("frequency", Sampling { frequency_penalty: 2.0, ..plain_run(96) }),
        ("presence", Sampling { presence_penalty: 2.0, ..plain_run(96) }),
    ] {
        let found = most_often(&generate(&mut pipeline, &france(), &penalized).ids());
        assert!(found < repeats, "{field}: {found} of {repeats}");
    }
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn an_answer_is_as_long_as_least_and_most_tokens_say() {
    let mut pipeline = exact();
    let answer = Sampling { max_tokens: 40, eos: Some(EOS), ..Sampling::default() };
    assert_eq!(generate(&mut pipeline, &france(), &answer).ids(), PARIS);
    let long = generate(&mut pipeline, &france(), &Sampling { min_tokens: 16, ..answer.clone() });
    assert!(long.tokens.len() > 16 && !long.ids()[..16].contains(&EOS), "{:?}", long.ids());
    let short = Sampling { max_tokens: 3, ..answer };
    for asked in [Sampling { min_tokens: 50, ..short.clone() }, short] {
        let run = generate(&mut pipeline, &france(), &asked);
        assert_eq!((run.ids(), run.progress), (PARIS[..3].to_vec(), Progress::Length), "{asked:?}");
    }
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn a_log_probability_is_that_of_the_models_own_distribution() {
    let mut pipeline = exact();
    let asked = Sampling { logprobs: true, ..plain_run(8) };
    let cold: Vec<f32> =
        generate(&mut pipeline, &france(), &asked).tokens.iter().map(|t| t.logprob).collect();
    assert!(cold.iter().all(|p| (-5.0..=0.0).contains(p)), "{cold:?}");
    // Temperature and filters choose the same tokens here; the numbers are those before them.
    let narrow = Sampling { temperature: 0.3, top_k: 1, seed: 1, ..asked.clone() };
    let warm: Vec<f32> =
        generate(&mut pipeline, &france(), &narrow).tokens.iter().map(|t| t.logprob).collect();
    for (cold, warm) in cold.iter().zip(&warm) {
        assert!((cold - warm).abs() < 1e-3, "{cold} {warm}");
    }
    let silent = generate(&mut pipeline, &france(), &plain_run(3));
    assert!(silent.tokens.iter().all(|t| t.logprob == 0.0), "not asked for");
}
