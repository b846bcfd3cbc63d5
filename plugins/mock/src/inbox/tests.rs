//! Places, order, cancels and the load, with a batch but without a thread.

use super::*;
use crate::fixture::{run, run_of, task};
use crate::options::Options;

fn setup(slots: usize, max_waiting: usize) -> (Inbox, Batch) {
    (Inbox::new(slots, max_waiting, 100), Batch::new(&Options::default()))
}

fn step(inbox: &mut Inbox, batch: &mut Batch) -> Settled {
    inbox.hand_over(batch, 1).unwrap();
    batch.advance(1).unwrap();
    inbox.settle(batch)
}

fn running_and_waiting(inbox: &Inbox) -> (u32, u32) {
    (inbox.load().running, inbox.load().waiting)
}

#[test]
fn one_task_more_than_slots_and_places_is_refused() {
    let (mut inbox, mut batch) = setup(1, 1);
    inbox.put(run(1, "a b")).unwrap();
    inbox.put(run(2, "a b")).unwrap();
    assert_eq!(inbox.put(run(3, "a")).unwrap_err().code, code::QUEUE_FULL);
    step(&mut inbox, &mut batch);
    assert_eq!(running_and_waiting(&inbox), (1, 1));
    assert_eq!(inbox.put(run(2, "a")).unwrap_err().message, "1 tasks wait already");
    step(&mut inbox, &mut batch);
    let settled = step(&mut inbox, &mut batch);
    assert_eq!(running_and_waiting(&inbox), (0, 1), "the slot is free as soon as the finish is told");
    assert_eq!(settled, Settled { lost: 0, waiting: true });
    assert_eq!(inbox.put(run(2, "a")).unwrap_err().message, "task id 2 is in use");
    inbox.put(run(1, "a")).unwrap();
}

#[test]
fn no_place_to_wait_still_leaves_the_slots() {
    let (mut inbox, _) = setup(2, 0);
    inbox.put(run(1, "a")).unwrap();
    inbox.put(run(2, "a")).unwrap();
    assert_eq!(inbox.put(run(3, "a")).unwrap_err().code, code::QUEUE_FULL);
}

#[test]
fn the_load_counts_blocks_of_prompt_and_answer() {
    let (mut inbox, mut batch) = setup(4, 4);
    inbox.put(run(1, "fifteen letters")).unwrap();
    step(&mut inbox, &mut batch);
    assert_eq!((inbox.load().kv_blocks_used, inbox.load().kv_blocks_total), (1, 100));
    step(&mut inbox, &mut batch);
    assert_eq!(inbox.load().kv_blocks_used, 2);
    step(&mut inbox, &mut batch);
    assert_eq!(inbox.load().kv_blocks_used, 0);
}

#[test]
fn a_waiting_task_is_withdrawn_and_one_that_will_not_go_stays() {
    let (mut inbox, mut batch) = setup(1, 8);
    for (id, prompt) in [(1, "a b c"), (2, "a"), (3, "@mock {\"ignore_cancel\":true}\na")] {
        inbox.put(run(id, prompt)).unwrap();
    }
    assert_eq!([2, 3, 99].map(|id| inbox.cancel(id)), [None; 3]);
    step(&mut inbox, &mut batch);
    let ended: Vec<_> = batch.chunks().iter().filter(|c| c.ends()).map(|c| c.task).collect();
    assert_eq!(ended, [2]);
    assert_eq!(running_and_waiting(&inbox), (1, 1));
}

#[test]
fn a_larger_priority_runs_first_and_equals_in_order() {
    let (mut inbox, mut batch) = setup(1, 8);
    for (id, priority) in [(1, 0), (2, 0), (3, 5), (4, 5)] {
        let mut task = task(id, "");
        task.priority = priority;
        inbox.put(run_of(task, &Options::default())).unwrap();
    }
    let mut order = Vec::new();
    while inbox.load().waiting > 0 {
        step(&mut inbox, &mut batch);
        order.extend(batch.chunks().iter().map(|c| c.task));
        batch.pushed();
    }
    assert_eq!(order, [3, 4, 1, 2]);
}

#[test]
fn closing_ends_all_and_refuses_more() {
    let (mut inbox, mut batch) = setup(1, 8);
    inbox.put(run(1, "@mock {\"ignore_cancel\":true,\"stall_after\":0}")).unwrap();
    inbox.put(run(2, "a")).unwrap();
    step(&mut inbox, &mut batch);
    inbox.close();
    step(&mut inbox, &mut batch);
    assert_eq!(batch.chunks().iter().filter(|c| c.ends()).count(), 2);
    assert_eq!(running_and_waiting(&inbox), (0, 0));
    assert_eq!(inbox.put(run(3, "a")).unwrap_err().code, code::CLOSED);
}

#[test]
fn a_failed_engine_has_no_load_and_takes_nothing() {
    let (mut inbox, mut batch) = setup(1, 8);
    inbox.put(run(1, "a b")).unwrap();
    inbox.put(run(2, "a")).unwrap();
    step(&mut inbox, &mut batch);
    assert_eq!(inbox.fail(Error::backend("gone")), 2);
    assert_eq!(inbox.load(), Load { kv_blocks_total: 100, ..Load::default() });
    assert_eq!(inbox.put(run(3, "a")).unwrap_err().message, "gone");
    assert_eq!(inbox.hand_over(&mut batch, 1).unwrap_err().message, "gone");
    assert_eq!(inbox.cancel(1), None);
}
