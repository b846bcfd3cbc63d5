//! A real model in one piece.

use std::time::{Duration, Instant};

use super::*;
use crate::pipeline::stateful::Stateful;

/// No token of this model takes that long.
const WAIT: Duration = Duration::from_secs(60);

fn open() -> Stateful {
    Stateful::open(&shim(), &options(Profile::Exact), |body| std::thread::Builder::new().spawn(body)).unwrap()
}

fn rest(model: &mut Stateful, tokens: &mut Vec<u32>) -> Progress {
    loop {
        let progress = model.poll(tokens, WAIT).unwrap();
        if progress != Progress::Running {
            return progress;
        }
    }
}

fn whole(model: &mut Stateful, sampling: &Sampling) -> (Vec<u32>, Progress) {
    model.begin(&france(), sampling).unwrap();
    let mut tokens = Vec::new();
    let progress = rest(model, &mut tokens);
    (tokens, progress)
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn generations_follow_each_other_whatever_became_of_the_last() {
    let mut model = open();
    let paris = Sampling { max_tokens: 24, eos: Some(EOS), ..Sampling::default() };
    assert_eq!(whole(&mut model, &paris), (PARIS.to_vec(), Progress::Stop));
    // By a stop id, by length, and past the end of text.
    let by_id = Sampling { stop_ids: vec![PARIS[5]], ..plain_run(20) };
    assert_eq!(whole(&mut model, &by_id), (PARIS[..6].to_vec(), Progress::Stop));
    assert_eq!(whole(&mut model, &plain_run(3)), (PARIS[..3].to_vec(), Progress::Length));
    let (beyond, progress) = whole(&mut model, &plain_run(20));
    assert_eq!((beyond.len(), &beyond[..8], progress), (20, &PARIS[..], Progress::Length));

    // One after the other, not at the end: tokens come while it runs.
    let mut tokens = Vec::new();
    model.begin(&france(), &plain_run(2000)).unwrap();
    assert_eq!(model.poll(&mut tokens, WAIT).unwrap(), Progress::Running);
    assert!(!tokens.is_empty() && tokens.len() < 20, "{}", tokens.len());
    // Cancelled, nothing comes of it any more.
    model.cancel();
    tokens.clear();
    assert_eq!(model.poll(&mut tokens, Duration::from_millis(300)).unwrap(), Progress::Running);
    assert!(tokens.is_empty(), "{tokens:?}");
    // The next one does not wait for what the cancelled one would have taken.
    model.begin(&france(), &plain_run(2000)).unwrap();
    model.poll(&mut tokens, WAIT).unwrap();
    let begun = Instant::now();
    assert_eq!(whole(&mut model, &paris), (PARIS.to_vec(), Progress::Stop), "begun over another");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());

    // What the library refuses ends that generation alone, with its words.
    let hot = Sampling { temperature: 1.0, top_p: 7.0, ..plain_run(3) };
    model.begin(&france(), &hot).unwrap();
    let error = model.poll(&mut tokens, WAIT).unwrap_err();
    assert!(error.to_string().contains("top_p"), "{error}");
    assert!(model.begin(&[], &paris).is_err(), "an empty prompt");
    assert_eq!(whole(&mut model, &paris), (PARIS.to_vec(), Progress::Stop), "it still works");

    // Closed in the middle of one, it waits for no more than a token.
    model.begin(&france(), &plain_run(2000)).unwrap();
    model.poll(&mut tokens, WAIT).unwrap();
    let begun = Instant::now();
    drop(model);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn what_the_card_says_of_sampling_is_so_in_one_piece_too() {
    let mut model = open();
    let drawn = |seed| Sampling { temperature: 1.5, top_p: 0.95, top_k: 200, seed, ..plain_run(12) };
    let mut draw = |seed| whole(&mut model, &drawn(seed)).0;
    let first = draw(7);
    assert_eq!(draw(7), first, "the same seed again");
    assert_ne!(draw(8), first);
    assert_eq!(draw(7), first, "after another");
    let one = Sampling { top_k: 1, ..drawn(3) };
    let (greedy, _) = whole(&mut model, &plain_run(12));
    assert_eq!(whole(&mut model, &one).0, greedy, "one token is left");
    let sure = Sampling { top_k: 0, top_p: 1.0, min_p: 0.999, ..drawn(3) };
    assert_eq!(whole(&mut model, &sure).0, greedy, "only the likeliest is as likely");

    let least = Sampling { min_tokens: 12, max_tokens: 24, eos: Some(EOS), ..Sampling::default() };
    let (tokens, _) = whole(&mut model, &least);
    assert!(tokens.len() >= 12 && !tokens[..12].contains(&EOS), "{tokens:?}");

    let repeats =
        |tokens: &[u32]| tokens.len() - tokens.iter().collect::<std::collections::BTreeSet<_>>().len();
    let (plain, _) = whole(&mut model, &plain_run(40));
    for penalty in [
        Sampling { repetition_penalty: 1.8, ..plain_run(40) },
        Sampling { frequency_penalty: 2.0, ..plain_run(40) },
        Sampling { presence_penalty: 2.0, ..plain_run(40) },
    ] {
        let (tokens, _) = whole(&mut model, &penalty);
        assert!(
            repeats(&tokens) < repeats(&plain),
            "{} of {}: {penalty:?}",
            repeats(&tokens),
            repeats(&plain)
        );
    }
}

#[test]
#[ignore = "needs cargo xtask build"]
fn a_device_that_is_not_there_is_refused_with_the_library_s_words() {
    let shim = shim();
    let open = |device: &str| {
        let options = Options { device: device.to_owned(), ..options(Profile::Default) };
        Stateful::open(&shim, &options, |body| std::thread::Builder::new().spawn(body))
            .err()
            .map(|e| e.to_string())
    };
    // The name goes to the library as it is.
    let said = open("TPU").expect("refused");
    assert!(said.contains("on TPU") && said.matches("TPU").count() > 1, "{said}");
}
