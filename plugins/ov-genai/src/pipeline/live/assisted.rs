//! What helps or binds a generation, through the real library: proposed tokens, grammars, a tokenizer of networks.

use cascadia_plugin_api::sdk::{TokenKind, Tokenize};

use super::*;
use crate::cache::Blocks;
use crate::logits;
use crate::prefix::Prefix;
use crate::words::{EXTENSION, Tokenizer};

/// Tokens and steps of a greedy run, and the most that one step gave.
fn stepped(pipeline: &mut Pipeline, sampling: &Sampling) -> (Vec<u32>, usize, usize) {
    let mut run = Run::new(pipeline.add(&france(), sampling).unwrap());
    let (mut steps, mut most) = (0, 0);
    while pipeline.busy().unwrap() {
        pipeline.step().unwrap();
        let before = run.tokens.len();
        run.progress = run.request.poll(&mut run.tokens).unwrap();
        (steps, most) = (steps + 1, most.max(run.tokens.len() - before));
    }
    (run.ids(), steps, most)
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn proposed_tokens_change_the_number_of_steps_and_not_the_text() {
    let shim = shim();
    let folder = folder(&shim);
    let open = |proposer| Options { model: folder.clone(), proposer, ..options(Profile::Exact) };
    // What the library's own loader reads and what it writes has as many logits.
    assert_eq!(logits::fewest(&options(Profile::Exact)), Some(49152));
    let alike = Proposer::Model { path: folder.clone(), device: "CPU".to_owned() };
    assert_eq!(logits::fewest(&open(alike)), Some(49152));
    let alone = plain_run(48);
    let (plain, steps, most) = stepped(&mut Pipeline::open(&shim, &open(Proposer::Nobody)).unwrap(), &alone);
    assert_eq!((plain.len(), steps, most), (48, 48, 1));
    // The model itself as its draft: everything that it proposes is right.
    let draft = Proposer::Model { path: folder.clone(), device: "CPU".to_owned() };
    for (proposer, settings, below) in [(Proposer::Prompt, (5, 3), 48), (draft, (4, 0), 20)] {
        let mut pipeline = Pipeline::open(&shim, &open(proposer.clone())).unwrap();
        let assisted = Sampling { assistant: Some(settings), ..alone.clone() };
        let (text, steps, most) = stepped(&mut pipeline, &assisted);
        assert_eq!(text, plain, "{proposer:?}");
        assert!(steps < below && most > 1 && most <= settings.0 + 1, "{proposer:?}: {steps} steps, {most}");
    }
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn an_answer_keeps_to_its_grammar() {
    let shim = shim();
    let options = Options { model: folder(&shim), ..options(Profile::Exact) };
    let mut pipeline = Pipeline::open(&shim, &options).unwrap();
    assert!(pipeline.has_vocabulary().unwrap());
    let bound =
        |grammar| Sampling { max_tokens: 24, eos: Some(EOS), grammar: Some(grammar), ..Sampling::default() };
    // What each begins with, in SmolLM2's vocabulary; without a grammar it is " The", see PARIS.
    let mut ask = |grammar| {
        let run = generate(&mut pipeline, &france(), &bound(grammar));
        (run.ids(), run.progress)
    };
    let regex = ask(Grammar::Regex("[0-9]{3}".to_owned()));
    assert_eq!((regex.0.len(), regex.1), (4, Progress::Stop), "three digits and the end: {:?}", regex.0);
    let ebnf = ask(Grammar::Ebnf("root ::= [0-9] [0-9]".to_owned()));
    assert_eq!((ebnf.0.len(), ebnf.1), (3, Progress::Stop), "{:?}", ebnf.0);
    let schema = r#"{"type":"boolean"}"#.to_owned();
    let json = ask(Grammar::JsonSchema(schema));
    assert!(json.1 == Progress::Stop && json.0.len() < 6, "true or false: {:?}", json.0);
    for broken in [Grammar::Regex("(".to_owned()), Grammar::JsonSchema("{".to_owned())] {
        assert!(pipeline.add(&france(), &bound(broken.clone())).is_err(), "{broken:?}");
    }
    assert_eq!(generate(&mut pipeline, &france(), &plain_run(3)).ids(), PARIS[..3], "it still works");
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn a_tokenizer_of_networks_gives_every_byte_back() {
    let shim = shim();
    let own = Tokenizer::open(&shim, &folder(&shim), &runtime().genai.with_file_name(EXTENSION)).unwrap();
    assert_eq!(own.vocabulary(), 49152);
    assert!(own.chat_template().contains("<|im_start|>"), "{}", own.chat_template());
    assert_eq!(own.token(504).unwrap(), (b"The".to_vec(), TokenKind::Text));
    assert_eq!(own.token(1).unwrap(), (b"<|im_start|>".to_vec(), TokenKind::Special));
    assert_eq!(own.token(49152).unwrap().1, TokenKind::None);
    for text in [
        "",
        " ",
        "a",
        "héllo wörld",
        "日本語 🦀🏳️‍🌈",
        "  two\n\n\tthree  ",
        "x=1;//0123456789",
        "e\u{301}\u{200d}",
    ] {
        let ids = own.tokenize(text.as_bytes(), true, false).unwrap();
        assert_eq!(own.detokenize(&ids, true).unwrap(), text.as_bytes(), "{text:?}");
        let pieces: Vec<u8> = ids.iter().flat_map(|id| own.token(*id).unwrap().0).collect();
        assert_eq!(pieces, text.as_bytes(), "{text:?} by single tokens");
    }
    let turn = "<|im_start|>user";
    assert_eq!(own.tokenize(turn.as_bytes(), true, false).unwrap(), [1, 4093]);
    let plain = own.tokenize(turn.as_bytes(), false, false).unwrap();
    assert!(!plain.contains(&1) && own.detokenize(&plain, false).unwrap() == turn.as_bytes(), "{plain:?}");
    assert_eq!(own.detokenize(&[1, 4093], false).unwrap(), b"user");
    let long = "word ".repeat(20_000);
    assert!(own.tokenize(long.as_bytes(), true, false).unwrap().len() >= 20_000, "nothing is cut");
    assert!(own.tokenize(b"\xff", true, false).is_err());
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn blocks_are_counted_as_the_library_allots_them() {
    let mut opts = options(Profile::Exact);
    opts.scheduler.cache = Cache::Blocks(40);
    let mut pipeline = Pipeline::open(&shim(), &opts).unwrap();
    let mut blocks = Blocks::default();
    let mut one = pipeline.add(&[1; 8], &plain_run(2)).unwrap();
    pipeline.step().unwrap();
    blocks.learn(&pipeline.metrics().unwrap());
    one.cancel().unwrap();
    pipeline.step().unwrap();
    // 37 tokens are two blocks, and so are the 30 behind them; cached prefixes count as free.
    let mut run = Run::new(pipeline.add(&france(), &plain_run(30)).unwrap());
    let mut seen = Vec::new();
    while pipeline.busy().unwrap() {
        pipeline.step().unwrap();
        run.progress = run.request.poll(&mut run.tokens).unwrap();
        blocks.take(&pipeline.metrics().unwrap());
        assert_eq!(blocks.total(), 40);
        seen.push(blocks.used());
    }
    assert_eq!((seen.first(), seen.last()), (Some(&2), Some(&3)), "{seen:?}");
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn cached_prefixes_are_counted_as_the_library_takes_them() {
    let mut opts = options(Profile::Exact);
    (opts.scheduler.cache, opts.scheduler.max_batched_tokens) = (Cache::Blocks(12), 16);
    let mut pipeline = Pipeline::open(&shim(), &opts).unwrap();
    let mut prefix = Prefix::default();
    let text = |seed: u32| -> Vec<u32> { (0..65).map(|n| 100 + (seed * 977 + n * 131) % 3000).collect() };
    // Twelve blocks hold four texts of three; what comes again is found until others have taken its place.
    let mut found = Vec::new();
    for which in [1, 2, 3, 1, 4, 5, 5, 4, 1, 3, 2] {
        let prompt = text(which);
        let (cached, taken) = prefix.begin(&prompt);
        let mut run = Run::new(pipeline.add(&prompt, &plain_run(2)).unwrap());
        let mut steps = 0;
        while pipeline.busy().unwrap() {
            pipeline.step().unwrap();
            let used = (pipeline.metrics().unwrap().cache_usage / 100.0 * 12.0).round() as usize;
            prefix.fit(12 - used);
            steps += usize::from(run.tokens.is_empty());
            run.progress = run.request.poll(&mut run.tokens).unwrap();
        }
        assert_eq!(steps, (65 - cached).div_ceil(16), "text {which} after {found:?}: {cached} cached");
        prefix.end(&[&prompt[..], &run.ids()[..1]].concat(), taken);
        found.push(cached);
    }
    assert_eq!(found, [0, 0, 0, 64, 0, 0, 64, 64, 64, 0, 0]);
}
