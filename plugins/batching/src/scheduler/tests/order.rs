//! Who goes first, who gives way, who is refused, who is late.

use proptest::prelude::*;

use super::entry;
use super::rig::Rig;
use crate::{Id, Impossible, Limits, NoDrafts, Refused, Scheduler};

fn small() -> Limits {
    Limits {
        block_size: 4,
        blocks: 8,
        rows: 8,
        rows_beside: 4,
        sequences: 4,
        aging_ns: 100,
        ..Limits::default()
    }
}

fn ids(scheduler: &Scheduler) -> Vec<u64> {
    scheduler.batch().unwrap().parts.iter().map(|part| part.id.0).collect()
}

#[test]
fn limits_that_cannot_be_kept_are_named() {
    let refused = |limits: Limits| Scheduler::new(limits).err().unwrap();
    assert_eq!(refused(Limits { blocks: 0, ..small() }), Impossible::Zero { name: "blocks" });
    assert_eq!(refused(Limits { sequences: 9, ..small() }), Impossible::Rows { sequences: 9, rows: 8 });
    let large = Limits { blocks: 1 << 30, ..small() };
    assert_eq!(refused(large), Impossible::Large { blocks: 1 << 30, block_size: 4, sequences: 4 });
}

#[test]
fn what_can_never_fit_is_refused_and_what_just_fits_ends() {
    let mut rig = Rig::new(small());
    let refused = rig.add(entry(1, &[1; 20], 14)).unwrap_err();
    assert_eq!(refused, Refused::TooLarge { needed: 9, blocks: 8 });
    assert!(refused.to_string().contains("9 blocks, there are 8"));
    rig.add(entry(2, &[1; 20], 13)).unwrap();
    rig.run();
    assert_eq!(rig.done[&Id(2)].len(), 33);
}

#[test]
fn entries_that_contradict_themselves_are_refused() {
    let mut rig = Rig::new(small());
    rig.add(entry(1, &[1], 1)).unwrap();
    assert_eq!(rig.add(entry(1, &[1], 1)), Err(Refused::Known(Id(1))));
    assert!(matches!(rig.add(entry(2, &[], 1)), Err(Refused::Invalid(_))));
    assert!(matches!(rig.add(entry(2, &[1], 0)), Err(Refused::Invalid(_))));
    let mut behind = entry(2, &[1], 1);
    behind.generated_from = 2;
    assert!(matches!(rig.add(behind), Err(Refused::Invalid(_))));
}

#[test]
fn as_many_wait_as_may() {
    let mut rig = Rig::new(Limits { waiting: 2, sequences: 1, ..small() });
    rig.add(entry(1, &[1], 5)).unwrap();
    assert!(rig.step());
    rig.add(entry(2, &[2], 1)).unwrap();
    rig.add(entry(3, &[3], 1)).unwrap();
    assert_eq!(rig.add(entry(4, &[4], 1)), Err(Refused::Full { waiting: 2 }));
    rig.run();
}

#[test]
fn tokens_come_before_prompts_and_prompts_leave_them_time() {
    let mut rig = Rig::new(small());
    rig.add(entry(1, &[1, 2], 8)).unwrap();
    rig.step();
    rig.add(entry(2, &[3; 11], 2)).unwrap();
    rig.plan();
    let rows: Vec<(u64, u32)> =
        rig.scheduler.batch().unwrap().parts.iter().map(|part| (part.id.0, part.rows)).collect();
    assert_eq!(rows, [(1, 1), (2, 4)]);
    rig.finish();
    rig.run();
}

#[test]
fn prompts_take_all_rows_where_more_wait_for_them_than_decode() {
    let mut rig = Rig::new(small());
    rig.add(entry(1, &[1, 2], 8)).unwrap();
    rig.step();
    rig.add(entry(2, &[3; 11], 2)).unwrap();
    rig.add(entry(3, &[4; 11], 2)).unwrap();
    rig.plan();
    let rows: Vec<(u64, u32)> =
        rig.scheduler.batch().unwrap().parts.iter().map(|part| (part.id.0, part.rows)).collect();
    assert_eq!(rows, [(1, 1), (2, 7)]);
    rig.finish();
    rig.run();
}

