//! The real library and a real model, with what `cargo xtask build` laid beside this test's folder.
//!
//! Ignored where plain cargo runs: neither the wheels nor g++ are needed there.

mod families;
mod precision;

use super::*;
use cascadia_ov_base::system::System;
use std::path::PathBuf;

/// `<|im_start|>` ... of "What is the capital of France?" with SmolLM2's template and system prompt.
pub(crate) const FRANCE: [i64; 37] = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182,
    2, 198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198,
];
/// "The capital of France is Paris.<|im_end|>"
const PARIS: [i64; 8] = [504, 3575, 282, 4649, 314, 7042, 30, 2];

fn beside() -> PathBuf {
    // target/PROFILE/deps/this
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf()
}

pub(crate) fn shim() -> Arc<Shim> {
    let beside = beside();
    let search = locate::Search { explicit: None, beside: &beside, site_packages: &[], cache: Path::new("") };
    let core = locate::core(&search).unwrap();
    let shim = locate::shim(&beside, "ov_runtime", core.build).unwrap();
    Shim::load(&System, &core.path, &shim).unwrap()
}

/// SmolLM2 as `ov-ir` compiles it; made once.
pub(crate) fn smol() -> PathBuf {
    compiled(false)
}

/// The same as the profile `fast` has it where `symmetric`.
fn compiled(symmetric: bool) -> PathBuf {
    let source = beside().join("../models/SmolLM2-135M-Instruct.Q4_1.gguf").canonicalize().unwrap();
    let target = cascadia_ov_ir::Target::Cache(beside().join("ov-runtime-models"));
    let request = cascadia_ov_ir::Request { symmetric, ..cascadia_ov_ir::Request::whole(source, target) };
    cascadia_ov_ir::compile(&request, &mut ()).unwrap().folder.join(cascadia_ov_ir::XML)
}

