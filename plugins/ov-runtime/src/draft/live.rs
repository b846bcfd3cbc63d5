//! The real library and a real model that guesses for itself.
//!
//! Ignored where plain cargo runs: neither the wheels nor g++ are needed there.

use cascadia_batching::{Limits as Bounds, Scheduler};
use cascadia_plugin_api::sdk::Task;

use super::*;
use crate::asked::Limits;
use crate::ffi::live::{FRANCE, open};
use crate::generations::Generations;
use crate::guess::Guesses;
use crate::worth::Policy;

const BLOCKS: usize = 32;
const TASKS: u64 = 4;

/// Texts, steps, guesses and how many of these held.
fn answers(guesses: Guesses) -> (Vec<Vec<u32>>, usize, u32, u32) {
    let model = open(BLOCKS);
    let vocabulary = model.facts().vocabulary;
    let bounds = Bounds { blocks: BLOCKS, sequences: 8, ..Bounds::default() };
    let limits = Limits { window: BLOCKS * 32, vocabulary, filler: crate::masks::Filler::default() };
    let mut all = Generations::new(Box::new(model), Scheduler::new(bounds).unwrap(), limits, guesses);
    for id in 0..TASKS {
        let tokens: Vec<u32> = FRANCE.iter().skip(id as usize).map(|&token| token as u32).collect();
        let generated_from = tokens.len() as u64;
        all.add(Task { id, group: id, generated_from, tokens, max_tokens: 30, ..Task::default() }, 0)
            .unwrap();
    }
    let (mut texts, mut steps, mut made, mut held) = (vec![Vec::new(); TASKS as usize], 0, 0, 0);
    while !all.is_idle() {
        let took = all.turn(0).unwrap().unwrap_or_default();
        (steps, made, held) = (steps + 1, made + took.drafts.0, held + took.drafts.1);
        for (text, id) in texts.iter_mut().zip(0..) {
            text.extend(all.tray.tokens_of(id));
        }
    }
    if let Guesses::Draft(draft) = all.guesses() {
        assert_eq!(draft.blocks(), (0, BLOCKS));
    }
    (texts, steps, made, held)
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn a_model_that_guesses_for_itself_is_right_and_says_the_same_in_fewer_steps() {
    let (plain, many, ..) = answers(Guesses::No);
    let sizes = Sizes { blocks: BLOCKS, window: BLOCKS * 32, rows: 64 };
    let draft = Draft::new(Box::new(open(BLOCKS)), sizes, Worth::new(Policy::Always, 4, true));
    let (texts, few, made, held) = answers(Guesses::Draft(Box::new(draft)));
    assert_eq!(texts, plain);
    // A tie in the logits may fall the other way.
    assert!(made > 60 && held * 20 >= made * 19, "{held} of {made}");
    assert!(few * 3 < many, "{few} after {many}");
}
