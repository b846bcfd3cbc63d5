//! What is computed once and used again.

use std::sync::Arc;

use super::backend::plain;
use super::entry;
use super::rig::Rig;
use crate::{BlockCopy, Entry, Id, Limits, Scope};

fn limits() -> Limits {
    Limits { block_size: 4, blocks: 16, rows: 8, rows_beside: 8, sequences: 8, ..Limits::default() }
}

/// A text in which no block is like another.
fn text(length: u32) -> Vec<u32> {
    (0..length).collect()
}

#[test]
fn a_prompt_that_was_computed_is_not_computed_again() {
    let mut rig = Rig::new(limits());
    rig.add(entry(1, &text(11), 2)).unwrap();
    rig.run();
    let before = rig.rows;
    rig.add(entry(2, &text(11), 2)).unwrap();
    rig.run();
    assert_eq!(rig.cached[&Id(2)], 8);
    assert_eq!(rig.rows - before, 3 + 1);
    let load = rig.scheduler.load();
    assert_eq!((load.query_tokens, load.hit_tokens), (22, 8));
}

#[test]
fn generated_text_is_found_too() {
    let mut rig = Rig::new(limits());
    rig.add(entry(1, &text(6), 8)).unwrap();
    rig.run();
    let spoken = plain(&text(6), 8);
    rig.add(entry(2, &spoken, 1)).unwrap();
    rig.run();
    // 14 tokens, of which the last was never computed: three whole blocks.
    assert_eq!(rig.cached[&Id(2)], 12);
}

#[test]
fn a_prompt_cached_to_its_end_computes_one_row_into_a_copy() {
    let mut rig = Rig::new(limits());
    rig.add(entry(1, &text(8), 2)).unwrap();
    rig.run();
    rig.add(entry(2, &text(8), 2)).unwrap();
    rig.plan();
    let batch = rig.scheduler.batch().unwrap();
    let [BlockCopy { from, to }] = batch.copies[..] else { panic!("{:?}", batch.copies) };
    assert_eq!((batch.ids.len(), batch.positions[0]), (1, 7));
    assert_eq!(batch.blocks(0)[1], to as i32);
    rig.finish();
    // The copy turned out to be what the index has, and is free again.
    assert_eq!(rig.scheduler.state(Id(2)).unwrap().blocks[1], from);
    rig.run();
    assert_eq!(rig.cached[&Id(2)], 7);
}

#[test]
fn a_prompt_cached_to_its_end_needs_no_copy_where_it_fills_the_pool() {
    let mut rig = Rig::new(Limits { blocks: 2, ..limits() });
    rig.add(entry(1, &text(8), 1)).unwrap();
    rig.run();
    rig.add(entry(2, &text(8), 1)).unwrap();
    rig.plan();
    let batch = rig.scheduler.batch().unwrap();
    assert_eq!((batch.copies.len(), batch.ids.len()), (0, 1));
    rig.finish();
    assert_eq!(rig.done.len(), 2);
    assert_eq!(rig.scheduler.load().cached, 2);
}

#[test]
fn a_step_that_failed_over_a_copy_is_planned_again() {
    let mut rig = Rig::new(limits());
    rig.add(entry(1, &text(8), 2)).unwrap();
    rig.run();
    rig.add(entry(2, &text(8), 5)).unwrap();
    rig.plan();
    let first = rig.scheduler.batch().unwrap().clone();
    rig.fail();
    assert_eq!(rig.scheduler.batch(), None);
    rig.plan();
    let again = rig.scheduler.batch().unwrap();
    assert_eq!((&again.ids, &again.positions, again.copies.len()), (&first.ids, &first.positions, 1));
    rig.finish();
    rig.run();
}

#[test]
fn choices_of_one_prompt_compute_it_once() {
    let mut rig = Rig::new(limits());
    for id in 0..4 {
        rig.add(entry(id, &text(21), 3)).unwrap();
    }
    rig.run();
    // 21 rows by the first; one row each by the others, since 20 positions are whole blocks; then two tokens each.
    assert_eq!(rig.rows, 21 + 3 + 4 * 2);
    assert_eq!(rig.scheduler.load().hit_tokens, 60);
}

#[test]
fn who_waits_for_a_shared_prompt_goes_on_when_its_computer_is_cancelled() {
    let mut rig = Rig::new(limits());
    rig.add(entry(1, &text(24), 3)).unwrap();
    rig.add(entry(2, &text(24), 3)).unwrap();
    rig.step();
    assert!(rig.scheduler.state(Id(2)).is_none());
    rig.cancel(Id(1));
    rig.step();
    assert_eq!(rig.cached[&Id(2)], 8);
    rig.run();
}

