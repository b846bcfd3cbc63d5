//! Whole samplers, with each kind of passes, against sampling that sorts everything.

mod state;

use super::*;
use crate::draw::random;
use crate::kernels::Kernel;
use crate::sampler::reference::{self, Slot};

/// One for each kind of passes that this processor has.
fn scratches() -> Vec<Scratch> {
    Kernel::ALL.into_iter().filter_map(Scratch::with).collect()
}

fn normal(seed: u64, at: usize) -> f64 {
    (0..12).map(|i| random(seed, at * 12 + i)).sum::<f64>() - 6.0
}

/// Rows of the shapes that models give, and of those that they should not.
fn rows(len: usize, seed: u64) -> Vec<(&'static str, Vec<f32>)> {
    let of = |f: &dyn Fn(usize) -> f64| (0..len).map(|at| f(at) as f32).collect::<Vec<f32>>();
    let spike = |at: usize| if at % 101 == 3 { 9.0 } else { 0.0 };
    vec![
        ("spikes over noise", of(&|at| normal(seed, at) * 2.5 + spike(at))),
        ("noise", of(&|at| normal(seed, at))),
        ("nearly flat", of(&|at| random(seed, at) * 0.1)),
        ("flat", of(&|_| -3.0)),
        ("ties", of(&|at| (normal(seed, at) * 2.0).round() + 0.0)),
        ("mostly impossible", of(&|at| if at % 7 == 0 { normal(seed, at) } else { f64::NEG_INFINITY })),
        ("steep", of(&|at| -(at as f64) * 3.0)),
        ("far below zero", of(&|at| normal(seed, at) * 3.0 - 1e4)),
    ]
}

fn settings() -> Vec<Settings> {
    let plain = Settings { temperature: 0.8, ..Settings::default() };
    let with = |change: &dyn Fn(&mut Settings)| {
        let mut s = plain.clone();
        change(&mut s);
        s
    };
    vec![
        plain.clone(),
        with(&|s| s.top_p = 0.95),
        with(&|s| (s.top_p, s.temperature) = (0.5, 2.0)),
        with(&|s| s.top_p = 0.0),
        with(&|s| s.top_p = 0.999_99),
        with(&|s| s.top_k = 40),
        with(&|s| s.top_k = 1),
        with(&|s| s.top_k = 700),
        with(&|s| s.top_k = u32::MAX),
        with(&|s| (s.top_k, s.top_p, s.min_p) = (50, 0.9, 0.02)),
        with(&|s| s.min_p = 0.05),
        with(&|s| s.min_p = 1.0),
        with(&|s| (s.min_p, s.top_p) = (0.001, 0.97)),
        with(&|s| s.typical_p = 0.9),
        with(&|s| (s.typical_p, s.top_k) = (0.3, 100)),
        with(&|s| s.temperature = 1e-4),
        with(&|s| s.temperature = 50.0),
    ]
}

fn row(logits: &[f32]) -> Row<'_> {
    Row { logits, mask: None }
}

/// Whether `u` chooses the token: up to the rounding of sums, and of one token more or less behind a share.
fn fits(slots: &[Slot], token: u32, u: f64) -> bool {
    let widest = slots.iter().filter(|s| s.to - s.from < 1e-3).map(|s| s.to - s.from).fold(0.0, f64::max);
    let slack = 2e-6 + widest;
    slots.iter().any(|s| s.token == token && s.from - slack <= u && u <= s.to + slack)
}

#[test]
fn every_draw_falls_on_the_token_that_sorting_everything_gives() {
    for len in [1, 2, 65, 1000, 5003] {
        for (name, logits) in rows(len, 11) {
            for (which, base) in settings().into_iter().enumerate() {
                let s = Settings { seed: 77 + which as u64, ..base };
                let exact: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
                let slots = reference::slots(&exact, &s);
                for mut scratch in scratches() {
                    let mut sampler = Sampler::new(s.clone(), len, &[], 0).unwrap();
                    for position in 0..12 {
                        let token = sampler.sample(row(&logits), &mut scratch).unwrap().token;
                        let u = random(s.seed, position);
                        assert!(
                            fits(&slots, token, u),
                            "{name} of {len}, {s:?}, {:?}: {token} at {u}",
                            scratch.kernel()
                        );
                        sampler.accept(token);
                    }
                }
            }
        }
    }
}

