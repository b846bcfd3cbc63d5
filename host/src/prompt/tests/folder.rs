//! Model folders: `tokenizer.json` with each kind of decoder, and the facts of its neighbours.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{decode, decoded};
use crate::prompt::Text;
use crate::prompt::detok::Pushed;
use crate::prompt::source::{Folder, Source, SourceError};
use crate::prompt::template::ChatOptions;

fn bpe(vocab: Value, merges: &[&str], decoder: Value) -> Value {
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    json!({
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": null,
        "added_tokens": [special(20, "<s>"), special(21, "</s>"), special(22, "<|im_end|>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [20], "tokens": ["<s>"]}}},
        "decoder": decoder,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "byte_fallback": false, "fuse_unk": false,
                  "unk_token": null, "dropout": null, "continuing_subword_prefix": null, "end_of_word_suffix": null},
    })
}

fn byte_level() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})
}

fn tiny() -> Value {
    let vocab = json!({"h": 0, "i": 1, "hi": 2, "Ġ": 3, "Ġhi": 4, "Ã": 5, "©": 6, "<s>": 20, "</s>": 21, "<|im_end|>": 22});
    bpe(vocab, &["h i", "Ġ hi"], byte_level())
}

fn folder(tokenizer: &Value) -> Folder {
    Folder { tokenizer: serde_json::to_vec(tokenizer).unwrap(), ..Folder::default() }
}

fn load(folder: Folder) -> Text {
    Text::from_source(&Source::Folder(Box::new(folder))).unwrap()
}

#[test]
fn facts_come_from_all_files() {
    let text = load(Folder {
        name: Some("tiny".to_owned()),
        tokenizer_config: json!({"eos_token": {"content": "</s>"}, "bos_token": "<s>", "model_max_length": 1e30}),
        config: json!({"eos_token_id": 21, "text_config": {"max_position_embeddings": 77}}),
        generation_config: json!({"eos_token_id": [22, 21, 4000]}),
        ..folder(&tiny())
    });
    assert_eq!(text.describe(), ("tokenizer.json", "BPE"));
    assert_eq!(text.eos_ids(), [21, 22]);
    assert_eq!(text.context_length(), Some(77));
    assert_eq!(text.model_name(), Some("tiny"));
    assert_eq!(text.vocab_size(), 23);
    assert_eq!(text.token_piece(4).unwrap(), b" hi");
    assert_eq!(text.token_piece(10), None, "a hole");
    assert!(!text.has_template());
}

#[test]
fn bos_follows_the_configuration_or_else_the_post_processor() {
    let with = |config: Value| load(Folder { tokenizer_config: config, ..folder(&tiny()) });
    let ids = |config: Value, raw: &str, add| with(config).encode(raw, add).unwrap();
    // Not cut to two ids by the file's truncation.
    assert_eq!(ids(json!({}), "hi hi hi", true), [20, 2, 4, 4]);
    assert_eq!(ids(json!({}), "<s>hi", false), [20, 2]);
    assert_eq!(ids(json!({"add_bos_token": false, "bos_token": "<s>"}), "hi", true), [2]);
    assert_eq!(ids(json!({"add_bos_token": true, "bos_token": "<s>"}), "hi", true), [20, 2]);
    assert_eq!(ids(json!({"add_bos_token": true, "bos_token": "<s>"}), "<s>hi", true), [20, 2]);
}

#[test]
fn byte_level_tokens_become_bytes() {
    let text = load(folder(&tiny()));
    let (bytes, pushed) = decode(text.detokenizer(), &[20, 2, 4, 5, 6, 10, 22]);
    assert_eq!(String::from_utf8(bytes).unwrap(), "hi hié");
    assert_eq!(
        (pushed[0], pushed[4], pushed[5], pushed[6]),
        (Pushed::Hidden, Pushed::Text, Pushed::Unknown, Pushed::Hidden)
    );
}

#[test]
fn sentencepiece_decoders_become_bytes() {
    let vocab =
        json!({"▁hi": 0, "<0xC3>": 1, "<0xA9>": 2, "▁": 3, "x": 4, "<s>": 20, "</s>": 21, "<|im_end|>": 22});
    let decoder = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
    let text = load(folder(&bpe(vocab, &[], decoder)));
    assert_eq!(decoded(text.detokenizer(), &[0, 0, 1, 2, 4]), "hi hiéx");
    assert_eq!(decoded(text.detokenizer().continuing(), &[0, 0]), " hi hi");
    assert_eq!(text.token_piece(1).unwrap(), [0xc3]);
}

#[test]
fn other_decoders_go_through_the_library() {
    let vocab = json!({"un": 0, "##happ": 1, "##y": 2, "dog": 3, "!": 4, "##\u{e9}": 5, "<s>": 20, "</s>": 21, "<|im_end|>": 22});
    let decoder = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
    let text = load(folder(&bpe(vocab, &[], decoder)));
    let ids = [0, 1, 2, 20, 3, 0, 5];
    assert_eq!(decoded(text.detokenizer(), &ids), "unhappy dog uné");
    // As long as the text may go on, each push yields what is certain.
    let (mut state, mut out) = (text.detokenizer(), Vec::new());
    let mut steps = Vec::new();
    for id in ids {
        state.push(id, &mut out);
        steps.push(String::from_utf8(out.clone()).unwrap());
    }
    assert_eq!(steps[..4], ["un", "unhapp", "unhappy", "unhappy"]);
    assert_eq!(text.token_piece(3).unwrap(), b"dog");
}

