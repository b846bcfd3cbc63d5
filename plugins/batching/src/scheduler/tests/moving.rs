//! Sequences that move: what they bring, what they may take, and what they must not leave behind.

use super::entry;
use super::rig::Rig;
use crate::{Entry, Id, Limits, Refused};

fn limits() -> Limits {
    Limits {
        block_size: 4,
        blocks: 16,
        rows: 8,
        rows_beside: 4,
        sequences: 4,
        waiting: 8,
        ..Limits::default()
    }
}

/// A rig with a sequence of 13 tokens that has said three more.
fn begun(limits: Limits) -> Rig {
    let mut rig = Rig::new(limits);
    rig.add(entry(1, &[4; 13], 9)).unwrap();
    for _ in 0..4 {
        rig.step();
    }
    rig
}

#[test]
fn nothing_that_came_from_elsewhere_is_found_by_others() {
    let mut rig = begun(limits());
    assert!(rig.send(Id(1), Id(2)));
    rig.scheduler.forget();
    rig.arrive(0);
    assert!(rig.live.contains_key(&Id(2)));
    rig.run();
    assert_eq!(rig.scheduler.load().cached, 0, "neither what came nor what was computed behind it is kept");
    rig.add(entry(3, &[4; 13], 2)).unwrap();
    rig.run();
    assert_eq!(rig.cached[&Id(3)], 0);
}

#[test]
fn a_state_on_its_way_gives_way_to_those_who_need_its_blocks() {
    let mut rig = begun(Limits { blocks: 6, prefix: false, ..limits() });
    assert!(rig.send(Id(1), Id(2)));
    assert_eq!(rig.scheduler.load().held, 4);
    // Five blocks: there are two.
    rig.add(entry(3, &[5; 9], 11)).unwrap();
    assert!(rig.step(), "who waits is let in");
    assert!(rig.scheduler.reserved(&rig.coming[0].ticket).is_none());
    rig.arrive(0);
    assert!(!rig.live.contains_key(&Id(2)), "it has no blocks any more");
    rig.run();
    assert_eq!(rig.scheduler.load().held, 0);
}

#[test]
fn one_that_runs_takes_the_blocks_of_a_state_before_anyone_gives_way() {
    let mut rig = begun(Limits { blocks: 6, prefix: false, ..limits() });
    assert!(rig.send(Id(1), Id(2)));
    // It begins with the two blocks that are left and grows beyond them.
    rig.add(entry(3, &[5; 7], 9)).unwrap();
    rig.run();
    assert_eq!((rig.scheduler.load().preemptions, rig.scheduler.load().held), (0, 0));
}

#[test]
fn a_state_that_does_not_come_leaves_no_block_behind() {
    let mut rig = begun(limits());
    assert!(rig.send(Id(1), Id(2)));
    assert_eq!(rig.scheduler.load().held, 4);
    rig.lose(0);
    rig.scheduler.sweep();
    rig.check();
    assert_eq!(rig.scheduler.load().held, 0);
}

#[test]
fn another_stay_has_another_number() {
    let mut rig = begun(limits());
    let stay = |rig: &Rig| rig.scheduler.state(Id(1)).map(|state| state.stay);
    let first = stay(&rig);
    rig.step();
    assert_eq!(stay(&rig), first);
    rig.scheduler.preempt_last();
    assert_eq!(stay(&rig), None);
    rig.step();
    assert!(stay(&rig) > first, "{first:?}");
}

#[test]
fn as_many_states_are_on_their_way_as_sequences_may_run() {
    let mut rig = begun(Limits { sequences: 2, ..limits() });
    let coming = |id| Entry { generated_from: 2, ..entry(id, &[1; 5], 2) };
    let _ticket = rig.scheduler.reserve(&coming(5), 4).unwrap();
    assert_eq!(rig.scheduler.reserve(&coming(6), 4).err(), Some(Refused::NoRoom { needed: 2, available: 0 }));
}
