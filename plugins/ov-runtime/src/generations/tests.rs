//! The loop over a model that computes nothing: every text is the one that the task gets alone.

use std::collections::HashMap;

use cascadia_batching::Limits as Bounds;
use cascadia_plugin_api::sdk::{GrammarKind, Sampling};

use super::*;
use crate::backend::null::{Null, next};
use crate::speculate::Lookup;
use crate::worth::{Policy, Worth};

const VOCABULARY: usize = 97;
const BLOCK: usize = 4;

pub(super) fn task(id: u64, tokens: Vec<u32>, max_tokens: u32) -> Task {
    Task {
        id,
        group: id,
        generated_from: tokens.len() as u64,
        tokens,
        max_tokens,
        sampling: Sampling { seed: Some(id), ..Sampling::default() },
        ..Task::default()
    }
}

/// What the task gets alone.
fn alone(prompt: &[u32], tokens: usize) -> Vec<u32> {
    let mut all: Vec<i64> = prompt.iter().map(|&t| t.into()).collect();
    for _ in 0..tokens {
        all.push(next(all.iter().copied(), VOCABULARY).into());
    }
    all[prompt.len()..].iter().map(|&t| t as u32).collect()
}

fn prompt(seed: u64, length: usize) -> Vec<u32> {
    (0..length as u64).map(|at| ((seed * 31 + at * 7) % VOCABULARY as u64) as u32).collect()
}

fn generations(null: Null, blocks: usize, prefix: bool) -> Generations {
    let bounds = Bounds {
        block_size: BLOCK,
        blocks,
        rows: 16,
        rows_beside: 8,
        sequences: 8,
        waiting: 64,
        prefix,
        ..Bounds::default()
    };
    let limits =
        Limits { window: blocks * BLOCK, vocabulary: VOCABULARY, filler: crate::masks::Filler::default() };
    Generations::new(Box::new(null), Scheduler::new(bounds).unwrap(), limits, Guesses::No)
}

#[derive(Default)]
struct Seen {
    tokens: HashMap<u64, Vec<u32>>,
    ends: HashMap<u64, End>,
    cached: HashMap<u64, Option<u32>>,
}

impl Seen {
    fn take(&mut self, tray: &Tray) {
        for news in tray.news() {
            self.tokens.entry(news.task).or_default().extend(tray.tokens_of(news.task));
            if news.prompt_tokens.is_some() {
                assert!(self.cached.insert(news.task, news.cached_tokens).is_none(), "told once");
            }
            if news.end != End::No {
                assert!(self.ends.insert(news.task, news.end.clone()).is_none(), "{} ended twice", news.task);
            }
        }
    }
}

/// Turns until nothing lives; nothing may be held then.
fn run(all: &mut Generations) -> Seen {
    let mut seen = Seen::default();
    for _ in 0..10_000 {
        if all.is_idle() {
            let load = all.load();
            assert_eq!((load.running, load.waiting, load.held), (0, 0, 0));
            return seen;
        }
        drop(all.turn(0));
        seen.take(&all.tray);
    }
    panic!("it does not end");
}

#[test]
fn texts_do_not_hang_on_neighbours_a_small_cache_or_shared_beginnings() {
    for prefix in [false, true] {
        // 12 blocks of 4: each task needs up to 9, so they give way to each other all the time.
        let mut all = generations(Null::new(BLOCK, 12, VOCABULARY), 12, prefix);
        for id in 0..20 {
            all.add(task(id, prompt(id % 5, 5 + id as usize % 7), 12 + id as u32 % 13), 0).unwrap();
        }
        let seen = run(&mut all);
        for id in 0..20 {
            let expected = alone(&prompt(id % 5, 5 + id as usize % 7), 12 + id as usize % 13);
            assert_eq!((&seen.tokens[&id], &seen.ends[&id]), (&expected, &End::Length), "{id}");
        }
        assert!(all.load().preemptions > 0, "nobody gave way");
        assert!(prefix || all.load().hit_tokens == 0);
    }
}

#[test]
fn what_is_cancelled_is_gone_at_once_and_changes_no_other() {
    let mut all = generations(Null::new(BLOCK, 40, VOCABULARY), 40, true);
    for id in 0..8 {
        all.add(task(id, prompt(id, 6), 20), 0).unwrap();
    }
    let mut seen = Seen::default();
    for _ in 0..6 {
        all.turn(0).unwrap();
        seen.take(&all.tray);
    }
    let held = all.load().held;
    for id in [1, 4, 6] {
        assert!(all.cancel(id));
        assert!(!all.cancel(id), "it is gone");
    }
    assert!(all.load().held < held);
    let mut rest = run(&mut all);
    for id in [0, 2, 3, 5, 7] {
        let tokens = [seen.tokens.remove(&id).unwrap_or_default(), rest.tokens.remove(&id).unwrap()].concat();
        assert_eq!(tokens, alone(&prompt(id, 6), 20), "{id}");
    }
    assert_eq!(rest.tokens.len(), 0, "nothing of a cancelled one");
}

