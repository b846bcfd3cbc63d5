//! States where blocks are few, peers give up, and tasks end meanwhile.

use super::*;

#[test]
fn a_state_without_room_is_refused_and_nothing_of_it_is_kept() {
    let here = Alone::new(60);
    let whole = task(1, prompt(1, 30), 30);
    here.add(whole.clone());
    here.turns(6);
    let saved = here.save(1).unwrap();
    let gone = moved(&whole, 2, &here.text(1));
    let there = Alone::new(20);
    there.add(task(9, prompt(9, 50), 8));
    there.turns(6);
    let before = there.load();
    let error = there.restore(gone.clone(), &saved).unwrap_err();
    assert_eq!((error.code, there.load()), (code::OUT_OF_MEMORY, before));
    there.run();
    there.restore(gone, &saved).unwrap();
    there.run();
    here.run();
    assert!(here.text(1).ends_with(&there.text(2)) && there.text(2).len() > 20);
}

#[test]
fn a_name_that_lives_is_refused() {
    let here = Alone::new(60);
    let whole = task(1, prompt(1, 10), 30);
    here.add(whole.clone());
    here.turns(3);
    let saved = here.save(1).unwrap();
    let error = here.restore(moved(&whole, 1, &here.text(1)), &saved).unwrap_err();
    assert_eq!(error.code, code::INVALID_CONFIG);
    here.run();
    assert_eq!(here.text(1).len(), 30);
}

#[test]
fn those_who_run_take_the_blocks_of_a_state_that_comes_slowly() {
    let here = Alone::new(60);
    let whole = task(1, prompt(1, 40), 30);
    here.add(whole.clone());
    here.turns(6);
    let saved = here.save(1).unwrap();
    let gone = moved(&whole, 2, &here.text(1));
    let there = Alone::new(20);
    let other = task(9, prompt(9, 8), 50);
    there.add(other.clone());
    there.turns(2);
    // It grows by more than there is beside the state, while that comes.
    there.turns.set(9);
    let error = there.restore(gone, &saved).unwrap_err();
    assert_eq!(error.code, code::OUT_OF_MEMORY);
    assert!(error.message.contains("needed by others"), "{}", error.message);
    there.run();
    let alone = Alone::new(60);
    alone.add(other);
    alone.run();
    assert_eq!((there.text(9), there.load().preemptions), (alone.text(9), 0));
}

#[test]
fn a_task_that_ends_or_gives_way_while_it_is_read_has_no_state() {
    let here = Alone::new(60);
    here.add(task(1, prompt(1, 30), 8));
    here.turns(3);
    here.turns.set(3);
    let error = here.save(1).unwrap_err();
    assert!(error.code == code::INVALID_CONFIG && error.message.contains("while its state was read"));
    // The second gives way to the first, comes in again, and has other blocks.
    let here = Alone::new(24);
    here.add(task(1, prompt(1, 30), 40));
    here.add(task(2, prompt(2, 30), 40));
    here.turns(12);
    here.turns.set(30);
    let error = here.save(2).unwrap_err();
    assert_eq!(error.code, code::INVALID_CONFIG, "{error:?}");
    here.run();
}

#[test]
fn who_gives_up_ends_the_call_and_nothing_else() {
    let here = Alone::new(60);
    let whole = task(1, prompt(1, 30), 30);
    here.add(whole.clone());
    here.turns(6);
    let all = here.save(1).unwrap();
    for enough in 0..all.chunks {
        let mut held = Held { enough: Some(enough), ..Held::default() };
        let error = save(&here, &here.form, 1, &mut held).unwrap_err();
        assert_eq!((error.code, held.chunks), (code::CANCELLED, enough));
    }
    let there = Alone::new(60);
    for lost in (0..all.bytes.len() as u64).step_by(7) {
        let gone = moved(&whole, 2, &here.text(1));
        let error = there.restore(gone, &Held { lost: Some(lost), ..all.clone() }).unwrap_err();
        assert_eq!((error.code, there.load().held), (code::NOT_CONNECTED, 0));
    }
    here.run();
}