#[test]
fn a_short_rest_of_a_prompt_is_no_step_of_its_own() {
    for (length, expected) in [(6, 6), (7, 4)] {
        let mut rig = Rig::new(small());
        rig.add(entry(1, &[1, 2], 8)).unwrap();
        rig.step();
        rig.add(entry(2, &vec![3; length], 2)).unwrap();
        rig.plan();
        assert_eq!(rig.scheduler.batch().unwrap().parts[1].rows, expected, "of {length}");
        rig.finish();
        rig.run();
    }
}

#[test]
fn a_prompt_alone_takes_all_rows() {
    let mut rig = Rig::new(small());
    rig.add(entry(1, &[3; 11], 2)).unwrap();
    rig.plan();
    assert_eq!(rig.scheduler.batch().unwrap().parts[0].rows, 8);
}

#[test]
fn higher_priority_goes_first_and_then_the_older() {
    let mut rig = Rig::new(Limits { sequences: 1, ..small() });
    for (id, priority) in [(1, 0), (2, 0), (3, 1), (4, -1), (5, 1)] {
        let mut entry = entry(id, &[id as u32; 2], 1);
        entry.priority = priority;
        rig.add(entry).unwrap();
    }
    let mut order = Vec::new();
    while rig.plan() {
        order.extend(ids(&rig.scheduler));
        rig.finish();
    }
    assert_eq!(order, [3, 5, 1, 2, 4]);
}

#[test]
fn waiting_long_enough_weighs_as_much_as_priority() {
    let late = |wait| {
        let mut rig = Rig::new(Limits { sequences: 1, ..small() });
        rig.add(entry(1, &[1; 2], 1)).unwrap();
        rig.now_ns += wait;
        let mut urgent = entry(2, &[2; 2], 1);
        urgent.priority = 3;
        rig.add(urgent).unwrap();
        rig.plan();
        ids(&rig.scheduler)
    };
    assert_eq!(late(299), [2]);
    assert_eq!(late(301), [1]);
}

#[test]
fn one_that_does_not_fit_yet_is_not_overtaken_by_smaller_ones() {
    let mut rig = Rig::new(small());
    rig.add(entry(1, &[1; 16], 4)).unwrap();
    rig.step();
    rig.add(entry(2, &[2; 16], 2)).unwrap();
    rig.add(entry(3, &[3], 2)).unwrap();
    while rig.live.contains_key(&Id(1)) {
        assert!(rig.plan());
        assert!(!ids(&rig.scheduler).contains(&3));
        rig.finish();
    }
    rig.run();
}

#[test]
fn who_is_let_in_leaves_a_block_for_each_that_runs() {
    let second = |tokens: usize| {
        let mut rig = Rig::new(small());
        rig.add(entry(1, &[1; 8], 10)).unwrap();
        rig.step();
        rig.add(entry(2, &vec![2; tokens], 2)).unwrap();
        rig.plan();
        ids(&rig.scheduler).contains(&2)
    };
    // The first holds three of eight blocks by then.
    assert!(second(16));
    assert!(!second(17));
}

#[test]
fn the_youngest_of_the_lowest_priority_gives_way_and_its_text_stays() {
    let mut rig = Rig::new(small());
    for (id, priority) in [(1, 0), (2, 1), (3, 0)] {
        let mut entry = entry(id, &[id as u32; 4], 16);
        entry.priority = priority;
        rig.add(entry).unwrap();
    }
    let mut lost = Vec::new();
    let mut before = Vec::new();
    while rig.step() {
        let running: Vec<u64> =
            rig.live.keys().filter(|id| rig.scheduler.state(**id).is_some()).map(|id| id.0).collect();
        lost.extend(before.iter().filter(|id| rig.live.contains_key(&Id(**id)) && !running.contains(id)));
        before = running;
    }
    assert_eq!(lost.first(), Some(&3));
    assert!(!lost.contains(&2));
    assert_eq!(rig.scheduler.load().preemptions as usize, lost.len());
    assert_eq!(rig.done.len(), 3);
}

