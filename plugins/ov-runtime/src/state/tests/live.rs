//! The real library: a sequence moves between two engines in the middle of its text.
//!
//! Ignored where plain cargo runs, as `ffi/live.rs` is.

use cascadia_ov_ir::Manifest;
use sha2::{Digest, Sha256};

use super::*;
use crate::ffi::Model;
use crate::ffi::live::{FRANCE, exact, shim, smol};
use crate::state::weights::hex;

const BLOCKS: usize = 40;

/// An engine in whose blocks there was something before that is no number.
fn engine(properties: &[(String, String)]) -> Alone {
    let xml = smol();
    let folder = xml.parent().unwrap();
    let mut model = Model::open(&shim(), &xml, "CPU", properties).unwrap();
    model.allocate(BLOCKS).unwrap();
    for block in 0..BLOCKS {
        model.fill_block(block, 0xff).unwrap();
    }
    let form = Form {
        dtype: model.cache_type(),
        computes: model.property(c"INFERENCE_PRECISION_HINT").unwrap(),
        runtime: shim().version(),
        caches: model.cache_form(),
        weights: Weights::of(folder),
        rows: Form::rows(&model),
    };
    assert!(Manifest::open(folder).is_ok(), "its digests are known");
    Alone::of(Box::new(model), BLOCKS, form)
}

fn france() -> Vec<u32> {
    FRANCE.iter().map(|&token| token as u32).collect()
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn at_exact_a_text_that_moved_is_the_one_that_stayed_whatever_its_sampling() {
    let (here, there) = (engine(&exact()), engine(&exact()));
    assert_eq!(here.form.caches, "30xf32[3,32,64]+f32[3,32,64]");
    let alone = |engine: &Alone, id: u64, tokens: Vec<u32>, limit: u32| {
        engine.add(task(id, tokens, limit));
        engine.run();
        engine.text(id)
    };
    let beside = alone(&there, 1000, france()[..30].to_vec(), 30);
    for (kind, turns) in [(0, 9), (1, 27), (2, 14), (3, 20)] {
        let whole = Task { sampling: sampling(kind), ..task(kind, france(), 36) };
        here.add(whole.clone());
        here.add(task(100 + kind, france()[5..].to_vec(), 40));
        there.add(task(100 + kind, france()[..30].to_vec(), 30));
        here.turns(turns);
        there.turns(5);
        let said = here.text(kind);
        let saved = here.save(kind).unwrap();
        // Steps of the other go on while it comes.
        there.turns.set(1);
        there.restore(moved(&whole, 10 + kind, &said), &saved).unwrap();
        there.turns.set(0);
        here.run();
        there.run();
        assert_eq!(here.text(kind).len(), 36);
        assert!(said.len() > 5 && there.text(10 + kind).len() > 5);
        assert_eq!([said, there.text(10 + kind)].concat(), here.text(kind), "sampling {kind}");
        assert_eq!(there.text(100 + kind), beside, "who runs beside it is not touched");
    }
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn blocks_move_in_every_precision_with_what_belongs_to_them() {
    let types = [None, Some("bf16"), Some("u4")];
    for kept in types {
        let properties: Vec<(String, String)> =
            kept.map(|kind| ("KV_CACHE_PRECISION".to_owned(), kind.to_owned())).into_iter().collect();
        let (here, there) = (engine(&properties), engine(&properties));
        // It ends a few rows behind the beginning of a block: by rows of that only, where others were before.
        for turns in [9, 27] {
            let id = turns as u64;
            let whole = task(id, france(), 34);
            here.add(whole.clone());
            here.turns(turns);
            let said = here.text(id);
            let saved = here.save(id).unwrap();
            there.restore(moved(&whole, 100 + id, &said), &saved).unwrap();
            here.run();
            there.run();
            let joined = [said, there.text(100 + id)].concat();
            assert_eq!(joined, here.text(id), "{kept:?} {} after {turns}", here.form.caches);
        }
        let other = engine(&exact());
        let whole = task(50, france(), 40);
        here.add(whole.clone());
        here.turns(5);
        let saved = here.save(50).unwrap();
        let error = other.restore(moved(&whole, 51, &here.text(50)), &saved).unwrap_err();
        assert!(error.message.contains("dtype"), "{}", error.message);
        here.run();
    }
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn a_state_of_no_numbers_ends_its_own_task_and_leaves_no_trace() {
    let (here, there) = (engine(&exact()), engine(&exact()));
    let whole = task(1, france(), 40);
    here.add(whole.clone());
    here.turns(9);
    let said = here.text(1);
    let mut saved = here.save(1).unwrap();
    here.run();
    let tokens = 4 * (france().len() + said.len() - 1);
    saved.bytes[tokens..].fill(0xff);
    let saved = saved.with("digest", json!(hex(&Sha256::digest(&saved.bytes))));
    there.add(task(2, france(), 40));
    there.turns(4);
    there.restore(moved(&whole, 3, &said), &saved).unwrap();
    there.run();
    assert!(matches!(there.end(3), Some(End::Error(error)) if error.message.contains("not a number")));
    assert_eq!(there.text(2), here.text(1), "who runs beside it is not touched");
    // All blocks are used again by those who come now.
    for id in 4..14 {
        there.add(Task { cache_salt: id.to_string(), ..task(id, france(), 40) });
    }
    there.run();
    for id in 4..14 {
        assert_eq!(there.text(id), here.text(1), "{id}");
    }
}
