//! What a sampler remembers, what it refuses, and that nothing beside its own tokens moves it.

use super::*;

fn tokens_of(sampler: &mut Sampler, rows: &[Vec<f32>], scratch: &mut Scratch) -> Vec<u32> {
    rows.iter()
        .map(|logits| {
            let token = sampler.sample(row(logits), scratch).unwrap().token;
            sampler.accept(token);
            token
        })
        .collect()
}

fn noise(len: usize, n: usize) -> Vec<Vec<f32>> {
    (0..n).map(|i| (0..len).map(|at| normal(i as u64, at) as f32 * 2.0).collect()).collect()
}

fn lively() -> Settings {
    Settings {
        temperature: 1.1,
        top_p: 0.95,
        repetition_penalty: 1.2,
        frequency_penalty: 0.4,
        presence_penalty: 0.2,
        seed: 12,
        banned_sequences: vec![vec![1, 2]],
        ..Settings::default()
    }
}

#[test]
fn of_equal_logits_the_lowest_id_wins_with_every_kind_of_passes() {
    for len in [1usize, 5, 64, 65, 200, 3000] {
        for first in [0, len / 3, len - 1] {
            let mut logits: Vec<f32> = (0..len).map(|at| random(2, at) as f32).collect();
            logits[first] = 7.0;
            for at in (first + 1..len).step_by(3) {
                logits[at] = 7.0;
            }
            for mut scratch in scratches() {
                let sampler = Sampler::new(Settings::default(), len, &[], 0).unwrap();
                assert_eq!(sampler.sample(row(&logits), &mut scratch).unwrap().token, first as u32);
            }
        }
    }
    let zeros = [-1.0, -0.0, 0.0, -0.0];
    for mut scratch in scratches() {
        let sampler = Sampler::new(Settings::default(), 4, &[], 0).unwrap();
        assert_eq!(sampler.sample(row(&zeros), &mut scratch).unwrap().token, 1);
    }
}

#[test]
fn a_row_that_is_not_a_number_is_an_error_wherever_the_nan_stands() {
    for temperature in [0.0, 0.8] {
        for len in [1, 17, 700] {
            for at in [0, len / 2, len - 1] {
                let mut logits: Vec<f32> = (0..len).map(|i| random(3, i) as f32).collect();
                logits[at] = f32::NAN;
                let s = Settings { temperature, ..Settings::default() };
                for mut scratch in scratches() {
                    let sampler = Sampler::new(s.clone(), len, &[], 0).unwrap();
                    assert_eq!(sampler.sample(row(&logits), &mut scratch), Err(Error::NotANumber));
                    assert_eq!(logprob::score(&logits, 0, 1, &mut scratch), Err(Error::NotANumber));
                }
            }
        }
    }
}

#[test]
fn where_nothing_may_be_chosen_there_is_an_error() {
    let impossible = [f32::NEG_INFINITY; 40];
    let possible = [0.5; 40];
    for temperature in [0.0, 0.8] {
        let plain = Settings { temperature, ..Settings::default() };
        let banned = Settings { banned: (0..40).collect(), ..plain.clone() };
        let early = Settings { allowed: vec![3], ends: vec![3], min_tokens: 1, ..plain.clone() };
        for mut scratch in scratches() {
            let mut asked = |s: &Settings, logits: &[f32], mask: Option<&[u32]>| {
                let sampler = Sampler::new(s.clone(), 40, &[], 0).unwrap();
                sampler.sample(Row { logits, mask }, &mut scratch).map(|c| c.token)
            };
            assert_eq!(asked(&plain, &impossible, None), Err(Error::NothingAllowed));
            assert_eq!(asked(&banned, &possible, None), Err(Error::NothingAllowed));
            assert_eq!(asked(&early, &possible, None), Err(Error::NothingAllowed));
            assert_eq!(asked(&plain, &possible, Some(&[0, 0])), Err(Error::NothingAllowed));
            // A mask that is too short bans what it does not reach.
            assert_eq!(asked(&plain, &possible, Some(&[1 << 9])), Ok(9));
            assert_eq!(asked(&plain, &possible[..39], None), Err(Error::Length { found: 39, vocab: 40 }));
        }
    }
}

