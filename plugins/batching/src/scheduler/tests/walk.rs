//! Random walks: whatever happens in whatever order, every text is the plain one and everything adds up after every call.

use std::sync::Arc;

use proptest::prelude::*;

use super::rig::Rig;
use crate::{Entry, Id, Limits, Refused, Scope};

#[derive(Debug, Clone)]
enum Act {
    Add(Add),
    /// One of the living, by place.
    Cancel(usize),
    CancelWhileOut(usize),
    Migrate(usize),
    /// A state sets out; one arrives; one does not.
    Send(usize),
    Arrive(usize),
    Lose(usize),
    Step(usize),
    Fail,
    Forget,
    Wait(u64),
}

#[derive(Debug, Clone)]
struct Add {
    /// Which of a few texts it begins with, how much of it, and what follows.
    text: u32,
    length: usize,
    own: Vec<u32>,
    more: usize,
    salt: bool,
    priority: i32,
    patience: Option<u64>,
    score: bool,
}

fn adds() -> impl Strategy<Value = Add> {
    let own = prop::collection::vec(0..3_u32, 0..4);
    let patience = prop::option::weighted(0.1, 1..40_u64);
    let rest = (prop::bool::weighted(0.2), -1..2_i32, patience, prop::bool::weighted(0.2));
    (0..2_u32, 0..24_usize, own, 1..14_usize, rest).prop_map(|(text, length, own, more, rest)| {
        let (salt, priority, patience, score) = rest;
        Add { text, length, own, more, salt, priority, patience, score }
    })
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => adds().prop_map(Act::Add),
        1 => (0..8_usize).prop_map(Act::Cancel),
        1 => (0..8_usize).prop_map(Act::CancelWhileOut),
        1 => (0..8_usize).prop_map(Act::Migrate),
        1 => (0..8_usize).prop_map(Act::Send),
        1 => (0..8_usize).prop_map(Act::Arrive),
        1 => (0..8_usize).prop_map(|at| if at > 4 { Act::Lose(at) } else { Act::Arrive(at) }),
        8 => (1..5_usize).prop_map(Act::Step),
        1 => Just(Act::Fail),
        1 => prop::bool::weighted(0.2).prop_map(|forget| if forget { Act::Forget } else { Act::Fail }),
        2 => (1..30_u64).prop_map(Act::Wait),
    ];
    prop::collection::vec(act, 1..60)
}

fn limits() -> impl Strategy<Value = Limits> {
    let sizes = (1..6_usize, 3..24_usize, 1..5_usize, 0..12_usize, 1..8_usize);
    (sizes, 1..6_usize, prop::bool::weighted(0.9)).prop_map(|(sizes, waiting, prefix)| {
        let (block_size, blocks, sequences, more_rows, rows_beside) = sizes;
        let rows = sequences + more_rows;
        let aging_ns = 10;
        Limits { block_size, blocks, rows, rows_beside, sequences, waiting, aging_ns, prefix, events: 10_000 }
    })
}

fn entry(add: &Add, id: u64, now_ns: u64) -> Entry {
    let shared = (0..add.length as u32).map(|place| (place * (add.text + 3) + add.text) % 11);
    let mut tokens: Vec<u32> = shared.chain(add.own.iter().copied()).collect();
    if tokens.is_empty() {
        tokens.push(5);
    }
    let salt = if add.salt { "another" } else { "" };
    Entry {
        id: Id(id),
        generated_from: tokens.len(),
        most: tokens.len() + add.more,
        tokens,
        scope: Arc::new(Scope { salt: salt.into(), adapter: String::new() }),
        priority: add.priority,
        deadline_ns: add.patience.map_or(0, |patience| now_ns + patience),
        score: add.score,
    }
}

fn walk(rig: &mut Rig, acts: &[Act]) {
    let one = |rig: &Rig, place: usize| rig.live.keys().nth(place % rig.live.len().max(1)).copied();
    for (number, act) in acts.iter().enumerate() {
        let id = number as u64;
        match act {
            Act::Add(add) => match rig.add(entry(add, id, rig.now_ns)) {
                Ok(()) => {}
                Err(Refused::TooLarge { needed, blocks }) => assert!(needed > blocks),
                Err(Refused::Full { waiting }) => assert_eq!(waiting, rig.scheduler.limits().waiting),
                Err(other) => panic!("{other}"),
            },
            Act::Cancel(place) => {
                if let Some(id) = one(rig, *place) {
                    rig.cancel(id);
                }
            }
            Act::CancelWhileOut(place) => {
                if rig.plan()
                    && let Some(id) = one(rig, *place)
                {
                    rig.cancel(id);
                    rig.finish();
                }
            }
            Act::Migrate(place) => {
                if let Some(from) = one(rig, *place) {
                    rig.migrate(from, Id(id));
                }
            }
            Act::Send(place) => {
                if let Some(from) = one(rig, *place) {
                    rig.send(from, Id(id));
                }
            }
            Act::Arrive(place) => rig.arrive(*place),
            Act::Lose(place) => rig.lose(*place),
            Act::Step(steps) => {
                for _ in 0..*steps {
                    rig.step();
                }
            }
            Act::Fail => {
                rig.plan();
                rig.fail();
            }
            Act::Forget => {
                rig.scheduler.forget();
                rig.check();
            }
            Act::Wait(time) => rig.now_ns += time,
        }
    }
    while !rig.coming.is_empty() {
        rig.arrive(0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_texts_are_the_plain_ones_and_everything_adds_up(limits in limits(), acts in acts()) {
        let mut rig = Rig::new(limits);
        walk(&mut rig, &acts);
        rig.run();
        prop_assert_eq!(rig.scheduler.load().held, 0);
    }

    #[test]
    fn drafts_right_and_wrong_change_no_text(limits in limits(), acts in acts(), most in 1..6_usize, wrong in 0..4_u32) {
        let mut rig = Rig::new(limits);
        rig.guess.most = most;
        rig.guess.wrong = wrong;
        walk(&mut rig, &acts);
        rig.run();
        prop_assert_eq!(rig.scheduler.load().held, 0);
    }
}
