//! What is refused: by its name, with the way out, in one line, before anything is written.

use std::fs;
use std::path::Path;

use cascadia_ov_ir::{Error, compile, inspect};
use serde_json::{Value, json};

use crate::fixture::{Scratch, copy, listed, request};
use crate::models::source;

/// An error with its sources, as the command line and the host's log show it.
pub(crate) fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

/// Compiles in vain, and checks that a description is refused with the same words and that nothing was written.
fn refusal(model: &Path, scratch: &Scratch) -> (Error, String) {
    let before = listed(&scratch.path(""));
    let error = compile(&request(model, &scratch.path("out")), &mut ()).unwrap_err();
    assert_eq!(listed(&scratch.path("")), before, "something was written");
    let said = words(&error);
    assert_eq!(words(&inspect(model).unwrap_err()), said);
    assert!(!said.contains('\n'), "{said}");
    (error, said)
}

/// Replaces words of the configuration of a tiny folder, and gives what is said of it.
fn edited(name: &str, edits: &[(&str, &str)], scratch: &Scratch) -> (Error, String) {
    let folder = copy(&source(name), &scratch.path("source"));
    let config = folder.join("config.json");
    let mut text = fs::read_to_string(&config).unwrap();
    for (from, to) in edits {
        assert!(text.contains(from), "{from} is not in the fixture");
        text = text.replace(from, to);
    }
    fs::write(&config, text).unwrap();
    refusal(&folder, scratch)
}

