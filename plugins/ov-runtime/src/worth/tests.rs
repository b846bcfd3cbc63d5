//! What is guessed at which prices, and what guessing may lose.

use super::*;

/// Milliseconds by rows, as measured on two cores at f32.
const MEASURED: [(usize, u64); 12] = [
    (1, 129),
    (2, 165),
    (3, 170),
    (4, 201),
    (5, 280),
    (8, 384),
    (12, 400),
    (16, 405),
    (20, 545),
    (32, 678),
    (48, 1000),
    (80, 1540),
];

fn costs(per_mille: u64) -> Costs {
    let mut costs = Costs::default();
    for (rows, tenths) in MEASURED {
        costs.learn(rows, Duration::from_micros(tenths * 100 * per_mille / 1000));
    }
    costs
}

fn worth(draft: Option<u64>) -> Worth {
    let mut worth = Worth::new(Policy::Adaptive, 4, draft.is_some());
    worth.model = costs(1000);
    worth.draft = draft.map(costs);
    worth
}

fn offer(worth: &Worth, share: f32, lag: usize, room: usize) -> Offer {
    Offer { habit: Habit { share, ..worth.habit() }, room, most: room, lag, count: 0 }
}

/// Guesses of each where as many as are named decode, all with the same chance.
fn count(worth: &mut Worth, share: f32, decoding: usize) -> usize {
    let mut offers = vec![offer(worth, share, 0, 100); decoding];
    worth.on = false;
    worth.allot(&mut offers, decoding);
    offers.iter().map(|offer| offer.count).max().unwrap_or(0)
}

#[test]
fn fewer_are_guessed_beside_others_and_where_fewer_hold() {
    let mut free = worth(None);
    // Four rows are the best buy for one, ten are for two.
    assert_eq!([1, 2].map(|n| count(&mut free, 0.95, n)), [3, 4]);
    let half = [1, 4, 16].map(|n| count(&mut free, 0.5, n));
    assert!(half[0] >= 1 && half[1] <= 2 && half[2] == 0, "{half:?}");
    assert_eq!([1, 4, 16].map(|n| count(&mut free, 0.05, n)), [0, 0, 0]);
    for (room, most) in [(2, 2), (0, 0)] {
        let mut one = [offer(&free, 0.9, 0, room)];
        free.allot(&mut one, 1);
        assert_eq!(one[0].count, most, "no more than may come");
    }
}

#[test]
fn guessing_goes_on_where_it_would_not_begin() {
    let mut free = worth(None);
    let guesses = |free: &mut Worth, share| {
        let mut one = [offer(free, share, 0, 100)];
        free.allot(&mut one, 1);
        one[0].count
    };
    let begins = (0..100).map(|percent| percent as f32 / 100.0).find(|share| count(&mut free, *share, 1) > 0);
    let little = begins.unwrap() - 0.02;
    assert_eq!(count(&mut free, little, 1), 0);
    assert!(guesses(&mut free, 0.9) > 0 && guesses(&mut free, little) > 0);
    assert!(guesses(&mut free, 0.01) == 0 && guesses(&mut free, little) == 0);
}

#[test]
fn a_draft_model_as_dear_as_the_model_is_never_asked_and_a_cheap_one_is() {
    for share in [0.3, 0.7, 1.0] {
        assert_eq!([1, 2, 4, 8, 16].map(|n| count(&mut worth(Some(1000)), share, n)), [0; 5], "{share}");
    }
    let mut cheap = worth(Some(100));
    assert!(count(&mut cheap, 0.9, 1) >= 3);
    assert!(count(&mut cheap, 0.5, 1) < count(&mut cheap, 0.95, 1));
    let mut always = Worth::new(Policy::Always, 4, true);
    assert_eq!(count(&mut always, 0.0, 64), 4);
}