/// With what a block was filled before, the cache as the device likes it best.
fn answer(fill: u8) -> Vec<i64> {
    let mut model = Model::open(&shim(), &smol(), "CPU", &[]).unwrap();
    model.allocate(4).unwrap();
    (0..4).for_each(|block| model.fill_block(block, fill).unwrap());
    let mut seq = Seq { tokens: FRANCE.into(), past: 0, first: 1 };
    for _ in 0..PARIS.len() {
        step(&mut model, &mut [&mut seq], true);
    }
    seq.tokens
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn what_was_in_a_block_before_does_not_show_in_the_devices_own_precision() {
    assert_eq!(answer(0xff), answer(0));
}

pub(crate) fn exact() -> Vec<(String, String)> {
    [
        ("INFERENCE_PRECISION_HINT", "f32"),
        ("KV_CACHE_PRECISION", "f32"),
        ("DYNAMIC_QUANTIZATION_GROUP_SIZE", "0"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

pub(crate) fn open(blocks: usize) -> Model {
    let mut model = Model::open(&shim(), &smol(), "CPU", &exact()).unwrap();
    model.allocate(blocks).unwrap();
    model
}

/// A sequence with the blocks from `first` on.
struct Seq {
    tokens: Vec<i64>,
    past: usize,
    first: i32,
}

/// The logits behind each of `ids` from `from` on, which lie in the blocks from `first` on, computed `rows` at a time; what lies before
/// `from` is computed as one prompt.
fn logits(model: &mut Model, ids: &[i64], first: i32, from: usize, rows: usize) -> Vec<Vec<f32>> {
    let facts = model.facts();
    let (mut all, mut past) = (Vec::new(), 0);
    while past < ids.len() {
        let ahead = past < from;
        let end = if ahead { from } else { past.saturating_add(rows).min(ids.len()) };
        let held = end.div_ceil(facts.block_tokens) as i32;
        let sampled: Vec<i64> = if ahead { vec![] } else { (0..(end - past) as i64).collect() };
        let lent = model
            .infer(&Rows {
                ids: &ids[past..end],
                positions: &(past as i64..end as i64).collect::<Vec<_>>(),
                past: &[past as i32],
                row_begins: &[0, (end - past) as i32],
                blocks: &(first..first + held).collect::<Vec<_>>(),
                block_begins: &[0, held],
                sampled: &sampled,
                longest: end as i32,
            })
            .unwrap();
        all.extend(lent.values.chunks(facts.vocabulary).map(<[f32]>::to_vec));
        past = end;
    }
    all
}

/// The place of the largest.
fn best(row: &[f32]) -> usize {
    (0..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best })
}

/// KL divergence of the distribution that `q` stands for from that of `p`, in nats.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let logs = |row: &[f32]| -> Vec<f64> {
        let most = f64::from(row[best(row)]);
        let sum: f64 = row.iter().map(|x| (f64::from(*x) - most).exp()).sum();
        row.iter().map(|x| f64::from(*x) - most - sum.ln()).collect()
    };
    logs(p).iter().zip(logs(q)).map(|(p, q)| p.exp() * (p - q)).sum()
}

/// Computes what each has not computed yet, and appends the likeliest token; `false` asks for no logits.
fn step(model: &mut Model, seqs: &mut [&mut Seq], sampled: bool) {
    let (mut ids, mut positions, mut past, mut row_begins) = (vec![], vec![], vec![], vec![0]);
    let (mut blocks, mut block_begins, mut rows, mut longest) = (vec![], vec![0], vec![], 0);
    for seq in seqs.iter() {
        ids.extend(&seq.tokens[seq.past..]);
        positions.extend((seq.past..seq.tokens.len()).map(|p| p as i64));
        past.push(seq.past as i32);
        row_begins.push(ids.len() as i32);
        blocks.extend((0..seq.tokens.len().div_ceil(32) as i32).map(|n| seq.first + n));
        block_begins.push(blocks.len() as i32);
        longest = longest.max(seq.tokens.len() as i32);
        if sampled {
            rows.push(ids.len() as i64 - 1);
        }
    }
    let vocabulary = model.facts().vocabulary;
    let lent = model
        .infer(&Rows {
            ids: &ids,
            positions: &positions,
            past: &past,
            row_begins: &row_begins,
            blocks: &blocks,
            block_begins: &block_begins,
            sampled: &rows,
            longest,
        })
        .unwrap();
    assert_eq!(lent.values.len(), rows.len() * vocabulary);
    let chosen: Vec<i64> = lent.values.chunks(vocabulary).map(|row| best(row) as i64).collect();
    for (seq, token) in seqs.iter_mut().zip(chosen.into_iter().map(Some).chain(std::iter::repeat(None))) {
        seq.past = seq.tokens.len();
        seq.tokens.extend(token);
    }
}

fn prompt(n: usize) -> Vec<i64> {
    FRANCE.iter().copied().take(5 + 2 * n).chain([1000 + n as i64 % 4]).collect()
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn many_sequences_in_one_batch_get_the_tokens_that_each_gets_alone() {
    const TOKENS: usize = 24;
    let mut model = open(64);
    let facts = model.facts();
    assert_eq!((facts.layers, facts.block_tokens, facts.vocabulary, facts.cut), (30, 32, 49152, 1));
    assert_eq!((facts.block_bytes, model.cache_type()), (30 * 2 * 3 * 32 * 64 * 4, "f32".to_owned()));
    assert_eq!(model.property(c"KV_CACHE_PRECISION"), Ok("f32".to_owned()));
    let mut france = Seq { tokens: FRANCE.into(), past: 0, first: 3 };
    for _ in 0..PARIS.len() {
        step(&mut model, &mut [&mut france], true);
    }
    assert_eq!(france.tokens[FRANCE.len()..], PARIS);
    let alone: Vec<Vec<i64>> = (0..16)
        .map(|n| {
            let mut seq = Seq { tokens: prompt(n), past: 0, first: 40 };
            (0..TOKENS).for_each(|_| step(&mut model, &mut [&mut seq], true));
            seq.tokens
        })
        .collect();
    let mut seqs: Vec<Seq> =
        (0..16).map(|n| Seq { tokens: prompt(n), past: 0, first: 3 * n as i32 }).collect();
    // They come one after the other, so that prompts are computed beside decoding ones.
    for at in 0..TOKENS + 15 {
        let mut now: Vec<&mut Seq> =
            seqs.iter_mut().take(at + 1).skip((at + 1).saturating_sub(TOKENS)).collect();
        step(&mut model, &mut now, true);
    }
    for (seq, alone) in seqs.iter().zip(alone) {
        assert_eq!(seq.tokens, alone);
    }
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn a_prompt_in_chunks_a_copied_block_and_a_used_one_change_nothing() {
    let mut model = open(16);
    // What was in a block before, even what is no number, must not show.
    for block in 0..16 {
        model.fill_block(block, 0xff).unwrap();
    }
    let mut whole = Seq { tokens: FRANCE.into(), past: 0, first: 2 };
    let mut chunked = Seq { tokens: FRANCE[..20].into(), past: 0, first: 6 };
    step(&mut model, &mut [&mut chunked], false);
    chunked.tokens = FRANCE.into();
    for _ in 0..PARIS.len() {
        step(&mut model, &mut [&mut whole], true);
        step(&mut model, &mut [&mut chunked], true);
    }
    assert_eq!(whole.tokens[FRANCE.len()..], PARIS);
    assert_eq!(chunked.tokens[FRANCE.len()..], PARIS);
    // The first block by number, a copy of it by content.
    model.copy_block(2, 10).unwrap();
    let mut shared = Seq { tokens: FRANCE.into(), past: 32, first: 10 };
    for _ in 0..PARIS.len() {
        step(&mut model, &mut [&mut shared], true);
    }
    assert_eq!(shared.tokens[FRANCE.len()..], PARIS);
    assert!(model.copy_block(0, 16).unwrap_err().contains("no block 16"));
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn what_the_library_refuses_comes_back_as_its_words() {
    let shim = shim();
    assert!(shim.version().starts_with("20"), "{}", shim.version());
    assert_eq!(shim.check(false), Ok(()));
    let open = |xml: &Path, device: &str, properties: &[(String, String)]| {
        Model::open(&shim, xml, device, properties).err().unwrap_or_default()
    };
    assert!(open(Path::new("absent.xml"), "CPU", &[]).contains("absent.xml"));
    assert!(open(&smol(), "NPX", &[]).contains("NPX"));
    assert!(open(&smol(), "CPU", &[("COLOUR".to_owned(), "red".to_owned())]).contains("COLOUR"));
    let mut model = Model::open(&shim, &smol(), "CPU", &exact()).unwrap();
    let (one, begins) = ([1_i64], [0_i32, 1]);
    let rows = Rows {
        ids: &one,
        positions: &[0],
        past: &[0],
        row_begins: &begins,
        blocks: &[0],
        block_begins: &begins,
        sampled: &[0],
        longest: 1,
    };
    assert_eq!(model.infer(&rows).err().as_deref(), Some("the model has no cache yet"));
    assert!(model.allocate(usize::MAX / 2).unwrap_err().contains("memory"));
    model.allocate(1).unwrap();
    assert!(model.infer(&rows).is_ok());
    let outside = Rows { sampled: &[1], ..rows };
    assert_eq!(model.infer(&outside).err().as_deref(), Some("the arrays of the batch do not agree"));
}