#[test]
fn a_stop_token_ends_and_is_named_and_an_end_waits_for_the_least_tokens() {
    let text = alone(&prompt(3, 5), 12);
    let mut all = generations(Null::new(BLOCK, 16, VOCABULARY), 16, true);
    let stop = text[4];
    let at = text.iter().position(|&t| t == stop).unwrap();
    all.add(Task { stop_tokens: vec![stop], ..task(1, prompt(3, 5), 12) }, 0).unwrap();
    let mut named = None;
    let mut tokens = Vec::new();
    while !all.is_idle() {
        all.turn(0).unwrap();
        tokens.extend(all.tray.tokens_of(1));
        named = named.or(all.tray.news().first().and_then(|news| news.stop_token));
    }
    assert_eq!((tokens.as_slice(), named), (&text[..at], Some(stop)));
}

#[test]
fn a_row_that_is_no_number_ends_its_own_task_only() {
    let poisoned = alone(&prompt(2, 5), 12)[3];
    let null = Null::new(BLOCK, 40, VOCABULARY).poisoned(poisoned);
    let mut all = generations(null, 40, true);
    let safe: Vec<u64> = (0..40)
        .filter(|&id| !alone(&prompt(id, 5), 12).contains(&poisoned) && !prompt(id, 5).contains(&poisoned))
        .take(4)
        .collect();
    all.add(task(1000, prompt(2, 5), 12), 0).unwrap();
    for &id in &safe {
        all.add(task(id, prompt(id, 5), 12), 0).unwrap();
    }
    let seen = run(&mut all);
    assert!(matches!(&seen.ends[&1000], End::Error(e) if e.message.contains("not a number")));
    assert_eq!(seen.tokens[&1000], alone(&prompt(2, 5), 12)[..4]);
    for id in safe {
        assert_eq!(seen.tokens[&id], alone(&prompt(id, 5), 12), "{id}");
    }
}

#[test]
fn a_step_that_fails_ends_its_own_tasks_and_three_in_a_row_end_the_engine() {
    let mut all = generations(Null::new(BLOCK, 40, VOCABULARY).failing(&[2]), 40, true);
    for id in 0..12 {
        all.add(task(id, prompt(id, 5), 10), 0).unwrap();
    }
    let seen = run(&mut all);
    let mut failed = 0;
    for id in 0..12 {
        match &seen.ends[&id] {
            End::Error(e) => {
                assert_eq!(e.code, code::BATCH_ABORTED);
                failed += 1;
            }
            _ => assert_eq!(seen.tokens[&id], alone(&prompt(id, 5), 10), "{id}"),
        }
    }
    assert!((1..12).contains(&failed), "{failed}");
    let mut all = generations(Null::new(BLOCK, 40, VOCABULARY).failing(&[0, 1, 2]), 40, true);
    for id in 0..2 {
        all.add(task(id, prompt(id, 5), 10), 0).unwrap();
        assert_eq!(all.turn(0), Ok(None));
    }
    all.add(task(2, prompt(2, 5), 10), 0).unwrap();
    assert!(all.turn(0).is_err_and(|e| e.message.contains("told to fail")));
    assert!(matches!(all.tray.news()[0].end, End::Error(_)), "it had its end all the same");
}

#[test]
fn a_deadline_that_has_passed_ends_a_task_with_its_own_code() {
    let mut all = generations(Null::new(BLOCK, 40, VOCABULARY), 40, true);
    all.add(Task { deadline_ns: Some(100), ..task(1, prompt(1, 5), 10) }, 0).unwrap();
    all.turn(50).unwrap();
    assert_eq!(all.tray.tokens_of(1).len(), 1);
    assert_eq!(all.turn(101), Ok(None));
    assert!(matches!(&all.tray.news()[0].end, End::Error(e) if e.code == code::DEADLINE_EXCEEDED));
    assert!(all.is_idle());
}

