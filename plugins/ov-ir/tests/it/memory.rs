//! How much memory a compilation takes: less than the largest tensor, however large the model is.
//!
//! The models are files with holes in them, in which every weight is zero: what is read of them is as long as in others.

use std::fs::{self, File};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use cascadia_ov_ir::{BIN, Bits, Quantize, Request, compile};

use crate::fixture::{Scratch, request};
use crate::heap;

const HIDDEN: u64 = 1024;
const LAYERS: u64 = 12;
/// Rows of the embedding table and of the head, the largest tensors.
const VOCAB: u64 = 32 << 10;

/// Names as in GGUF files, `[rows, columns]`; a vector has one dimension.
fn tensors() -> Vec<(String, Vec<u64>)> {
    let mut all =
        vec![("token_embd".to_owned(), vec![VOCAB, HIDDEN]), ("output".to_owned(), vec![VOCAB, HIDDEN])];
    all.push(("output_norm".to_owned(), vec![HIDDEN]));
    for layer in 0..LAYERS {
        for (name, rows, columns) in [
            ("attn_q", HIDDEN, HIDDEN),
            ("attn_k", HIDDEN / 4, HIDDEN),
            ("attn_v", HIDDEN / 4, HIDDEN),
            ("attn_output", HIDDEN, HIDDEN),
            ("ffn_gate", 3 * HIDDEN, HIDDEN),
            ("ffn_up", 3 * HIDDEN, HIDDEN),
            ("ffn_down", HIDDEN, 3 * HIDDEN),
        ] {
            all.push((format!("blk.{layer}.{name}"), vec![rows, columns]));
        }
        all.push((format!("blk.{layer}.attn_norm"), vec![HIDDEN]));
        all.push((format!("blk.{layer}.ffn_norm"), vec![HIDDEN]));
    }
    all
}

/// A file that begins with `head` and has `data` bytes of zeros behind it.
fn holes(path: &Path, head: &[u8], data: u64) {
    let mut file = File::create(path).unwrap();
    file.write_all(head).unwrap();
    file.set_len(head.len() as u64 + data).unwrap();
}

/// A llama file with matrices of a ggml type; a block of `block` elements has `bytes` bytes.
fn gguf(path: &Path, kind: u32, (block, bytes): (u64, u64)) -> u64 {
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    };
    let keys = [
        ("llama.block_count", LAYERS),
        ("llama.embedding_length", HIDDEN),
        ("llama.attention.head_count", 16),
        ("llama.attention.head_count_kv", 4),
    ];
    let all = tensors();
    let mut head = b"GGUF\x03\0\0\0".to_vec();
    head.extend((all.len() as u64).to_le_bytes());
    head.extend((keys.len() as u64 + 2).to_le_bytes());
    text(&mut head, "general.architecture");
    head.extend(8u32.to_le_bytes());
    text(&mut head, "llama");
    text(&mut head, "llama.attention.layer_norm_rms_epsilon");
    head.extend(6u32.to_le_bytes());
    head.extend(1e-5f32.to_le_bytes());
    for (key, value) in keys {
        text(&mut head, key);
        head.extend(4u32.to_le_bytes());
        head.extend((value as u32).to_le_bytes());
    }
    let (mut data, mut largest) = (0u64, 0);
    for (name, shape) in &all {
        text(&mut head, &format!("{name}.weight"));
        head.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|dim| head.extend(dim.to_le_bytes()));
        let (kind, size) = match shape.as_slice() {
            [length] => (0, length * 4),
            shape => (kind, shape.iter().product::<u64>() / block * bytes),
        };
        head.extend(kind.to_le_bytes());
        head.extend(data.to_le_bytes());
        (data, largest) = (data + size.next_multiple_of(32), largest.max(size));
    }
    head.resize(head.len().next_multiple_of(32), 0);
    holes(path, &head, data);
    assert!(data > 150_000_000, "{data} bytes");
    largest
}

