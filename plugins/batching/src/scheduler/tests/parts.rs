//! What is in a batch, and what may be said of it.

use super::backend::plain;
use super::entry;
use super::rig::Rig;
use crate::{Batch, Entry, Id, Limits, Mismatch, NoDrafts, Outcome, Part, Refused, Scheduler};

fn limits() -> Limits {
    Limits { block_size: 4, blocks: 16, rows: 8, rows_beside: 8, sequences: 8, ..Limits::default() }
}

/// A scheduler in which sequence 1 has given its first token.
fn started(entry: Entry) -> Scheduler {
    let mut scheduler = Scheduler::new(limits()).unwrap();
    scheduler.add(entry, 1).unwrap();
    scheduler.plan(1, &mut NoDrafts).unwrap();
    scheduler.commit(&[Outcome::Token { accepted: 0, token: 50 }]).unwrap();
    scheduler
}

/// The same guesses for everybody.
struct Fixed(&'static [u32]);

impl crate::Drafts for Fixed {
    fn propose(&mut self, _: Id, tokens: &[u32], _: usize, out: &mut Vec<u32>) {
        assert_eq!(tokens.last(), Some(&50));
        out.extend(self.0);
    }
}

#[test]
fn a_batch_is_flat_arrays_of_numbers() {
    let mut scheduler = started(entry(1, &[7, 8, 9], 9));
    scheduler.add(entry(2, &[1, 2, 3, 4, 5, 6], 2), 1).unwrap();
    scheduler.add(entry(3, &[11; 9], 2), 1).unwrap();
    let batch = scheduler.plan(2, &mut NoDrafts).unwrap();
    let part = |id, first_row, rows, past, first_sampled, next| Part {
        id: Id(id),
        first_row,
        rows,
        past,
        first_sampled,
        scored: 0,
        scored_from: past,
        next,
    };
    let expected = Batch {
        ids: vec![50, 1, 2, 3, 4, 5, 6, 11],
        positions: vec![3, 0, 1, 2, 3, 4, 5, 0],
        past_lens: vec![3, 0, 0],
        subsequence_begins: vec![0, 1, 7, 8],
        block_indices: vec![0, 1, 2, 3],
        block_indices_begins: vec![0, 1, 3, 4],
        max_context_len: 6,
        sampled_rows: vec![0, 6],
        copies: vec![],
        parts: vec![part(1, 0, 1, 3, 0, 1), part(2, 1, 6, 0, 1, 1), part(3, 7, 1, 0, 2, 0)],
    };
    assert_eq!(*batch, expected);
}

#[test]
fn drafts_ride_behind_the_row_and_those_that_fail_leave_no_block() {
    let mut scheduler = started(entry(1, &[7, 8, 9], 9));
    let batch = scheduler.plan(1, &mut Fixed(&[60, 61, 62])).unwrap();
    assert_eq!((&batch.ids[..], &batch.sampled_rows[..]), (&[50, 60, 61, 62][..], &[0, 1, 2, 3][..]));
    assert_eq!(batch.blocks(0).len(), 2);
    let part = batch.parts[0];
    assert_eq!((part.drafts(), batch.drafts(&part)), (3, &[60, 61, 62][..]));
    assert_eq!(scheduler.load().held, 2);
    let over = Outcome::Token { accepted: 4, token: 1 };
    assert_eq!(scheduler.commit(&[over]), Err(Mismatch::Outcome { outcome: over, next: 4 }));
    scheduler.commit(&[Outcome::Token { accepted: 1, token: 70 }]).unwrap();
    assert_eq!(scheduler.tokens(Id(1)).unwrap(), [7, 8, 9, 50, 60, 70]);
    assert_eq!(scheduler.state(Id(1)).unwrap().positions, 5);
    assert_eq!(scheduler.load().held, 2);
}

#[test]
fn all_drafts_wrong_gives_the_surplus_block_back() {
    let mut scheduler = started(entry(1, &[7, 8], 9));
    scheduler.plan(1, &mut Fixed(&[60, 61])).unwrap();
    assert_eq!(scheduler.load().held, 2);
    scheduler.commit(&[Outcome::Token { accepted: 0, token: 70 }]).unwrap();
    assert_eq!(scheduler.load().held, 1);
}

#[test]
fn drafts_stop_before_the_last_token() {
    let mut scheduler = started(entry(1, &[7, 8, 9], 3));
    let batch = scheduler.plan(1, &mut Fixed(&[60, 61, 62])).unwrap();
    // Of three tokens one was given; a draft and the token behind it are the others.
    assert_eq!(batch.ids, [50, 60]);
    let last = Outcome::Token { accepted: 1, token: 70 };
    assert_eq!(scheduler.commit(&[last]), Err(Mismatch::Over { id: Id(1), most: 6 }));
    scheduler.commit(&[Outcome::Ended { accepted: 1 }]).unwrap();
    assert_eq!(scheduler.load().running, 0);
}

#[test]
fn outcomes_that_do_not_fit_change_nothing() {
    let mut scheduler = started(entry(1, &[7, 8, 9], 9));
    scheduler.add(entry(2, &[1; 12], 2), 1).unwrap();
    let batch = scheduler.plan(1, &mut NoDrafts).unwrap().clone();
    let token = Outcome::Token { accepted: 0, token: 1 };
    let cases = [
        (vec![token], Mismatch::Count { outcomes: 1, parts: 2 }),
        (vec![token, token], Mismatch::Outcome { outcome: token, next: 0 }),
        (vec![Outcome::Computed; 2], Mismatch::Outcome { outcome: Outcome::Computed, next: 1 }),
    ];
    for (outcomes, mismatch) in cases {
        assert_eq!(scheduler.commit(&outcomes), Err(mismatch));
        assert_eq!(scheduler.batch(), Some(&batch));
    }
    scheduler.commit(&[token, Outcome::Computed]).unwrap();
}

#[test]
fn rows_that_failed_leave_nothing_in_the_index() {
    let mut scheduler = Scheduler::new(limits()).unwrap();
    scheduler.add(entry(1, &[1; 8], 2), 1).unwrap();
    scheduler.plan(1, &mut NoDrafts).unwrap();
    scheduler.commit(&[Outcome::Failed]).unwrap();
    assert_eq!((scheduler.load().free, scheduler.load().running), (16, 0));
    assert_eq!(scheduler.plan(2, &mut NoDrafts), None);
}

#[test]
fn every_row_of_a_scored_prompt_is_wanted_and_none_comes_from_the_cache() {
    let mut rig = Rig::new(limits());
    rig.add(entry(1, &[4; 13], 2)).unwrap();
    rig.run();
    rig.add(Entry { score: true, ..entry(2, &[4; 13], 2) }).unwrap();
    rig.plan();
    let batch = rig.scheduler.batch().unwrap();
    assert_eq!(batch.sampled_rows, (0..8).collect::<Vec<i64>>());
    assert_eq!((batch.parts[0].scored, batch.parts[0].next), (8, 0));
    rig.finish();
    rig.plan();
    let batch = rig.scheduler.batch().unwrap();
    assert_eq!((batch.parts[0].scored_from, batch.parts[0].scored, batch.parts[0].next), (8, 4, 1));
    rig.finish();
    rig.run();
    assert_eq!(rig.cached[&Id(2)], 0);
}

#[test]
fn a_sequence_moves_with_its_blocks_and_computes_nothing_twice() {
    let mut rig = Rig::new(Limits { prefix: false, ..limits() });
    rig.add(entry(1, &[4; 13], 9)).unwrap();
    for _ in 0..4 {
        rig.step();
    }
    let rows = rig.rows;
    assert!(rig.migrate(Id(1), Id(2)));
    rig.run();
    assert_eq!(rig.rows - rows, 9 - 3);
    assert_eq!(rig.done[&Id(2)], plain(&[4; 13], 9));
}

#[test]
fn a_state_that_has_no_room_or_leaves_nothing_to_compute_is_refused() {
    let mut scheduler = started(entry(1, &[1; 7], 50));
    let mut other = entry(2, &[2; 60], 2);
    other.generated_from = 10;
    assert_eq!(scheduler.reserve(&other, 59).err(), Some(Refused::NoRoom { needed: 15, available: 14 }));
    other.tokens.truncate(56);
    assert!(matches!(scheduler.reserve(&other, 56), Err(Refused::Invalid(_))));
    let ticket = scheduler.reserve(&other, 55).unwrap();
    assert_eq!(scheduler.reserved(&ticket).map(<[u32]>::len), Some(14));
    assert_eq!(scheduler.load().held, 16);
    other.tokens.truncate(20);
    assert!(matches!(scheduler.restore(ticket, other, 19, 1), Err(Refused::Invalid(_))));
    scheduler.sweep();
    assert_eq!(scheduler.load().held, 2);
}

#[test]
fn a_waiting_sequence_and_one_in_a_step_have_no_state() {
    let mut scheduler = started(entry(1, &[1; 7], 50));
    scheduler.add(entry(2, &[1; 7], 5), 1).unwrap();
    assert_eq!(scheduler.state(Id(2)), None);
    assert_eq!(scheduler.state(Id(1)).map(|state| state.positions), Some(7));
    scheduler.plan(1, &mut NoDrafts).unwrap();
    assert_eq!(scheduler.state(Id(1)), None);
    scheduler.abandon();
    assert_eq!(scheduler.state(Id(1)).map(|state| state.blocks.len()), Some(2));
}

#[test]
fn drafts_take_no_block_that_a_running_sequence_may_need() {
    let mut scheduler = Scheduler::new(Limits { blocks: 3, ..limits() }).unwrap();
    scheduler.add(entry(1, &[1; 7], 5), 1).unwrap();
    scheduler.plan(1, &mut NoDrafts).unwrap();
    scheduler.commit(&[Outcome::Token { accepted: 0, token: 50 }]).unwrap();
    let batch = scheduler.plan(1, &mut Fixed(&[60, 61])).unwrap();
    assert_eq!(batch.ids, [50]);
}

#[test]
fn drafts_leave_rows_to_prompts() {
    let mut scheduler = started(entry(1, &[7, 8], 20));
    scheduler.add(entry(2, &[1; 12], 2), 1).unwrap();
    let batch = scheduler.plan(1, &mut Fixed(&[60; 10])).unwrap();
    let rows: Vec<u32> = batch.parts.iter().map(|part| part.rows).collect();
    assert_eq!(rows, [1 + 3, 4]);
}

#[test]
fn a_restored_prompt_is_scored_behind_its_positions_only() {
    let mut scheduler = Scheduler::new(limits()).unwrap();
    let entry = Entry { score: true, ..entry(1, &[1; 10], 5) };
    let ticket = scheduler.reserve(&entry, 5).unwrap();
    scheduler.restore(ticket, entry, 5, 1).unwrap();
    scheduler.preempt_last();
    let part = scheduler.plan(1, &mut NoDrafts).unwrap().parts[0];
    assert_eq!((part.past, part.rows, part.scored_from, part.scored), (0, 8, 5, 3));
}