#[test]
fn incomplete_characters_wait_and_are_given_up_in_the_end() {
    // Two decoders in a row are no shape that the table knows.
    let vocab = json!({"Ã": 0, "©": 1, "a": 2, "<s>": 20, "</s>": 21, "<|im_end|>": 22});
    let decoder = json!({"type": "Sequence", "decoders": [byte_level(), {"type": "Fuse"}]});
    let text = load(folder(&bpe(vocab, &[], decoder)));
    let (mut state, mut out) = (text.detokenizer(), Vec::new());
    state.push(0, &mut out);
    assert!(out.is_empty());
    state.push(1, &mut out);
    assert_eq!(out, "é".as_bytes());
    state.push(0, &mut out);
    state.finish(&mut out);
    assert_eq!(String::from_utf8(out).unwrap(), "é\u{fffd}");
    let (long, _) = decode(text.detokenizer(), &vec![0; 1000]);
    assert_eq!(String::from_utf8(long).unwrap(), "\u{fffd}".repeat(1000));
}

#[test]
fn the_template_may_be_in_any_of_three_files() {
    let rendered = |folder: Folder, tools: Option<Value>| {
        let mut options = ChatOptions::new(0);
        options.tools = tools;
        load(folder).render_chat(&[], &options).unwrap()
    };
    let string = json!({"chat_template": "config {{ eos_token }}", "eos_token": "</s>"});
    assert_eq!(rendered(Folder { tokenizer_config: string.clone(), ..folder(&tiny()) }, None), "config </s>");
    let named = json!({"chat_template": [
        {"name": "tool_use", "template": "tools"}, {"name": "default", "template": "default"}]});
    assert_eq!(rendered(Folder { tokenizer_config: named.clone(), ..folder(&tiny()) }, None), "default");
    assert_eq!(rendered(Folder { tokenizer_config: named, ..folder(&tiny()) }, Some(json!([1]))), "tools");
    let beside = json!({"chat_template": "json"});
    let both = |file| Folder {
        tokenizer_config: string.clone(),
        template_json: beside.clone(),
        template_file: file,
        ..folder(&tiny())
    };
    assert_eq!(rendered(both(None), None), "json");
    assert_eq!(rendered(both(Some("jinja".to_owned())), None), "jinja");
}

#[test]
fn added_tokens_keep_the_ids_that_the_file_states() {
    let mut moved = tiny();
    moved["added_tokens"][2]["content"] = json!("<|new|>");
    let error = Text::from_source(&Source::Folder(Box::new(folder(&moved)))).unwrap_err().to_string();
    assert!(error.contains("added token \"<|new|>\" has id 22, but loads as Some(10)"), "{error}");
}

#[test]
fn a_tokenizer_that_makes_the_library_panic_is_refused() {
    // The merge's result is longer than every token; the library indexes behind its buffer.
    let mut broken = bpe(json!({"a": 0, "b": 1}), &["a b"], byte_level());
    broken["added_tokens"] = json!([]);
    broken["post_processor"] = Value::Null;
    let error = Text::from_source(&Source::Folder(Box::new(folder(&broken)))).unwrap_err().to_string();
    assert!(error.contains("unusable"), "{error}");
}

/// A folder under the system's temporary one, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cascadia-prompt-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.0.join(name), content).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_folder_is_read_from_disk_and_its_faults_are_named() {
    let place = Place::new("folder");
    let error = Text::open(&place.0).unwrap_err().to_string();
    assert!(error.contains("has no tokenizer.json"), "{error}");
    place.write("vocabulary.gguf", b"GGML");
    let error = Text::open(&place.0).unwrap_err().to_string();
    assert!(error.contains("vocabulary.gguf"), "what it was compiled from is asked: {error}");
    place.write("tokenizer.json", &serde_json::to_vec(&tiny()).unwrap());
    place.write("generation_config.json", b"{\"eos_token_id\": 21}");
    place.write("chat_template.jinja", "é{{ messages | length }}".as_bytes());
    let text = Text::open(&place.0).unwrap();
    assert_eq!(text.eos_ids(), [21]);
    assert_eq!(text.render_chat(&[], &ChatOptions::new(0)).unwrap(), "é0");
    assert!(text.model_name().unwrap().ends_with("-folder"));
    place.write("config.json", b"{");
    let error = Text::open(&place.0).unwrap_err().to_string();
    assert!(error.contains("config.json is not valid json"), "{error}");
    place.write("model.gguf", b"GGML");
    let error = Text::open(&place.0.join("model.gguf")).unwrap_err();
    assert!(matches!(error, crate::prompt::LoadError::Source(SourceError::Gguf { .. })), "{error}");
    let error = Text::open(&place.0.join("absent")).unwrap_err().to_string();
    assert!(error.contains("absent"), "{error}");
}
