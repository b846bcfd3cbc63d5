//! The ring and its numbers, and the picture beside it.

use super::*;

/// A log of 8 blocks of 2 tokens that keeps three events.
fn log() -> Log {
    Log::new(8, 2, 3)
}

fn store(log: &Log, parent: Option<u64>, blocks: &[(u32, u64)]) {
    let tokens: Vec<u32> = blocks.iter().flat_map(|(block, _)| [*block, *block]).collect();
    let depth = usize::from(parent.is_some());
    log.stored(9, &Run { scope: &Arc::default(), parent, depth, blocks, tokens: &tokens });
}

fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.number).collect()
}

#[test]
fn an_empty_log_says_nothing_and_its_snapshot_stands_for_event_0() {
    assert_eq!(log().read(1, 10), []);
    assert_eq!(log().snapshot(), (vec![], 0));
}

#[test]
fn the_oldest_events_go_and_the_numbers_show_it() {
    let log = log();
    for block in 0..5_u32 {
        store(&log, None, &[(block, u64::from(block) + 100)]);
    }
    assert_eq!(numbers(&log.read(1, 10)), [3, 4, 5]);
    assert_eq!(numbers(&log.read(0, 2)), [3, 4]);
    assert_eq!(numbers(&log.read(4, 1)), [4]);
    assert_eq!(numbers(&log.read(4, 1)), [4]);
    assert_eq!(log.read(6, 10), []);
    assert_eq!(log.read(u64::MAX, 10), []);
    assert_eq!(log.read(1, 0), []);
}

#[test]
fn events_say_what_came_and_went_whole() {
    let log = log();
    store(&log, None, &[(0, 100), (3, 101)]);
    log.removed(10, 3);
    log.cleared(11);
    let change: Vec<Change> = log.read(1, 10).into_iter().map(|event| event.change).collect();
    let stored = Change::Stored { parent: None, blocks: vec![100, 101], tokens: vec![0, 0, 3, 3] };
    assert_eq!(change, [stored, Change::Removed { blocks: vec![101] }, Change::Cleared]);
    assert_eq!(log.read(1, 10).iter().map(|event| event.at_ns).collect::<Vec<_>>(), [9, 10, 11]);
    assert_eq!(log.snapshot(), (vec![], 3));
}

#[test]
fn lists_of_dropped_events_come_back_empty() {
    let log = log();
    for turn in 0..20 {
        store(&log, None, &[(0, 100), (1, 101)]);
        log.removed(0, 1);
        log.removed(0, 0);
        let events = log.read(turn * 3 + 1, 3);
        assert_eq!(numbers(&events), [turn * 3 + 1, turn * 3 + 2, turn * 3 + 3]);
        let Change::Stored { blocks, tokens, .. } = &events[0].change else { panic!("{events:?}") };
        assert_eq!((blocks.len(), tokens.len()), (2, 4));
        assert_eq!(events[2].change, Change::Removed { blocks: vec![100] });
    }
    let inner = log.inner.lock();
    assert!(inner.spare_blocks.len() + inner.spare_tokens.len() <= 6, "dropped lists are used again");
}

#[test]
fn a_snapshot_holds_what_the_ring_has_lost_and_parents_come_first() {
    let log = log();
    store(&log, None, &[(5, 100)]);
    store(&log, Some(100), &[(2, 101), (1, 102)]);
    for _ in 0..4 {
        store(&log, None, &[(7, 107)]);
        log.removed(0, 7);
    }
    let (events, last) = log.snapshot();
    assert_eq!((last, numbers(&events)), (10, vec![10; 3]));
    let chain: Vec<(Option<u64>, u64, Vec<u32>)> = events
        .into_iter()
        .map(|event| match event.change {
            Change::Stored { parent, blocks, tokens } => (parent, blocks[0], tokens),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(chain, [(None, 100, vec![5, 5]), (Some(100), 101, vec![2, 2]), (Some(101), 102, vec![1, 1])]);
}
