//! GGUF files of kind "gpt2": 256 bytes, a few merges, a few special tokens.

use serde_json::json;

use super::{HARD, Header, decode, decoded};
use crate::prompt::detok::Pushed;
use crate::prompt::template::{ChatOptions, TemplateError};
use crate::prompt::{LoadError, pre};

const MERGES: &[&str] = &["h e", "l l", "he ll", "hell o", "Ġ w", "1 2", "12 3"];
const SPECIAL: &[&str] = &["<s>", "</s>", "<|im_start|>", "<|im_end|>"];
const FIRST_SPECIAL: u32 = 256 + 7;
const USER_DEFINED: u32 = FIRST_SPECIAL + 4;
const UNUSED: u32 = USER_DEFINED + 1;

/// GPT-2's alphabet, in byte order.
fn alphabet() -> Vec<String> {
    let mut moved = 256;
    let one = |byte: u8| {
        if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
            return char::from(byte).to_string();
        }
        moved += 1;
        char::from_u32(moved - 1).unwrap().to_string()
    };
    (0..=255u8).map(one).collect()
}

fn model(pre: Option<&str>) -> Header {
    let mut tokens = alphabet();
    tokens.extend(MERGES.iter().map(|m| m.replace(' ', "")));
    tokens.extend(SPECIAL.iter().map(ToString::to_string));
    tokens.push("<|é tool|>".to_owned());
    tokens.push("unused".to_owned());
    let mut kinds = vec![1; 256 + MERGES.len()];
    kinds.extend([3, 3, 3, 3, 4, 5]);
    let merges: Vec<String> = MERGES.iter().map(ToString::to_string).collect();
    let header = Header::default()
        .str("general.architecture", "llama")
        .str("general.name", "Tiny")
        .u32("llama.context_length", 512)
        .str("tokenizer.ggml.model", "gpt2")
        .strings("tokenizer.ggml.tokens", &tokens)
        .i32s("tokenizer.ggml.token_type", &kinds)
        .strings("tokenizer.ggml.merges", &merges)
        .u32("tokenizer.ggml.bos_token_id", FIRST_SPECIAL)
        .u32("tokenizer.ggml.eos_token_id", FIRST_SPECIAL + 1);
    match pre {
        Some(pre) => header.str("tokenizer.ggml.pre", pre),
        None => header,
    }
}

#[test]
fn the_facts_of_the_file_are_told() {
    let text = model(Some("smollm")).load().unwrap();
    assert_eq!(text.describe(), ("gpt2", "smollm"));
    assert_eq!(text.vocab_size(), 269);
    assert_eq!(text.context_length(), Some(512));
    assert_eq!(text.model_name(), Some("Tiny"));
    assert_eq!(text.eos_ids(), [FIRST_SPECIAL + 1, FIRST_SPECIAL + 3]);
    assert!(text.is_special(FIRST_SPECIAL) && !text.is_special(USER_DEFINED) && !text.is_special(9999));
    assert_eq!(text.token_piece(260).unwrap(), b" w");
    assert_eq!(text.token_piece(FIRST_SPECIAL + 2).unwrap(), b"<|im_start|>");
    assert_eq!(text.token_piece(9999), None);
    assert_eq!(model(None).load().unwrap().describe(), ("gpt2", "default"));
}

#[test]
fn merges_and_words_follow_the_pre_tokenizer() {
    let digits = |pre| model(Some(pre)).load().unwrap().encode("123", false).unwrap();
    assert_eq!(digits("smollm"), [0x31, 0x32, 0x33]);
    assert_eq!(digits("gpt-2"), [262]);
    assert_eq!(digits("llama-bpe"), [262]);
    let text = model(Some("smollm")).load().unwrap();
    let bytes = |s: &str| s.bytes().map(u32::from).collect::<Vec<_>>();
    assert_eq!(text.encode("hello w", false).unwrap(), [259, 260]);
    assert_eq!(text.encode("é", false).unwrap(), bytes("é"));
}

#[test]
fn hard_texts_survive_every_pre_tokenizer() {
    for name in pre::names().split(", ") {
        let text = model(Some(name)).load().unwrap();
        for hard in HARD {
            let ids = text.encode(hard, false).unwrap();
            let got = decoded(text.detokenizer(), &ids);
            if name.starts_with("qwen") && hard.contains('\u{301}') {
                assert!(got.starts_with('é'), "composed by {name}");
            } else {
                assert_eq!(&got, hard, "{name}");
            }
        }
    }
}