#[test]
fn plus_infinity_takes_everything_and_shares_it() {
    let mut logits = vec![2.0; 100];
    logits[40] = f32::INFINITY;
    logits[77] = f32::INFINITY;
    for mut scratch in scratches() {
        let greedy = Sampler::new(Settings::default(), 100, &[], 0).unwrap();
        assert_eq!(greedy.sample(row(&logits), &mut scratch).unwrap().token, 40);
        let s = Settings { temperature: 0.7, top_p: 0.9, alternatives: Some(3), ..Settings::default() };
        let mut sampler = Sampler::new(s, 100, &[], 0).unwrap();
        let mut drawn = [0; 100];
        for _ in 0..64 {
            let choice = sampler.sample(row(&logits), &mut scratch).unwrap();
            drawn[choice.token as usize] += 1;
            near(choice.logprob.unwrap(), 0.5f64.ln(), "half");
            let told: Vec<u32> = choice.alternatives.iter().map(|a| a.token).collect();
            assert_eq!(told, [40, 77, 0]);
            assert_eq!(choice.alternatives[2].logprob, f32::NEG_INFINITY);
            sampler.accept(choice.token);
        }
        assert!(drawn[40] > 15 && drawn[77] > 15 && drawn[40] + drawn[77] == 64, "{drawn:?}");
    }
}

#[test]
fn a_sampler_that_is_built_anew_or_rolled_back_goes_on_as_the_first() {
    let rows = noise(400, 20);
    for mut scratch in scratches() {
        let prompt = [3, 9, 9, 200];
        let mut first = Sampler::new(lively(), 400, &prompt, 4).unwrap();
        let all = tokens_of(&mut first, &rows, &mut scratch);
        for cut in [0, 1, 7, 19] {
            let tokens: Vec<u32> = prompt.iter().chain(&all[..cut]).copied().collect();
            let mut again = Sampler::new(lively(), 400, &tokens, 4).unwrap();
            assert_eq!(again.position(), cut);
            assert_eq!(tokens_of(&mut again, &rows[cut..], &mut scratch), all[cut..]);
            let mut back = first.clone();
            back.rollback(20 - cut);
            assert_eq!(tokens_of(&mut back, &rows[cut..], &mut scratch), all[cut..]);
        }
        first.rollback(1000);
        assert_eq!(first.position(), 0);
        assert_eq!(tokens_of(&mut first, &rows, &mut scratch), all);
    }
}

#[test]
fn neighbours_in_the_batch_change_nothing() {
    let rows = noise(400, 6);
    let mut scratch = Scratch::new();
    let other = Settings { seed: 13, top_p: 1.0, top_k: 300, ..lively() };
    let mut alone = Sampler::new(lively(), 400, &[], 0).unwrap();
    let wanted = tokens_of(&mut alone, &rows, &mut scratch);
    let mut mine = Sampler::new(lively(), 400, &[], 0).unwrap();
    let mut theirs = Sampler::new(other, 400, &[], 0).unwrap();
    let mut got = Vec::new();
    for logits in &rows {
        let mask = [u32::MAX; 13];
        let token = theirs.sample(Row { logits, mask: Some(&mask) }, &mut scratch).unwrap().token;
        theirs.accept(token);
        got.extend(tokens_of(&mut mine, std::slice::from_ref(logits), &mut scratch));
    }
    assert_eq!(got, wanted);
}

#[test]
fn verified_drafts_give_the_tokens_of_plain_decoding_however_many_are_right() {
    let rows = noise(400, 5);
    let lent = || rows.iter().map(|logits| row(logits));
    for temperature in [0.0, 1.1] {
        let s = Settings { temperature, alternatives: Some(2), ..lively() };
        for mut scratch in scratches() {
            let mut plain = Sampler::new(s.clone(), 400, &[1, 2], 2).unwrap();
            let wanted = tokens_of(&mut plain, &rows, &mut scratch);
            for right in 0..5 {
                let mut drafts = wanted[..4].to_vec();
                if right < 4 {
                    drafts[right] = (drafts[right] + 1) % 400;
                }
                let mut sampler = Sampler::new(s.clone(), 400, &[1, 2], 2).unwrap();
                let mut into = Vec::new();
                sampler.verify(lent(), &drafts, &mut scratch, &mut into).unwrap();
                let got: Vec<u32> = into.iter().map(|c| c.token).collect();
                assert_eq!(got, wanted[..right + 1]);
                assert!(into.iter().all(|c| c.logprob.is_some() && c.alternatives.len() == 2));
                assert_eq!(sampler.position(), right + 1);
                assert_eq!(tokens_of(&mut sampler, &rows[right + 1..], &mut scratch), wanted[right + 1..]);
            }
        }
    }
}