#[test]
fn cancelling_gives_the_blocks_back_at_once() {
    let mut rig = Rig::new(Limits { prefix: false, ..small() });
    rig.add(entry(1, &[1; 16], 9)).unwrap();
    rig.step();
    assert_eq!(rig.scheduler.load().free, 4);
    rig.cancel(Id(1));
    assert_eq!(rig.scheduler.load().free, 8);
    assert!(!rig.scheduler.cancel(Id(1)));
}

#[test]
fn a_name_is_free_once_cancelled_even_while_its_rows_are_out() {
    let mut rig = Rig::new(small());
    rig.add(entry(1, &[1; 3], 9)).unwrap();
    assert!(rig.plan());
    rig.cancel(Id(1));
    rig.cached.clear();
    rig.add(entry(1, &[2; 3], 2)).unwrap();
    // The outcome of the old rows must not reach the new sequence.
    rig.scheduler.commit(&[crate::Outcome::Ended { accepted: 0 }]).unwrap();
    assert_eq!(rig.scheduler.tokens(Id(1)), Some(&[2, 2, 2][..]));
    rig.run();
    assert_eq!(rig.done.len(), 1);
}

#[test]
fn what_is_late_ends_before_work_is_spent_on_it() {
    let mut rig = Rig::new(Limits { sequences: 1, ..small() });
    let due = |id, deadline_ns| crate::Entry { deadline_ns, ..entry(id, &[id as u32; 2], 20) };
    rig.add(due(1, 50)).unwrap();
    rig.add(due(2, 40)).unwrap();
    assert_eq!(rig.scheduler.next_deadline_ns(), Some(40));
    rig.step();
    rig.now_ns = 40;
    rig.step();
    assert_eq!((rig.scheduler.expired(), rig.scheduler.next_deadline_ns()), (&[Id(2)][..], Some(50)));
    rig.now_ns = 60;
    assert!(!rig.plan());
    assert_eq!((rig.scheduler.expired(), rig.scheduler.next_deadline_ns()), (&[Id(1)][..], None));
    assert_eq!(rig.scheduler.load().held, 0);
}

#[test]
fn nothing_to_do_is_no_step() {
    let mut scheduler = Scheduler::new(small()).unwrap();
    assert_eq!(scheduler.plan(1, &mut NoDrafts), None);
    assert_eq!(scheduler.commit(&[]), Err(crate::Mismatch::None));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Sequences that fill the pool alone, together: each still comes to its end within so many steps as all of them
    /// need one after the other, each begun anew as often as there are others.
    #[test]
    fn sequences_that_thrash_make_progress(
        blocks in 2..9_usize,
        lengths in prop::collection::vec((1..12_usize, 1..30_usize), 2..6),
    ) {
        let mut rig = Rig::new(Limits { blocks, sequences: 6, ..small() });
        let mut most = 0;
        for (id, (length, more)) in lengths.iter().enumerate() {
            let more = (*more).min((blocks * 4 + 1).saturating_sub(*length));
            if more > 0 {
                rig.add(entry(id as u64, &vec![id as u32; *length], more)).unwrap();
                most += length + more;
            }
        }
        let sequences = rig.live.len();
        rig.run();
        prop_assert!(rig.steps <= most * sequences.max(1), "{} steps", rig.steps);
        prop_assert_eq!(rig.done.len(), sequences);
    }
}

#[test]
fn a_scheduler_may_move_to_another_thread_and_its_log_be_read_there() {
    let mut scheduler = Scheduler::new(small()).unwrap();
    let log = scheduler.log();
    let worker = std::thread::spawn(move || {
        scheduler.add(entry(1, &[1; 8], 1), 1).unwrap();
        scheduler.plan(1, &mut NoDrafts).unwrap();
        scheduler.commit(&[crate::Outcome::Ended { accepted: 0 }]).unwrap();
    });
    worker.join().unwrap();
    assert_eq!(log.read(1, 10).len(), 1);
}
