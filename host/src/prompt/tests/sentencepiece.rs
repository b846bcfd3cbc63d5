//! GGUF files of kind "llama": scores instead of merges, byte tokens, a space in front.

use super::{HARD, Header, decode, decoded};
use crate::prompt::Text;

const BYTES: u32 = 3;
const WORDS: u32 = BYTES + 256;

/// Pieces with their scores; the order of joins follows from the scores alone.
const PIECES: &[(&str, f32)] = &[
    ("▁", -10.0),
    ("a", -11.0),
    ("b", -12.0),
    ("c", -13.0),
    ("ab", -1.0),
    ("bc", -2.0),
    ("abc", -3.0),
    ("▁a", -4.0),
    ("aa", -5.0),
    ("▁abc", -7.0),
];

fn id(piece: &str) -> u32 {
    WORDS + PIECES.iter().position(|(p, _)| *p == piece).unwrap() as u32
}

fn model() -> Header {
    let mut tokens = vec!["<unk>".to_owned(), "<s>".to_owned(), "</s>".to_owned()];
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(PIECES.iter().map(|(piece, _)| (*piece).to_owned()));
    tokens.extend(["[INST]".to_owned(), "▁▁".to_owned()]);
    let mut kinds = vec![2, 3, 3];
    kinds.extend([6; 256]);
    kinds.extend([1; PIECES.len()]);
    kinds.extend([3, 4]);
    let mut scores = vec![0.0; 3 + 256];
    scores.extend(PIECES.iter().map(|(_, score)| *score));
    scores.extend([0.0, 0.0]);
    Header::default()
        .str("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", &tokens)
        .i32s("tokenizer.ggml.token_type", &kinds)
        .f32s("tokenizer.ggml.scores", &scores)
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2)
        .u32("tokenizer.ggml.unknown_token_id", 0)
}

fn load() -> Text {
    model().load().unwrap()
}

#[test]
fn the_best_score_joins_first_and_the_leftmost_among_equals() {
    let text = load();
    assert_eq!(text.describe(), ("llama", "sentencepiece"));
    let ids = |s: &str| text.encode(s, false).unwrap();
    // "ab" (-1) wins over "bc" and "▁a"; then "abc", then "▁abc".
    assert_eq!(ids("abc"), [id("▁abc")]);
    // "▁a" (-4) wins over "aa" (-5).
    assert_eq!(ids("aaa"), [id("▁a"), id("aa")]);
    assert_eq!(ids("baaa"), [id("▁"), id("b"), id("aa"), id("a")]);
    assert_eq!(ids(""), [0u32; 0]);
}

#[test]
fn unknown_characters_become_bytes() {
    let ids = load().encode("é", false).unwrap();
    assert_eq!(ids, [id("▁"), BYTES + 0xc3, BYTES + 0xa9]);
}

#[test]
fn special_tokens_are_cut_out_first_and_spaces_of_added_tokens_match() {
    let text = load();
    let inst = WORDS + PIECES.len() as u32;
    assert_eq!(text.encode("[INST]abc", false).unwrap(), [inst, id("▁abc")]);
    assert_eq!(text.encode("b  b", false).unwrap(), [id("▁"), id("b"), inst + 1, id("▁"), id("b")]);
    assert_eq!(text.encode("abc", true).unwrap(), [1, id("▁abc")]);
    assert_eq!(text.encode("<s>abc", true).unwrap(), [1, id("▁abc")]);
    assert_eq!(text.eos_ids(), [2]);
}

#[test]
fn the_space_in_front_is_taken_off_once_at_the_start_of_a_text() {
    let text = load();
    let ids = [1, id("▁abc"), id("▁abc"), BYTES + 0x41];
    assert_eq!(decoded(text.detokenizer(), &ids), "abc abcA");
    assert_eq!(decoded(text.detokenizer().continuing(), &ids), " abc abcA");
    assert_eq!(text.token_piece(id("▁abc")).unwrap(), b" abc");
    let plain = model().bool("tokenizer.ggml.add_space_prefix", false).load().unwrap();
    assert_eq!(decoded(plain.detokenizer(), &ids), " abc abcA");
    assert_eq!(plain.encode("abc", false).unwrap(), [id("abc")]);
}

#[test]
fn hard_texts_survive() {
    let plain = model().bool("tokenizer.ggml.add_space_prefix", false).load().unwrap();
    for hard in HARD.iter().filter(|hard| !hard.contains('▁')) {
        let ids = plain.encode(hard, false).unwrap();
        assert_eq!(decode(plain.detokenizer(), &ids).0, hard.as_bytes(), "{hard:?}");
    }
}

#[test]
fn long_texts_are_quick() {
    let text = load();
    let long = "abc aaa b".repeat(50_000);
    let ids = text.encode(&long, false).unwrap();
    assert_eq!(decoded(text.detokenizer(), &ids), long);
}

#[test]
fn missing_scores_are_named() {
    let header = Header::default()
        .str("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", &["a".to_owned()]);
    let error = header.load().unwrap_err().to_string();
    assert!(error.contains("tokenizer.ggml.scores is missing"), "{error}");
}