#[test]
fn verification_ends_at_an_end_token_and_at_a_row_that_failed() {
    let mut rows = noise(400, 4);
    let mut scratch = Scratch::new();
    let mut plain = Sampler::new(Settings::default(), 400, &[], 0).unwrap();
    let wanted = tokens_of(&mut plain, &rows, &mut scratch);
    let s = Settings { ends: vec![wanted[1]], ..Settings::default() };
    let mut sampler = Sampler::new(s.clone(), 400, &[], 0).unwrap();
    let mut into = Vec::new();
    sampler.verify(rows.iter().map(|r| row(r)), &wanted[..3], &mut scratch, &mut into).unwrap();
    assert_eq!(
        into.iter().map(|c| (c.token, c.ends)).collect::<Vec<_>>(),
        [(wanted[0], false), (wanted[1], true)]
    );
    // Before its time an end token is not chosen, and the draft that names it is refused.
    let mut sampler = Sampler::new(Settings { min_tokens: 2, ..s }, 400, &[], 0).unwrap();
    into.clear();
    sampler.verify(rows.iter().map(|r| row(r)), &wanted[..3], &mut scratch, &mut into).unwrap();
    assert_eq!(into.len(), 2);
    assert_ne!(into[1].token, wanted[1]);

    rows[1][3] = f32::NAN;
    let mut sampler = Sampler::new(Settings::default(), 400, &[], 0).unwrap();
    into.clear();
    let failed = sampler.verify(rows.iter().map(|r| row(r)), &wanted[..3], &mut scratch, &mut into);
    assert_eq!((failed, into.len(), sampler.position()), (Err(Error::NotANumber), 1, 1));
}

#[test]
fn a_token_outside_the_row_is_not_scored() {
    let mut scratch = Scratch::new();
    let failed = logprob::score(&[0.0; 4], 4, 0, &mut scratch);
    assert_eq!(failed, Err(Error::Unknown { token: 4, vocab: 4 }));
}

#[test]
fn settings_outside_their_ranges_are_refused_by_name() {
    let base = Settings::default;
    let cases = [
        (Settings { temperature: -0.1, ..base() }, "temperature"),
        (Settings { temperature: f32::NAN, ..base() }, "temperature"),
        (Settings { temperature: f32::INFINITY, ..base() }, "temperature"),
        (Settings { top_p: 1.1, ..base() }, "top_p"),
        (Settings { min_p: -0.1, ..base() }, "min_p"),
        (Settings { typical_p: f32::NAN, ..base() }, "typical_p"),
        (Settings { repetition_penalty: 0.0, ..base() }, "repetition_penalty"),
        (Settings { frequency_penalty: 1e30, ..base() }, "frequency_penalty"),
        (Settings { presence_penalty: f32::NAN, ..base() }, "presence_penalty"),
        (Settings { logit_bias: vec![(1, f32::INFINITY)], ..base() }, "logit_bias"),
        (Settings { logit_bias: vec![(40, 0.0)], ..base() }, "logit_bias names token 40"),
        (Settings { banned: vec![40], ..base() }, "banned names"),
        (Settings { banned_sequences: vec![vec![1, 40]], ..base() }, "banned_sequences"),
        (Settings { allowed: vec![40], ..base() }, "allowed"),
        (Settings { alternatives: Some(257), ..base() }, "257 alternatives"),
    ];
    for (settings, says) in cases {
        let refused = Sampler::new(settings, 40, &[], 0).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
}

#[test]
fn an_end_token_may_come_when_enough_tokens_came_before_it() {
    let mut logits = [0.0; 10];
    (logits[4], logits[6]) = (9.0, 5.0);
    let mut scratch = Scratch::new();
    let s = Settings { ends: vec![4], min_tokens: 2, ..Settings::default() };
    let mut sampler = Sampler::new(s, 10, &[4, 4, 4], 3).unwrap();
    assert_eq!(tokens_of(&mut sampler, &vec![logits.to_vec(); 3], &mut scratch), [6, 6, 4]);
}

#[test]
fn what_is_withdrawn_counts_no_more_and_what_the_prompt_has_counts_on() {
    let mut logits = [0.0; 10];
    (logits[4], logits[5], logits[6]) = (5.0, 4.5, 4.0);
    let mut scratch = Scratch::new();
    let s = Settings { repetition_penalty: 1.2, frequency_penalty: 1.0, ..Settings::default() };
    let mut sampler = Sampler::new(s, 10, &[4], 1).unwrap();
    let mut next = |sampler: &Sampler| sampler.sample(row(&logits), &mut scratch).unwrap().token;
    // 5 / 1.2 is less than 4.5.
    assert_eq!(next(&sampler), 5);
    sampler.accept(5);
    // 4.5 / 1.2 - 1 is less than 5 / 1.2.
    assert_eq!(next(&sampler), 4);
    sampler.accept(4);
    assert_eq!(next(&sampler), 6);
    sampler.rollback(1);
    assert_eq!(next(&sampler), 4);
    sampler.rollback(1);
    assert_eq!(next(&sampler), 5);
}

#[test]
fn an_infinite_bias_bans_even_what_is_infinitely_likely() {
    let mut logits = [0.0; 10];
    (logits[4], logits[6]) = (f32::INFINITY, 5.0);
    for mut scratch in scratches() {
        let s = Settings { logit_bias: vec![(4, f32::NEG_INFINITY)], ..Settings::default() };
        let sampler = Sampler::new(s, 10, &[], 0).unwrap();
        assert_eq!(sampler.sample(row(&logits), &mut scratch).unwrap().token, 6);
    }
}
