//! A draft model that computes nothing beside a model that computes nothing: texts are those without it, whatever it says.

use cascadia_batching::{Limits as Bounds, Scheduler};
use cascadia_plugin_api::sdk::{Sampling, Task};

use super::*;
use crate::asked::Limits;
use crate::backend::null::Null;
use crate::generations::Generations;
use crate::guess::Guesses;
use crate::tray::End;
use crate::worth::Policy;

const VOCABULARY: usize = 97;
/// Of the model; the draft model has others.
const BLOCK: usize = 4;
const DRAFT_BLOCK: usize = 3;

fn null() -> Null {
    Null::new(DRAFT_BLOCK, 200, VOCABULARY)
}

fn draft(null: Null, blocks: usize, policy: Policy) -> Guesses {
    let sizes = Sizes { blocks, window: 1000, rows: 12 };
    Guesses::Draft(Box::new(Draft::new(Box::new(null), sizes, Worth::new(policy, 4, true))))
}

fn generations(model: Null, blocks: usize, guesses: Guesses) -> Generations {
    let bounds = Bounds {
        block_size: BLOCK,
        blocks,
        rows: 32,
        rows_beside: 8,
        sequences: 8,
        waiting: 64,
        ..Bounds::default()
    };
    let limits =
        Limits { window: blocks * BLOCK, vocabulary: VOCABULARY, filler: crate::masks::Filler::default() };
    Generations::new(Box::new(model), Scheduler::new(bounds).unwrap(), limits, guesses)
}

fn model(blocks: usize) -> Null {
    Null::new(BLOCK, blocks, VOCABULARY)
}

fn task(id: u64, length: usize, more: u32, temperature: f32) -> Task {
    let tokens: Vec<u32> =
        (0..length as u64).map(|at| ((id % 5 * 31 + at * 7) % VOCABULARY as u64) as u32).collect();
    Task {
        id,
        group: id,
        generated_from: tokens.len() as u64,
        tokens,
        max_tokens: more,
        sampling: Sampling { seed: Some(id), temperature, ..Sampling::default() },
        ..Task::default()
    }
}

fn blocks(all: &mut Generations) -> (usize, usize) {
    match all.guesses() {
        Guesses::Draft(draft) => draft.blocks(),
        _ => (0, 0),
    }
}

/// What came of all that was added.
#[derive(Debug, Default)]
struct Seen {
    texts: BTreeMap<u64, Vec<u32>>,
    ends: BTreeMap<u64, End>,
    steps: usize,
    guessed: u32,
    held: u32,
    seconds: f64,
}

impl Seen {
    fn turn(&mut self, all: &mut Generations) {
        let took = all.turn(0).unwrap().unwrap_or_default();
        self.steps += 1;
        self.guessed += took.drafts.0;
        self.held += took.drafts.1;
        self.seconds += (took.infer + took.draft).as_secs_f64();
        for news in all.tray.news() {
            self.texts.entry(news.task).or_default().extend(all.tray.tokens_of(news.task));
            if news.end != End::No {
                self.ends.insert(news.task, news.end.clone());
            }
        }
        let (held, every) = blocks(all);
        assert!(held <= every);
    }

    /// Turns until nothing lives; nothing is held then.
    fn run(&mut self, all: &mut Generations) {
        for _ in 0..10_000 {
            if all.is_idle() {
                assert_eq!((all.load().held, blocks(all).0), (0, 0));
                return;
            }
            self.turn(all);
        }
        panic!("it does not end");
    }
}

fn twenty(blocks: usize, guesses: Guesses) -> (Seen, u64) {
    let mut all = generations(model(blocks), blocks, guesses);
    for id in 0..20 {
        let temperature = if id % 3 == 0 { 1.0 } else { 0.0 };
        all.add(task(id, 5 + id as usize % 27, 12 + id as u32 % 13, temperature), 0).unwrap();
    }
    let mut seen = Seen::default();
    seen.run(&mut all);
    (seen, all.load().preemptions)
}

#[test]
fn texts_are_those_without_a_draft_model_whether_it_is_right_or_wrong() {
    // With 24 blocks of 4 they give way to each other all the time; 6 blocks of 3 are too few for the draft model.
    let mut gave_way = 0;
    for (model_blocks, draft_blocks) in [(400, 200), (24, 200), (400, 6), (24, 6), (400, 0)] {
        let (plain, _) = twenty(model_blocks, Guesses::No);
        for often in [None, Some(1), Some(2), Some(5)] {
            let null = if let Some(often) = often { null().wrong(often) } else { null() };
            let (seen, preempted) = twenty(model_blocks, draft(null, draft_blocks, Policy::Always));
            let case = format!("{model_blocks} {draft_blocks} {often:?}: {} of {}", seen.held, seen.guessed);
            assert_eq!((&seen.texts, &seen.ends), (&plain.texts, &plain.ends), "{case}");
            gave_way += preempted;
            match (often, draft_blocks) {
                (_, 0) => assert_eq!(seen.guessed, 0, "{case}"),
                (Some(1), _) => assert!(seen.guessed > 0 && seen.held * 20 < seen.guessed, "{case}"),
                // Chance says something else than the likeliest now and then.
                (None, _) => assert!(seen.held * 10 > seen.guessed * 8, "{case}"),
                _ => assert!(seen.held > 0 && seen.held < seen.guessed, "{case}"),
            }
            if (often, draft_blocks) == (None, 200) {
                assert!(seen.steps < plain.steps, "{case}: {} after {}", seen.steps, plain.steps);
            }
        }
    }
    assert!(gave_way > 0);
}