/// A llama folder in bf16, or with the matrices of its layers packed by GPTQ.
fn folder(path: &Path, packed: bool) -> u64 {
    fs::create_dir(path).unwrap();
    let mut config = serde_json::json!({
        "model_type": "llama", "hidden_size": HIDDEN, "num_attention_heads": 16, "num_key_value_heads": 4,
        "num_hidden_layers": LAYERS, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
    });
    if packed {
        config["quantization_config"] =
            serde_json::json!({"quant_method": "gptq", "bits": 4, "group_size": 128});
    }
    fs::write(path.join("config.json"), config.to_string()).unwrap();
    let roles = [
        ("token_embd", "model.embed_tokens"),
        ("output_norm", "model.norm"),
        ("attn_norm", "input_layernorm"),
        ("attn_output", "self_attn.o_proj"),
        ("output", "lm_head"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_down", "mlp.down_proj"),
        ("ffn_norm", "post_attention_layernorm"),
        ("blk.", "model.layers."),
    ];
    let (mut table, mut data, mut largest) = (serde_json::Map::new(), 0u64, 0);
    let mut add = |name: String, dtype: &str, width: u64, shape: &[u64]| {
        let size = shape.iter().product::<u64>() * width;
        let row = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [data, data + size]});
        table.insert(name, row);
        (data, largest) = (data + size, largest.max(size));
    };
    for (name, shape) in tensors() {
        let name = roles.iter().fold(name, |name, (from, to)| name.replace(from, to));
        match shape.as_slice() {
            &[out, columns] if packed && name.ends_with("_proj") => {
                add(format!("{name}.qweight"), "I32", 4, &[columns / 8, out]);
                add(format!("{name}.qzeros"), "I32", 4, &[columns / 128, out / 8]);
                add(format!("{name}.scales"), "F16", 2, &[columns / 128, out]);
            }
            shape => add(format!("{name}.weight"), "BF16", 2, shape),
        }
    }
    let text = serde_json::Value::Object(table).to_string();
    let head = [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    holes(&path.join("model.safetensors"), &head, data);
    assert!(data > 200_000_000, "{data} bytes");
    largest
}

/// Compiles and compares what the heap had to hold with the largest tensor of the source.
fn stays_below(source: PathBuf, quantize: Option<Quantize>, largest: u64, scratch: &Scratch) {
    let out = scratch.path("out");
    let mut written = 0;
    let most = heap::most(|| {
        let report = compile(&Request { quantize, ..request(&source, &out) }, &mut ()).unwrap();
        written = report.manifest.files[BIN].bytes;
    });
    assert!(written > 60_000_000, "{written} bytes were written");
    assert!((most as u64) < largest, "{most} bytes on the heap, the largest tensor has {largest}");
    // Something of the weights is there: the counter counts.
    assert!(most > 4 << 20, "{most} bytes on the heap");
    fs::remove_dir_all(out).unwrap();
}

#[test]
fn a_gguf_file_is_compiled_in_less_memory_than_its_largest_tensor() {
    let scratch = Scratch::new("memory-gguf");
    // Q8_0, of which scales are kept until they are written; Q5_1, of which zero points are too.
    for (kind, layout) in [(8, (32, 34)), (7, (32, 24))] {
        let file = scratch.path("model.gguf");
        let largest = gguf(&file, kind, layout);
        stays_below(file, None, largest, &scratch);
    }
}

#[test]
fn safetensors_are_rounded_or_copied_in_less_memory_than_their_largest_tensor() {
    let scratch = Scratch::new("memory-folder");
    let folder = scratch.path("model");
    let largest = self::folder(&folder, false);
    let four = Quantize { bits: Bits::Four, group: NonZeroUsize::new(32) };
    for quantize in [Some(four), None] {
        stays_below(folder.clone(), quantize, largest, &scratch);
    }
}

#[test]
fn packed_matrices_are_put_together_in_less_memory_than_the_largest_tensor() {
    let scratch = Scratch::new("memory-packed");
    let largest = folder(&scratch.path("model"), true);
    stays_below(scratch.path("model"), None, largest, &scratch);
}