#[test]
fn a_long_text_is_read_only_where_what_comes_pays_for_it() {
    let mut cheap = worth(Some(200));
    let mut asked = |lag, room| {
        let mut one = [offer(&cheap, 0.9, lag, room)];
        cheap.allot(&mut one, 1);
        one[0].count
    };
    assert!(asked(40, 100) > 0 && asked(0, 2) > 0);
    assert_eq!(asked(40, 2), 0, "two more tokens do not");
    assert_eq!(asked(100_000, 100), 0);
    // Who has nothing to read guesses all the same, and as much as alone.
    let alone = count(&mut cheap, 0.9, 1);
    let mut two = [offer(&cheap, 0.9, 0, 100), offer(&cheap, 0.9, 100_000, 100)];
    cheap.allot(&mut two, 2);
    assert!(two[0].count > 0 && two[0].count <= alone && two[1].count == 0, "{two:?}");
}

/// Turns of one generation whose guesses hold or not; gives the time with and without guessing.
fn live(worth: &mut Worth, turns: usize, holds: bool) -> (f64, f64, usize) {
    let mut habit = worth.habit();
    let (mut spent, mut plain, mut guessed) = (0.0, 0.0, 0);
    for _ in 0..turns {
        let mut offers = [Offer { habit, room: 1000, most: 1000, lag: 0, count: 0 }];
        if worth.opens() {
            worth.allot(&mut offers, 1);
        }
        let [Offer { habit: after, count: k, .. }] = offers;
        habit = after;
        let held = if holds { k } else { 0 };
        let cost = |costs: &Costs, rows| costs.of(rows).unwrap_or(0.0);
        let infer = cost(&costs(1000), 1 + k);
        let draft = k as f64 * worth.draft.as_ref().map_or(0.0, |draft| cost(draft, 1));
        spent += infer + draft;
        plain += cost(&costs(1000), 1) * (held + 1) as f64;
        guessed += k;
        worth.learn(&mut habit, k as u32, held as u32);
        let (infer, draft) = (Duration::from_secs_f64(infer), Duration::from_secs_f64(draft));
        let turn = Turn { decoding: 1, rows: 1 + k, guesses: k, held, infer, draft };
        worth.settle(&turn, [&mut habit].into_iter());
    }
    (spent, plain, guessed)
}

#[test]
fn guesses_that_never_hold_cost_a_share_of_the_time_and_are_tried_again_now_and_then() {
    for draft in [100, 300] {
        let mut worth = worth(Some(draft));
        let (first, plain, _) = live(&mut worth, 1000, false);
        assert!(first - plain <= worth.full() + 0.03 * plain, "{first} for {plain}");
        let (later, plain, guessed) = live(&mut worth, 10_000, false);
        assert!(later <= 1.02 * plain, "{later} for {plain}");
        assert!(guessed > 0, "one day they may hold");
        let (better, plain, _) = live(&mut worth, 5000, true);
        assert!(better < 0.8 * plain, "they do now: {better} for {plain}");
    }
}

#[test]
fn an_empty_purse_ends_all_guessing_until_it_has_filled_and_reading_is_paid_from_it() {
    let mut worth = worth(Some(100));
    let mut habit = worth.habit();
    let full = worth.full();
    worth.lend(&mut habit, 2.0 * full);
    assert!(worth.opens());
    let mut next = [offer(&worth, 0.9, 40, 100)];
    worth.allot(&mut next, 1);
    assert_eq!(next[0].count, 0, "all of it is lent");
    worth.end(&habit);
    assert!(!worth.opens(), "nobody saved what it had cost");
    let mut turns = 0;
    while !worth.opens() {
        turns += 1;
        let turn = Turn { decoding: 1, rows: 1, infer: Duration::from_millis(13), ..Turn::default() };
        worth.settle(&turn, std::iter::empty());
    }
    // A hundredth of 13 ms each, from nothing but debts to half.
    assert!((4700..4900).contains(&turns), "{turns}");
    // One that saves pays for its own.
    let mut habit = worth.habit();
    worth.lend(&mut habit, 0.01);
    let turn = Turn {
        decoding: 1,
        rows: 5,
        guesses: 4,
        held: 4,
        infer: Duration::from_millis(28),
        ..Turn::default()
    };
    worth.settle(&turn, [&mut habit].into_iter());
    assert_eq!(habit.debt, 0.0);
}
