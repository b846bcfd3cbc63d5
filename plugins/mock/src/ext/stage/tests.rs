//! A whole pipeline without links: every batch walks from stage to stage in one loop.

use super::*;
use crate::fixture::task;

/// Runs stage 0 and two others until the task is over; `lose` takes the batch of that number out of the way.
fn answer(text: &str, window: usize, lose: Option<u64>) -> (String, usize) {
    let options = Options { stage_window: window, ..Options::default() };
    let mut head = Head::new(&options);
    let (mut middle, mut last) = (Tail::new(1, false, false), Tail::new(2, true, false));
    head.submit(task(1, text), false).unwrap();
    let (mut said, mut batches) = (Vec::new(), 0);
    for _ in 0..400 {
        head.answer();
        for piece in head.take_pieces() {
            let chunk = piece.chunk();
            said.extend(chunk.tokens.iter().map(|id| *id as u8));
            if chunk.finish != cascadia_plugin_api::sdk::Finish::No {
                return (String::from_utf8(said).unwrap(), batches);
            }
        }
        let asking = head.take_asking();
        let Some(batch) = head.plan(asking) else { continue };
        batches += 1;
        if lose == Some(batch.batch) {
            // The host has lost a link and mends it.
            head.abort(1);
            middle.abort(1, &[]);
            last.abort(1, &[]);
            continue;
        }
        middle.receive(batch).unwrap();
        let given = middle.step();
        given.refusals.iter().for_each(|r| head.refused(r));
        for batch in given.batches {
            last.receive(batch).unwrap();
            let given = last.step();
            given.refusals.iter().for_each(|r| head.refused(r));
            head.tokens(last.epoch, &given.tokens);
        }
    }
    panic!("no end; so far {}", String::from_utf8_lossy(&said));
}

#[test]
fn a_prompt_comes_back_through_every_stage() {
    assert_eq!(answer("hello, pipeline", 4, None).0, "hello, pipeline");
    let (whole, windows) = (answer("0123456789", 100, None), answer("0123456789", 3, None));
    assert_eq!(whole.0, windows.0);
    assert_eq!(windows.1 - whole.1, 3, "ten tokens in windows of three are three batches more");
}

#[test]
fn what_was_lost_is_computed_again_and_said_once() {
    for lost in [1, 2, 5, 9] {
        assert_eq!(answer("say it once", 4, Some(lost)).0, "say it once");
    }
}

#[test]
fn a_batch_that_goes_on_from_nothing_is_refused_whole() {
    let mut head = Head::new(&Options { stage_window: 2, ..Options::default() });
    head.submit(task(1, "abcd"), false).unwrap();
    let mut last = Tail::new(1, true, false);
    let mut plan = || {
        let asking = head.take_asking();
        head.plan(asking).unwrap()
    };
    let (_, second) = (plan(), plan());
    last.receive(second).unwrap();
    let given = last.step();
    assert_eq!((given.refusals[0].tasks.as_slice(), given.tokens.len(), last.len()), (&[1][..], 0, 0));
    head.refused(&given.refusals[0]);
    let asking = head.take_asking();
    let again = head.plan(asking).unwrap();
    assert_eq!((again.sequences[0].attempt, again.sequences[0].past), (2, 0));
}