#[test]
fn nobody_waits_for_a_prompt_of_lower_priority() {
    let mut rig = Rig::new(limits());
    rig.add(entry(1, &text(24), 3)).unwrap();
    rig.step();
    rig.add(Entry { priority: 1, ..entry(2, &text(24), 3) }).unwrap();
    rig.plan();
    assert_eq!(rig.scheduler.batch().unwrap().parts[0].id, Id(2));
    rig.finish();
    rig.run();
    // Both computed the same blocks for a while; each text is held once all the same (the rig compares).
    assert_eq!(rig.done.len(), 2);
}

#[test]
fn scopes_share_nothing() {
    let mut rig = Rig::new(limits());
    let scoped = |id, salt: &str, adapter: &str| Entry {
        scope: Arc::new(Scope { salt: salt.into(), adapter: adapter.into() }),
        ..entry(id, &text(11), 2)
    };
    for (id, salt, adapter) in [(1, "a", ""), (2, "b", ""), (3, "", "a"), (4, "", ""), (5, "a", "")] {
        rig.add(scoped(id, salt, adapter)).unwrap();
        rig.run();
    }
    let cached: Vec<usize> = rig.cached.values().copied().collect();
    assert_eq!(cached, [0, 0, 0, 0, 8]);
}

#[test]
fn the_longest_unused_goes_first_and_ends_before_beginnings() {
    let mut rig = Rig::new(Limits { blocks: 8, ..limits() });
    let other: Vec<u32> = (100..112).collect();
    rig.add(entry(1, &text(12), 1)).unwrap();
    rig.run();
    rig.add(entry(2, &other, 1)).unwrap();
    rig.run();
    // Used again, so that the other is the older one.
    rig.add(entry(3, &text(12), 1)).unwrap();
    rig.run();
    assert_eq!((rig.scheduler.load().cached, rig.scheduler.load().free), (6, 2));
    rig.add(entry(4, &[77; 15], 1)).unwrap();
    rig.run();
    let scope = Scope::default();
    assert_eq!(rig.replay.longest(&scope, &text(12)), 12);
    assert_eq!(rig.replay.longest(&scope, &other), 4);
}

#[test]
fn one_that_gave_way_finds_most_of_its_text_again() {
    let mut rig = Rig::new(Limits { blocks: 9, ..limits() });
    for id in 1..=2 {
        rig.add(entry(id, &[id as u32; 8], 20)).unwrap();
    }
    rig.run();
    let load = rig.scheduler.load();
    assert!(load.preemptions > 0);
    let once = 2 * 27;
    assert!(rig.rows < once + 12, "{} rows where {once} were enough without giving way", rig.rows);
    assert_eq!(load.query_tokens, 16);
}

#[test]
fn what_is_forgotten_is_not_found_and_what_ran_is_not_kept() {
    let mut rig = Rig::new(limits());
    rig.add(entry(1, &text(12), 1)).unwrap();
    rig.run();
    rig.add(entry(2, &text(14), 6)).unwrap();
    rig.step();
    rig.scheduler.forget();
    rig.run();
    assert_eq!(rig.scheduler.load().cached, 0);
    rig.add(entry(3, &text(12), 1)).unwrap();
    rig.run();
    assert_eq!((rig.cached[&Id(3)], rig.scheduler.load().cached), (0, 3));
}

#[test]
fn without_the_prefix_cache_nothing_stays() {
    let mut rig = Rig::new(Limits { prefix: false, ..limits() });
    for id in 0..2 {
        rig.add(entry(id, &text(11), 2)).unwrap();
    }
    rig.run();
    assert_eq!(rig.rows, 2 * 12);
    assert_eq!(rig.scheduler.log().read(1, 10), []);
    assert_eq!(rig.scheduler.load().free, 16);
}

#[test]
fn texts_of_one_hash_cost_a_hit_and_no_wrong_answer() {
    let mut rig = Rig::new(limits());
    rig.add(entry(1, &text(12), 2)).unwrap();
    rig.add(entry(2, &[30; 12], 2)).unwrap();
    let of = |rig: &Rig, id| rig.scheduler.by_id[&Id(id)];
    let hashes = rig.scheduler.at(of(&rig, 1)).hashes.clone();
    let second = of(&rig, 2);
    rig.scheduler.at_mut(second).hashes = hashes;
    rig.run();
    assert_eq!(rig.cached[&Id(2)], 0);
    // The text is the plain one (the rig compares); its blocks are not indexed.
    assert_eq!(rig.scheduler.load().cached, 3);
}

#[test]
fn nobody_waits_for_blocks_that_will_not_be_kept() {
    let mut rig = Rig::new(limits());
    rig.add(entry(1, &text(24), 3)).unwrap();
    rig.step();
    rig.scheduler.forget();
    rig.add(entry(2, &text(24), 3)).unwrap();
    rig.step();
    rig.step();
    rig.step();
    assert!(rig.scheduler.state(Id(1)).is_some() && rig.scheduler.state(Id(2)).is_some());
    rig.run();
}