#[test]
fn a_draft_model_that_is_right_is_always_right_however_texts_are_cut_and_positions_go_back() {
    // At temperature 0 any guess that does not hold would be a position read wrongly.
    let mut all = generations(model(400), 400, draft(null(), 200, Policy::Always));
    for id in 0..12 {
        // The longest needs three inferences of 12 rows to be read.
        all.add(task(id, 3 + 3 * id as usize, 40, 0.0), 0).unwrap();
    }
    let mut seen = Seen::default();
    seen.run(&mut all);
    assert!(seen.guessed > 200 && seen.guessed == seen.held, "{} of {}", seen.held, seen.guessed);
}

#[test]
fn what_is_cancelled_holds_no_blocks_of_the_draft_model_either() {
    let mut all = generations(model(400), 400, draft(null(), 200, Policy::Always));
    let mut seen = Seen::default();
    for id in 0..6 {
        all.add(task(id, 6, 200, 0.0), 0).unwrap();
    }
    (0..16).for_each(|_| seen.turn(&mut all));
    for left in (0..6).rev() {
        let before = blocks(&mut all).0;
        assert!(all.cancel(left));
        assert!(blocks(&mut all).0 < before, "{left}");
    }
    assert_eq!(blocks(&mut all).0, 0);
}

#[test]
fn a_draft_model_that_fails_is_left_alone_and_harms_nobody() {
    let (plain, _) = twenty(400, Guesses::No);
    // Now and then: it goes on. Always: it is given up.
    for (fails, guesses) in [((0..1000).step_by(3).collect::<Vec<_>>(), true), ((0..1000).collect(), false)] {
        let (seen, _) = twenty(400, draft(null().failing(&fails), 200, Policy::Always));
        assert_eq!((&seen.texts, &seen.ends), (&plain.texts, &plain.ends));
        assert_eq!(seen.held > 0, guesses, "{} of {}", seen.held, seen.guessed);
    }
}

#[test]
fn generations_that_come_and_go_at_random_say_what_they_say_without_guesses() {
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    let mut dice = move |sides: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % sides
    };
    for round in 0..60 {
        let (model_blocks, draft_blocks) = (20 + dice(60) as usize, dice(60) as usize);
        let often = 1 + dice(6) as u32;
        let policy = if dice(2) == 0 { Policy::Always } else { Policy::Adaptive };
        let mut all =
            generations(model(model_blocks), model_blocks, draft(null().wrong(often), draft_blocks, policy));
        let mut alone = generations(model(400), 400, Guesses::No);
        let (mut seen, mut plain) = (Seen::default(), Seen::default());
        for id in 0..24 {
            let temperature = dice(2) as f32;
            let task = task(id, 1 + dice(30) as usize, 1 + dice(30) as u32, temperature);
            all.add(task.clone(), 0).unwrap();
            alone.add(task, 0).unwrap();
            (0..dice(4)).for_each(|_| seen.turn(&mut all));
            if dice(5) == 0 {
                all.cancel(dice(id + 1));
            }
        }
        seen.run(&mut all);
        plain.run(&mut alone);
        for (id, text) in &seen.texts {
            assert!(plain.texts[id].starts_with(text), "round {round}, {id}");
            if seen.ends.contains_key(id) {
                assert_eq!(text, &plain.texts[id], "round {round}, {id}");
            }
        }
    }
}

#[test]
fn nothing_is_guessed_where_it_does_not_pay_and_much_where_it_does() {
    const MS: fn(u64) -> Duration = Duration::from_millis;
    let costs = |mut null: Null| crate::warm::costs(&mut null, 64, &mut |_, _| Ok(())).unwrap();
    let run = |mut guesses: Guesses| {
        guesses.measured(costs(model(100).costing(MS(10), MS(1))));
        let mut all = generations(model(4000).costing(MS(10), MS(1)), 4000, guesses);
        let mut seen = Seen::default();
        for id in 0..40 {
            all.add(task(id, 6, 300, 0.0), 0).unwrap();
            seen.run(&mut all);
        }
        seen
    };
    let priced = |often: Option<u32>, base: Duration| {
        let null = || if let Some(often) = often { null().wrong(often) } else { null() }.costing(base, MS(1));
        let mut worth = Worth::new(Policy::Adaptive, 4, true);
        worth.draft = Some(costs(null()));
        let sizes = Sizes { blocks: 200, window: 1000, rows: 64 };
        Guesses::Draft(Box::new(Draft::new(Box::new(null()), sizes, worth)))
    };
    let plain = run(Guesses::No);
    let same = run(priced(None, MS(10)));
    let wrong = run(priced(Some(1), MS(2)));
    let right = run(priced(None, MS(2)));
    assert_eq!((&plain.texts, &plain.texts, &plain.texts), (&same.texts, &wrong.texts, &right.texts));
    // What it may lose once, and a hundredth of the time.
    assert!(wrong.seconds < 1.011 * plain.seconds + 0.3, "{} for {}", wrong.seconds, plain.seconds);
    assert!(wrong.guessed > 0, "it was tried");
    assert_eq!(same.guessed, 0, "one as dear as the model can only lose");
    assert!(right.seconds < 0.7 * plain.seconds, "{} for {}", right.seconds, plain.seconds);
}