#[test]
fn written_special_tokens_become_ids_and_are_hidden_again() {
    let text = model(Some("smollm")).load().unwrap();
    let ids = text.encode("<|im_start|>hello<|im_end|><|é tool|>", false).unwrap();
    assert_eq!(ids, [FIRST_SPECIAL + 2, 259, FIRST_SPECIAL + 3, USER_DEFINED]);
    assert_eq!(decoded(text.detokenizer(), &ids), "hello<|é tool|>");
    assert_eq!(decoded(text.detokenizer().showing_special(), &ids), "<|im_start|>hello<|im_end|><|é tool|>");
    let mut state = text.detokenizer();
    let mut out = Vec::new();
    assert_eq!(state.push(UNUSED, &mut out), Pushed::Hidden);
    assert_eq!(state.push(9999, &mut out), Pushed::Unknown);
    assert_eq!(state.push(u32::MAX, &mut out), Pushed::Unknown);
    assert_eq!((out.len(), state.unknown()), (0, 2));
}

#[test]
fn a_token_may_end_inside_a_character() {
    let text = model(Some("smollm")).load().unwrap();
    let ids = text.encode("€", false).unwrap();
    let (mut state, mut out) = (text.detokenizer(), Vec::new());
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(state.push(*id, &mut out), Pushed::Text);
        assert_eq!(out, "€".as_bytes()[..=n]);
    }
}

#[test]
fn bos_goes_in_front_once_where_the_model_says_so() {
    let ids = |header: Header, raw: &str, add| header.load().unwrap().encode(raw, add).unwrap();
    let said = |value| model(Some("smollm")).bool("tokenizer.ggml.add_bos_token", value);
    assert_eq!(ids(said(true), "hello", true), [FIRST_SPECIAL, 259]);
    assert_eq!(ids(said(true), "<s>hello", true), [FIRST_SPECIAL, 259]);
    assert_eq!(ids(said(true), "hello", false), [259]);
    assert_eq!(ids(said(false), "hello", true), [259]);
    assert_eq!(ids(model(Some("smollm")), "hello", true), [259]);
    // Llama 3 has it unless the file denies it.
    assert_eq!(ids(model(Some("llama-bpe")), "hello", true), [FIRST_SPECIAL, 259]);
    assert_eq!(ids(said(true), "", true), [FIRST_SPECIAL]);
}

#[test]
fn a_chat_is_rendered_with_the_files_template() {
    let chat = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}";
    let text = model(Some("smollm")).str("tokenizer.chat_template", chat).load().unwrap();
    let rendered =
        text.render_chat(&[json!({"role": "user", "content": "hello"})], &ChatOptions::new(0)).unwrap();
    assert_eq!(rendered, "<s><|im_start|>hello<|im_end|>");
    assert_eq!(text.encode(&rendered, false).unwrap(), [263, 265, 259, 266]);
    let bare = model(Some("smollm")).load().unwrap();
    assert!(!bare.has_template() && text.has_template());
    let error = bare.render_chat(&[], &ChatOptions::new(0)).unwrap_err();
    assert!(matches!(error, TemplateError::NoTemplate));
    let broken = model(Some("smollm")).str("tokenizer.chat_template", "{% for").load();
    assert!(matches!(broken, Err(LoadError::Template(TemplateError::Compile(_)))));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let refused = |header: Header, expected: &str| {
        let error = header.load().unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} lacks {expected:?}");
    };
    refused(model(Some("falcon")), "pre-tokenizer \"falcon\" is not supported, known are default, gpt-2");
    refused(Header::default().str("tokenizer.ggml.model", "bert"), "tokenizer kind \"bert\"");
    refused(Header::default(), "tokenizer.ggml.model is missing");
    let gpt2 = || Header::default().str("tokenizer.ggml.model", "gpt2");
    refused(gpt2(), "tokenizer.ggml.tokens is missing");
    let tokens = || gpt2().strings("tokenizer.ggml.tokens", &["a".to_owned(), "b".to_owned()]);
    refused(tokens(), "tokenizer.ggml.merges is missing");
    refused(tokens().i32s("tokenizer.ggml.token_type", &[1]), "token_type has 1 entries for 2 tokens");
    refused(tokens().strings("tokenizer.ggml.merges", &["ab".to_owned()]), "merge \"ab\" is not two tokens");
    refused(
        tokens().u32("tokenizer.ggml.merges", 1),
        "tokenizer.ggml.merges is u32, expected an array of strings",
    );
    for merge in ["a b", "a z", "z a"] {
        let expected = format!("the merge {merge:?} has a part or a result that is no token");
        refused(tokens().strings("tokenizer.ggml.merges", &[merge.to_owned()]), &expected);
    }
    refused(
        model(Some("smollm")).u32("tokenizer.ggml.eot_token_id", 300),
        "eot_token_id is 300, it has 269 tokens",
    );
}

#[test]
fn very_long_runs_neither_panic_nor_lose_text() {
    let text = model(Some("llama-bpe")).load().unwrap();
    for unit in [" ", "a", "\n", "é", "1", "<"] {
        let long = format!("{}x", unit.repeat(300_000));
        let ids = text.encode(&long, false).unwrap();
        assert!(decode(text.detokenizer(), &ids).0 == long.as_bytes(), "{unit:?}");
    }
}