#[test]
fn the_probabilities_of_a_prompt_come_once_and_in_order_however_it_is_cut() {
    let mut all = generations(Null::new(BLOCK, 40, VOCABULARY), 40, true);
    // 40 tokens in chunks of at most 16; the model expects each of them.
    let text = [prompt(1, 3), alone(&prompt(1, 3), 37)].concat();
    for id in 0..2 {
        all.add(Task { prompt_logprobs: Some(0), logprobs: Some(2), ..task(id, text.clone(), 4) }, 0)
            .unwrap();
    }
    let mut told = Vec::new();
    while !all.is_idle() {
        all.turn(0).unwrap();
        told.extend(
            all.tray.chunks(0).filter(|c| !c.prompt_logprobs.is_empty()).map(|c| c.prompt_logprobs.to_vec()),
        );
        for chunk in all.tray.chunks(0) {
            assert_eq!((chunk.logprobs.len(), chunk.top.0.len(), chunk.top.2), (1, 2, 2));
            assert_eq!(chunk.top.0[0], chunk.tokens[0]);
        }
    }
    assert_eq!(told.len(), 2);
    for told in told {
        assert!(told.len() == 40 && told[0].is_nan());
        let likely = (-((1.0 + 96.0 * (-9.0_f64).exp()).ln())) as f32;
        assert!(told[3..].iter().all(|p| (p - likely).abs() < 1e-5), "{told:?}");
    }
}

#[test]
fn a_later_prompt_with_the_same_beginning_is_told_what_was_not_computed_again() {
    let mut all = generations(Null::new(BLOCK, 40, VOCABULARY), 40, true);
    all.add(task(1, prompt(1, 18), 4), 0).unwrap();
    assert_eq!(run(&mut all).cached[&1], Some(0));
    let longer = [prompt(1, 18), prompt(9, 3)].concat();
    all.add(task(2, longer.clone(), 4), 0).unwrap();
    all.add(Task { cache_salt: "other".to_owned(), ..task(3, longer.clone(), 4) }, 0).unwrap();
    let seen = run(&mut all);
    assert_eq!((seen.cached[&2], seen.cached[&3]), (Some(16), Some(0)));
    assert_eq!(seen.tokens[&2], alone(&longer, 4));
}

#[test]
fn guesses_change_no_text_and_save_steps_where_they_hold() {
    let null = || Null::new(BLOCK, 60, VOCABULARY).repeating();
    let mut steps = Vec::new();
    let mut texts = Vec::new();
    let lookup = Lookup::new(3, Worth::new(Policy::Always, 4, false));
    for guesses in [Guesses::No, Guesses::Lookup(Box::new(lookup))] {
        let mut all = generations(null(), 60, true);
        let guessed = !matches!(guesses, Guesses::No);
        all.guesses = guesses;
        for id in 0..2 {
            let stops = vec![prompt(9, 1)[0]];
            all.add(Task { stop_tokens: stops, ..task(id, prompt(id, 9), 60) }, 0).unwrap();
        }
        let mut seen = Seen::default();
        let (mut count, mut held) = (0, 0);
        while !all.is_idle() {
            held += all.turn(0).unwrap().map_or(0, |took| took.drafts.1);
            count += 1;
            seen.take(&all.tray);
        }
        assert_eq!(guessed, held > 0);
        steps.push(count);
        texts.push((0..2).map(|id| (seen.tokens[&id].clone(), seen.ends[&id].clone())).collect::<Vec<_>>());
    }
    assert_eq!(texts[0], texts[1]);
    assert!(steps[1] * 2 < steps[0], "{steps:?}");
}

#[test]
fn what_can_never_fit_is_refused_by_name() {
    let mut all = generations(Null::new(BLOCK, 4, VOCABULARY), 4, true);
    let limits = Limits { window: 64, vocabulary: VOCABULARY, filler: crate::masks::Filler::default() };
    let refusal = |task: &Task| limits.check(task).unwrap_err();
    assert_eq!(refusal(&task(1, prompt(1, 64), 1)).code, code::PROMPT_TOO_LONG);
    assert!(refusal(&task(1, vec![97], 1)).message.contains("token 97"));
    assert!(refusal(&task(1, vec![], 1)).message.contains("no tokens"));
    let hot = Sampling { temperature: f32::NAN, ..task(1, vec![1], 1).sampling };
    assert!(refusal(&Task { sampling: hot, ..task(1, vec![1], 1) }).message.contains("temperature"));
    for kind in [GrammarKind::Regex, GrammarKind::Mask] {
        let bound = Task { grammar: (kind, "a".to_owned()), ..task(1, vec![1], 1) };
        assert_eq!(refusal(&bound).code, code::UNSUPPORTED, "{kind:?}");
    }
    // Not even alone.
    all.limits.window = 1000;
    assert_eq!(all.add(task(1, prompt(1, 5), 30), 0).unwrap_err().code, code::OUT_OF_MEMORY);
    assert!(all.is_idle());
}