#[test]
fn a_whole_vocabulary_is_drawn_from_as_sorting_gives_it() {
    let len = 49_152;
    for (name, logits) in rows(len, 5) {
        let exact: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
        for top_p in [0.95, 1.0] {
            let s = Settings { temperature: 1.3, top_p, seed: 3, ..Settings::default() };
            let slots = reference::slots(&exact, &s);
            for mut scratch in scratches() {
                let mut sampler = Sampler::new(s.clone(), len, &[], 0).unwrap();
                for position in 0..4 {
                    let token = sampler.sample(row(&logits), &mut scratch).unwrap().token;
                    let u = random(3, position);
                    assert!(fits(&slots, token, u), "{name} {top_p} {:?}: {token}", scratch.kernel());
                    sampler.accept(token);
                }
            }
        }
    }
}

#[test]
fn bias_penalties_bans_and_masks_change_the_row_as_they_say() {
    let len = 300;
    let mask: Vec<u32> = (0..9).map(|at| (random(8, at) * 4e9) as u32).collect();
    let prompt = [5, 5, 9, 100, 299];
    let answer = [7, 9, 9, 31, 250];
    let plain = Settings { temperature: 1.0, top_p: 0.9, seed: 4, ..Settings::default() };
    let all = Settings {
        repetition_penalty: 1.4,
        frequency_penalty: 0.7,
        presence_penalty: -0.3,
        logit_bias: vec![(9, 6.0), (8, f32::NEG_INFINITY), (31, 5.0), (9, -1.0)],
        banned: vec![31, 30],
        banned_sequences: vec![vec![31, 250, 12], vec![12, 13], vec![14], vec![], vec![9, 250, 15]],
        ends: vec![2, 70_000],
        min_tokens: 6,
        ..plain.clone()
    };
    let few = Settings { allowed: (0..200).collect(), ..all.clone() };
    let tokens: Vec<u32> = prompt.iter().chain(&answer).copied().collect();
    for (name, logits) in rows(len, 21) {
        for (s, mask) in [
            (&plain, Some(&mask[..])),
            (&all, None),
            (&all, Some(&mask[..])),
            (&few, None),
            (&few, Some(&mask[..])),
        ] {
            let exact = reference::adjusted(&logits, mask, s, &prompt, &answer);
            let slots = reference::slots(&exact, s);
            let greedy = Settings { temperature: 0.0, ..s.clone() };
            let best = exact.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            for mut scratch in scratches() {
                let before: Vec<u32> = logits.iter().map(|x| x.to_bits()).collect();
                let sampler = Sampler::new(s.clone(), len, &tokens, prompt.len()).unwrap();
                let lent = Row { logits: &logits, mask };
                let token = sampler.sample(lent, &mut scratch).unwrap().token;
                assert!(fits(&slots, token, random(4, 5)), "{name} {s:?}: {token}");
                let sampler = Sampler::new(greedy.clone(), len, &tokens, prompt.len()).unwrap();
                let token = sampler.sample(lent, &mut scratch).unwrap().token;
                assert!((exact[token as usize] - best).abs() <= 1e-6 * best.abs(), "{name}: {token}");
                assert!(before.iter().eq(logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>().iter()));
            }
        }
    }
}

#[test]
fn log_probabilities_are_those_of_the_row_whatever_the_settings() {
    for len in [1, 3, 100, 20_000] {
        for (name, logits) in rows(len, 31) {
            let exact = reference::logprobs(&logits);
            let mut order: Vec<u32> = (0..len as u32).collect();
            order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
            for n in [0, 1, 20, MAX] {
                let s = Settings {
                    temperature: 3.0,
                    logit_bias: vec![(0, 4.0)],
                    alternatives: Some(n),
                    ..Settings::default()
                };
                for mut scratch in scratches() {
                    let sampler = Sampler::new(s.clone(), len, &[], 0).unwrap();
                    let choice = sampler.sample(row(&logits), &mut scratch).unwrap();
                    let scored = logprob::score(&logits, choice.token, n, &mut scratch).unwrap();
                    assert_eq!(Some(scored.logprob), choice.logprob);
                    assert_eq!(scored.alternatives, choice.alternatives);
                    near(scored.logprob, exact[choice.token as usize], name);
                    let told: Vec<u32> = choice.alternatives.iter().map(|a| a.token).collect();
                    assert_eq!(told, order[..n.min(len)], "{name} of {len}");
                    for a in &choice.alternatives {
                        near(a.logprob, exact[a.token as usize], name);
                    }
                }
            }
        }
    }
}

const MAX: usize = crate::MAX_ALTERNATIVES;

fn near(found: f32, exact: f64, name: &str) {
    let apart = (f64::from(found) - exact).abs();
    let same = found == f32::NEG_INFINITY && exact == f64::NEG_INFINITY;
    assert!(same || apart <= 1e-5 + 1e-7 * exact.abs(), "{name}: {found} for {exact}");
}
