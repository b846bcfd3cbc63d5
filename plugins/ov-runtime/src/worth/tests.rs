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
        costs.measured(rows, Duration::from_micros(tenths * 100 * per_mille / 1000));
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

/// Generations that decode together without end.
struct Room {
    habits: Vec<Habit>,
    /// Chance that a guess holds, in thousandths.
    chance: u64,
    /// What steps take of what was measured before, in thousandths.
    slow: u64,
    dice: u64,
    spent: f64,
    plain: f64,
    guessed: usize,
}

impl Room {
    fn new(worth: &Worth, count: usize, chance: u64) -> Room {
        let (habits, dice) = (vec![worth.habit(); count], 0x2545_f491_4f6c_dd1d);
        Room { habits, chance, slow: 1000, dice, spent: 0.0, plain: 0.0, guessed: 0 }
    }

    fn holds(&mut self) -> bool {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % 1000 < self.chance
    }

    /// One turn, which the machine holds up for so many seconds.
    fn turn(&mut self, worth: &mut Worth, stall: f64) {
        let n = self.habits.len();
        let mut offers: Vec<Offer> = self
            .habits
            .iter()
            .map(|&habit| Offer { habit, room: 1000, most: 1000, lag: 0, count: 0 })
            .collect();
        if worth.opens() {
            worth.allot(&mut offers, n);
        }
        let (mut guesses, mut held) = (0, 0);
        for (at, Offer { mut habit, count, .. }) in offers.iter().copied().enumerate() {
            let right = (0..count).take_while(|_| self.holds()).count();
            match count {
                // What is looked up shows whether it would have held.
                0 if worth.draft.is_none() => {
                    let would = self.holds();
                    worth.learn(&mut habit, 1, would.into());
                }
                _ => worth.learn(&mut habit, count as u32, right as u32),
            }
            (guesses, held) = (guesses + count, held + right);
            self.habits[at] = habit;
        }
        let rounds = offers.iter().map(|offer| offer.count).max().unwrap_or(0);
        let seconds = |costs: &Costs, rows| costs.of(rows).unwrap_or(0.0);
        let infer = seconds(&costs(self.slow), n + guesses);
        let draft = worth.draft.as_ref().map_or(0.0, |draft| rounds as f64 * seconds(draft, n));
        self.spent += infer + draft;
        self.plain += seconds(&costs(self.slow), n) * (n + held) as f64 / n as f64;
        self.guessed += guesses;
        let (infer, draft) = (Duration::from_secs_f64(infer + stall), Duration::from_secs_f64(draft));
        let turn = Turn { decoding: n, rows: n + guesses, guesses, held, infer, draft };
        worth.settle(&turn, self.habits.iter_mut());
    }

    /// How many times as fast as without guesses so many more turns are.
    fn speed(&mut self, worth: &mut Worth, turns: usize) -> f64 {
        (self.spent, self.plain, self.guessed) = (0.0, 0.0, 0);
        (0..turns).for_each(|_| self.turn(worth, 0.0));
        self.plain / self.spent
    }
}

#[test]
fn guesses_of_a_draft_model_that_never_hold_cost_little_and_are_tried_again_now_and_then() {
    for draft in [100, 300] {
        let mut worth = worth(Some(draft));
        let mut room = Room::new(&worth, 1, 0);
        room.speed(&mut worth, 1000);
        assert!(room.spent - room.plain <= worth.full() + 0.03 * room.plain, "{draft}");
        let later = room.speed(&mut worth, 10_000);
        assert!(later > 0.98, "{draft}: {later}");
        assert!(room.guessed > 0, "one day they may hold");
        room.chance = 1000;
        let better = room.speed(&mut worth, 5000);
        assert!(better > 1.25, "they do now: {better}");
    }
}

#[test]
fn generations_that_come_after_many_bad_ones_are_tried_too() {
    let mut worth = worth(Some(200));
    for _ in 0..200 {
        let mut room = Room::new(&worth, 1, 0);
        room.speed(&mut worth, 20);
        worth.end(&room.habits[0]);
    }
    let tried = (0..400).filter(|_| {
        let mut room = Room::new(&worth, 1, 900);
        room.speed(&mut worth, 20);
        worth.end(&room.habits[0]);
        room.guessed > 0
    });
    let tried = tried.count();
    assert!(tried > 200, "{tried} of 400");
}

#[test]
fn looked_up_guesses_never_make_the_rest_slower_whatever_steps_take() {
    for (count, chance) in [(1, 0), (1, 300), (4, 0), (4, 300), (4, 500), (16, 0), (16, 100), (16, 400)] {
        for slow in [700, 1000, 1600, 3000] {
            let mut worth = worth(None);
            let mut room = Room::new(&worth, count, chance);
            room.slow = slow;
            let speeds = [64, 64, 2000].map(|turns| room.speed(&mut worth, turns));
            let case = format!("{count} with {chance}, {slow}: {speeds:?}");
            assert!(speeds.iter().all(|speed| *speed >= 0.97), "{case}");
        }
    }
    // And where they hold they pay, at once.
    for (count, least) in [(1, 1.6), (4, 1.5), (16, 1.05)] {
        let mut worth = worth(None);
        let mut room = Room::new(&worth, count, 950);
        let speed = room.speed(&mut worth, 64);
        assert!(speed > least, "{count}: {speed}");
    }
}

#[test]
fn a_step_that_the_machine_held_up_does_not_end_all_guessing() {
    let mut worth = worth(None);
    let mut room = Room::new(&worth, 1, 900);
    room.speed(&mut worth, 100);
    for stall in [0.5, 3.0] {
        room.turn(&mut worth, stall);
        let speed = room.speed(&mut worth, 500);
        assert!(speed > 1.6, "{stall}: {speed}");
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