fn unsupported((error, said): (Error, String), parts: &[&str]) {
    assert!(matches!(error, Error::Unsupported { .. }), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn a_feature_of_a_folder_is_named_with_what_there_is_instead() {
    let scratch = Scratch::new("refused");
    let more = |keys: &str| format!("{keys}, \"hidden_size\"");
    let table: [(&str, &str, String, &[&str]); 6] = [
        (
            "qwen3-hf",
            "\"qwen3\"",
            "\"mamba2\"".into(),
            &["the model type mamba2", "known are llama, mistral"],
        ),
        (
            "qwen3-hf",
            "\"yarn\"",
            "\"dynamic\"".into(),
            &["rope scaling dynamic", "known are default, linear"],
        ),
        (
            "qwen3-hf",
            "\"hidden_size\"",
            more("\"hidden_act\": \"relu\""),
            &["activation relu", "known are silu"],
        ),
        (
            "qwen3-hf",
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 1".into(),
            &["tensor model.layers.1."],
        ),
        (
            "gemma3-hf",
            "\"full_attention\"",
            "\"linear_attention\"".into(),
            &["layer type \"linear_attention\"", "known"],
        ),
        (
            "gemma3-hf",
            "\"hidden_size\"",
            more("\"use_bidirectional_attention\": true"),
            &["use_bidirectional_attention"],
        ),
    ];
    for (name, from, to, parts) in table {
        unsupported(edited(name, &[(from, &to)], &scratch), parts);
    }
}

#[test]
fn quantized_weights_that_are_not_read_are_refused_by_the_method_and_not_by_a_file() {
    let scratch = Scratch::new("quantized");
    let table = [
        ("quantization_config", json!({"quant_method": "bitsandbytes"}), "method bitsandbytes is"),
        ("quantization_config", json!({"quant_method": "fp8"}), "method fp8 is"),
        ("quantization_config", json!({"bits": 4}), "method without a quant_method is"),
        ("quantization_config", json!({"quant_method": "gptq", "bits": 8}), "gptq (bits 8)"),
        ("quantization_config", json!({"quant_method": "gptq"}), "gptq (bits not said)"),
        (
            "quantization_config",
            json!({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}),
            "marlin",
        ),
        (
            "quantization_config",
            json!({"quant_method": "gptq", "bits": 4, "group_size": 0}),
            "gptq (group_size 0)",
        ),
        (
            "quantization_config",
            json!({"quant_method": "awq", "bits": 4, "version": "gemv"}),
            "awq (version gemv)",
        ),
        (
            "quantization_config",
            json!({"quant_method": "awq", "bits": 4, "zero_point": false}),
            "zero_point false",
        ),
        (
            "compression_config",
            json!({"quant_method": "compressed-tensors", "format": "float-quantized"}),
            "compressed-tensors (format float-quantized)",
        ),
        (
            "quantization_config",
            json!({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
                "group_0": {"weights": {"num_bits": 4, "symmetric": false}}}}),
            "compressed-tensors (weights that are no symmetric integers)",
        ),
    ];
    for (key, own, named) in table {
        let folder = copy(&source("qwen3-hf"), &scratch.path("source"));
        // Such folders name their weights as they like.
        fs::rename(folder.join("model.safetensors"), folder.join("model-4bit.safetensors")).unwrap();
        let config = folder.join("config.json");
        let mut text: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
        text[key] = own;
        fs::write(&config, text.to_string()).unwrap();
        let way = "weights before quantization, which can be rounded to int4 or int8 here";
        unsupported(refusal(&folder, &scratch), &["quantization method", named, way]);
    }
}

#[test]
fn mixtures_of_experts_are_refused_as_such_in_every_form() {
    let scratch = Scratch::new("experts");
    for (model, key, count) in [
        ("mixtral", "num_local_experts", 8),
        ("qwen3_moe", "num_experts", 128),
        ("deepseek_v3", "n_routed_experts", 256),
    ] {
        let keys = format!("\"{key}\": {count}, \"hidden_size\"");
        let edits = [("\"qwen3\"", &*format!("\"{model}\"")), ("\"hidden_size\"", &keys)];
        let parts = ["mixture of experts", model, &format!("{key} {count}"), "take a dense model"];
        unsupported(edited("qwen3-hf", &edits, &scratch), &parts);
    }
    // Without the count, the name is enough.
    unsupported(
        edited("qwen3-hf", &[("\"qwen3\"", "\"qwen2_moe\"")], &scratch),
        &["mixture of experts", "qwen2_moe"],
    );
    // Mixtral's files are of the architecture llama.
    let file = scratch.path("model.gguf");
    fs::write(&file, with_keys("llama-gguf", &[number("llama.expert_count", 8)])).unwrap();
    unsupported(
        refusal(&file, &scratch),
        &["mixture of experts (llama with llama.expert_count 8)", "take a dense model"],
    );
    fs::write(&file, renamed("qwen3-gguf", "qwen3", "qmoe3")).unwrap();
    unsupported(refusal(&file, &scratch), &["architecture qmoe3"]);
    fs::write(&file, renamed("qwen3-gguf", "qwen3", "3qmoe")).unwrap();
    unsupported(refusal(&file, &scratch), &["mixture of experts (3qmoe", "take a dense model"]);
}

#[test]
fn a_feature_of_a_gguf_file_is_named_with_what_there_is_instead() {
    let scratch = Scratch::new("refused-gguf");
    let file = scratch.path("model.gguf");
    fs::write(&file, renamed("qwen3-gguf", "qwen3", "rwkv6")).unwrap();
    unsupported(refusal(&file, &scratch), &["architecture rwkv6", "known are llama, qwen2"]);
    let rope = text("qwen3.rope.scaling.type", "dynamic");
    fs::write(&file, with_keys("qwen3-gguf", &[rope])).unwrap();
    unsupported(
        refusal(&file, &scratch),
        &["rope scaling dynamic", "qwen3.rope.scaling.type", "known are none, linear"],
    );
    let wide = number("smollm3.attention.value_length", 32);
    let without = renamed("smollm3-gguf", "smollm3.attention.value_length", "smollm3.attention.value_lengtx");
    fs::write(&file, added(&without, &[wide])).unwrap();
    unsupported(refusal(&file, &scratch), &["keys of width 16 with values of width 32"]);
    // A type that nobody knows.
    let mut bytes = fs::read(source("llama-gguf")).unwrap();
    let name = b"blk.1.ffn_down.weight";
    let at = bytes.windows(name.len()).position(|at| at == name).unwrap() + name.len() + 4 + 16;
    bytes[at] = 99;
    fs::write(&file, bytes).unwrap();
    unsupported(
        refusal(&file, &scratch),
        &["type unknown (99) of tensor blk.1.ffn_down.weight", "known are F32"],
    );
}

#[test]
fn a_source_that_is_cut_or_contradicts_itself_says_what_to_fetch() {
    let scratch = Scratch::new("cut");
    let file = scratch.path("model.gguf");
    let bytes = fs::read(source("llama-gguf")).unwrap();
    for left in [bytes.len() - 40, 700] {
        fs::write(&file, &bytes[..left]).unwrap();
        let (error, said) = refusal(&file, &scratch);
        assert!(matches!(error, Error::Gguf { .. }), "{said}");
        assert!(said.contains("model.gguf") && said.ends_with("fetch it again"), "{said}");
    }
    let folder = copy(&source("qwen2-hf"), &scratch.path("hf"));
    let weights = folder.join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    for left in [bytes.len() - 2, 100, 4] {
        fs::write(&weights, &bytes[..left]).unwrap();
        let (_, said) = refusal(&folder, &scratch);
        assert!(said.contains("model.safetensors") && said.ends_with("fetch the file again"), "{said}");
    }
    fs::remove_file(&weights).unwrap();
    let (error, said) = refusal(&folder, &scratch);
    assert!(matches!(error, Error::Io { .. }) && said.contains("model.safetensors"), "{said}");
    let (_, said) = edited("qwen2-hf", &[("\"hidden_size\": 32", "\"hidden_size\": 48")], &scratch);
    assert!(said.contains("[64, 32]") && said.contains("fetch both from one place"), "{said}");
    let (_, said) = edited("qwen2-hf", &[("\"rms_norm_eps\"", "\"no_eps\"")], &scratch);
    assert!(
        said.contains("rms_norm_eps") && said.ends_with("take the config.json of the original model"),
        "{said}"
    );
}

/// A file with other keys in front of its own.
fn with_keys(name: &str, keys: &[Vec<u8>]) -> Vec<u8> {
    added(&fs::read(source(name)).unwrap(), keys)
}

fn added(file: &[u8], keys: &[Vec<u8>]) -> Vec<u8> {
    let mut own: Vec<u8> = keys.concat();
    // What is put in front of the table of tensors must not move their alignment.
    let frame = text("pad", "").len();
    let gap = (own.len() + frame).next_multiple_of(32) - own.len() - frame;
    own.extend(text("pad", &" ".repeat(gap)));
    let count = u64::from_le_bytes(file[16..24].try_into().unwrap()) + keys.len() as u64 + 1;
    [&file[..16], &count.to_le_bytes(), &own, &file[24..]].concat()
}

fn text(key: &str, value: &str) -> Vec<u8> {
    let counted = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    [counted(key), 8u32.to_le_bytes().to_vec(), counted(value)].concat()
}

fn number(key: &str, value: u32) -> Vec<u8> {
    [&(key.len() as u64).to_le_bytes(), key.as_bytes(), &4u32.to_le_bytes(), &value.to_le_bytes()].concat()
}

/// A file in whose header one word is another of the same length.
fn renamed(name: &str, from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(source(name)).unwrap();
    let places: Vec<usize> = (0..2000).filter(|at| bytes[*at..].starts_with(from.as_bytes())).collect();
    assert!(!places.is_empty(), "{from} is not in the fixture");
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    bytes
}
