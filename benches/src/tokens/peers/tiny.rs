//! A model that costs next to nothing and always says the same token: what is left of a server's time is the server's.
//!
//! One layer, 64 wide, with the same file for every engine (GGUF), and the tokenizer alone in the form of Hugging Face for
//! servers that bring no engine. Every embedding has a one in its first place, the layer adds little to it, and only the row
//! of " token" in the output looks there. Ids beyond the bytes are plain ASCII words, so that no server holds one back as
//! half a character.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

/// The answer's one token.
pub(crate) const SAID: &str = " token";
const WIDTH: u64 = 64;
const INNER: u64 = 128;
const VOCABULARY: u64 = 2304;
/// Most tokens of prompt and answer that it claims to take.
const CONTEXT: u32 = 32_768;
/// Ids of the text's end and of a turn's borders; the tokens are the last of the vocabulary.
const SPECIAL: [(&str, u32); 3] =
    [("<|endoftext|>", 2301), ("<|im_start|>", 2302), ("<|im_end|>", 2303)];
const TEMPLATE: &str = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}\
     {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
const ALIGNMENT: usize = 32;
const F32: u32 = 0;
const F16: u32 = 1;

/// Writes the model for engines.
pub(crate) fn gguf(file: &Path) -> Result<()> {
    std::fs::write(file, bytes()).with_context(|| format!("write {}", file.display()))
}

/// Writes what a server without an engine reads of a model: its configuration and its tokenizer.
pub(crate) fn folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": INNER,
        "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": WIDTH,
        "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "torch_dtype": "float16", "bos_token_id": SPECIAL[1].1, "eos_token_id": SPECIAL[2].1,
    });
    let added: Vec<Value> = SPECIAL
        .iter()
        .map(|(text, id)| {
            json!({ "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true })
        })
        .collect();
    let (tokens, merges) = (tokens(), merges());
    let vocabulary: Map<String, Value> = tokens.into_iter().zip(0..).map(|(t, id)| (t, json!(id))).collect();
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": bytes, "post_processor": null, "decoder": bytes,
        "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                   "end_of_word_suffix": null, "fuse_unk": false, "vocab": vocabulary, "merges": merges },
    });
    let about = json!({
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT, "chat_template": TEMPLATE,
        "bos_token": SPECIAL[1].0, "eos_token": SPECIAL[2].0,
    });
    let generation = json!({ "bos_token_id": SPECIAL[1].1, "eos_token_id": SPECIAL[2].1 });
    for (name, value) in [
        ("config.json", config),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", about),
        ("generation_config.json", generation),
    ] {
        let file = folder.join(name);
        std::fs::write(&file, value.to_string()).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}

/// The letter that byte-level vocabularies write for a byte: itself where it is printable, else one beyond Latin-1.
fn letters() -> Vec<char> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut others = 0x100..;
    let letter = |byte| if printable(byte) { Some(byte) } else { others.next() };
    (0..256).map(letter).map(|code| code.and_then(char::from_u32).unwrap_or(' ')).collect()
}

/// The steps from letters to [`SAID`].
fn merges() -> Vec<String> {
    let letters: Vec<char> = SAID.bytes().map(|byte| self::letters()[usize::from(byte)]).collect();
    let joined = |n: usize| letters[..n].iter().collect::<String>();
    (1..letters.len()).map(|n| format!("{} {}", joined(n), letters[n])).collect()
}

fn tokens() -> Vec<String> {
    let mut tokens: Vec<String> = letters().into_iter().map(String::from).collect();
    tokens.extend(merges().iter().map(|merge| merge.replace(' ', "")));
    let space = letters()[usize::from(b' ')];
    for id in tokens.len() as u64..VOCABULARY - SPECIAL.len() as u64 {
        tokens.push(format!("{space}tok{id}"));
    }
    tokens.extend(SPECIAL.map(|(text, _)| text.to_owned()));
    tokens
}

/// The id of [`SAID`].
fn said() -> u64 {
    (256 + merges().len() - 1) as u64
}

fn bytes() -> Vec<u8> {
    let mut head = Pairs::default();
    head.text("general.architecture", "llama");
    head.text("general.name", "tiny");
    head.number("general.file_type", 1);
    for (name, value) in [
        ("context_length", CONTEXT),
        ("embedding_length", WIDTH as u32),
        ("block_count", 1),
        ("feed_forward_length", INNER as u32),
        ("attention.head_count", 1),
        ("attention.head_count_kv", 1),
        ("rope.dimension_count", WIDTH as u32),
        ("vocab_size", VOCABULARY as u32),
    ] {
        head.number(&format!("llama.{name}"), value);
    }
    head.real("llama.attention.layer_norm_rms_epsilon", 1e-5);
    head.real("llama.rope.freq_base", 10_000.0);
    head.text("tokenizer.ggml.model", "gpt2");
    head.text("tokenizer.ggml.pre", "gpt-2");
    head.texts("tokenizer.ggml.tokens", &tokens());
    head.kinds("tokenizer.ggml.token_type");
    head.texts("tokenizer.ggml.merges", &merges());
    head.number("tokenizer.ggml.bos_token_id", SPECIAL[1].1);
    head.number("tokenizer.ggml.eos_token_id", SPECIAL[2].1);
    head.number("tokenizer.ggml.unknown_token_id", SPECIAL[0].1);
    head.number("tokenizer.ggml.padding_token_id", SPECIAL[2].1);
    head.flag("tokenizer.ggml.add_bos_token", false);
    head.flag("tokenizer.ggml.add_space_prefix", false);
    head.text("tokenizer.chat_template", TEMPLATE);
    file(&head, &weights())
}

struct Tensor {
    name: &'static str,
    /// Length of a row, then the number of rows; vectors have one row.
    shape: [u64; 2],
    values: Vec<f32>,
}

fn weights() -> Vec<Tensor> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    // Xorshift: the values matter only in that they are none that a processor handles apart.
    let mut noise = |shape: [u64; 2], size: f32| -> Vec<f32> {
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * size
        };
        (0..shape[0] * shape[1]).map(|_| draw()).collect()
    };
    let mut made = Vec::new();
    let mut tensor = |name, shape, values| made.push(Tensor { name, shape, values });
    let words = [WIDTH, VOCABULARY];
    let mut embeddings = noise(words, 0.1);
    embeddings.iter_mut().step_by(WIDTH as usize).for_each(|first| *first = 1.0);
    let mut output = noise(words, 0.01);
    output[(said() * WIDTH) as usize] = 8.0;
    let ones = || vec![1.0; WIDTH as usize];
    tensor("token_embd.weight", words, embeddings);
    tensor("blk.0.attn_norm.weight", [WIDTH, 1], ones());
    for name in ["blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight"] {
        tensor(name, [WIDTH, WIDTH], noise([WIDTH, WIDTH], 0.02));
    }
    tensor("blk.0.ffn_norm.weight", [WIDTH, 1], ones());
    for (name, shape) in [
        ("blk.0.ffn_gate.weight", [WIDTH, INNER]),
        ("blk.0.ffn_up.weight", [WIDTH, INNER]),
        ("blk.0.ffn_down.weight", [INNER, WIDTH]),
    ] {
        tensor(name, shape, noise(shape, 0.02));
    }
    tensor("output_norm.weight", [WIDTH, 1], ones());
    tensor("output.weight", words, output);
    made
}

/// The keys and values of a GGUF.
#[derive(Default)]
struct Pairs {
    count: u64,
    bytes: Vec<u8>,
}

impl Pairs {
    fn key(&mut self, name: &str, kind: u32) {
        self.count += 1;
        string(&mut self.bytes, name);
        self.bytes.extend(kind.to_le_bytes());
    }

    fn number(&mut self, name: &str, value: u32) {
        self.key(name, 4);
        self.bytes.extend(value.to_le_bytes());
    }

    fn real(&mut self, name: &str, value: f32) {
        self.key(name, 6);
        self.bytes.extend(value.to_le_bytes());
    }

    fn flag(&mut self, name: &str, value: bool) {
        self.key(name, 7);
        self.bytes.push(value.into());
    }

    fn text(&mut self, name: &str, value: &str) {
        self.key(name, 8);
        string(&mut self.bytes, value);
    }

    fn list(&mut self, name: &str, kind: u32, count: u64) {
        self.key(name, 9);
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(count.to_le_bytes());
    }

    fn texts(&mut self, name: &str, values: &[String]) {
        self.list(name, 8, values.len() as u64);
        values.iter().for_each(|value| string(&mut self.bytes, value));
    }

    /// For each token whether it is a word (1) or a control token (3).
    fn kinds(&mut self, name: &str) {
        self.list(name, 5, VOCABULARY);
        let words = VOCABULARY - SPECIAL.len() as u64;
        (0..VOCABULARY).for_each(|id| self.bytes.extend(if id < words { 1_i32 } else { 3 }.to_le_bytes()));
    }
}

fn string(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

/// Header, pairs, table of tensors, and the tensors, each at an aligned place.
fn file(pairs: &Pairs, tensors: &[Tensor]) -> Vec<u8> {
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend(pairs.count.to_le_bytes());
    file.extend(&pairs.bytes);
    let mut data = Vec::new();
    for Tensor { name, shape, values } in tensors {
        string(&mut file, name);
        let dimensions = if shape[1] == 1 { &shape[..1] } else { &shape[..] };
        file.extend((dimensions.len() as u32).to_le_bytes());
        dimensions.iter().for_each(|length| file.extend(length.to_le_bytes()));
        // Vectors are F32 everywhere, matrices F16: what every loader takes.
        file.extend(if shape[1] == 1 { F32 } else { F16 }.to_le_bytes());
        file.extend((data.len() as u64).to_le_bytes());
        for value in values {
            if shape[1] == 1 {
                data.extend(value.to_le_bytes());
            } else {
                data.extend(half(*value).to_le_bytes());
            }
        }
        data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
    }
    file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
    file.extend(data);
    file
}

/// As a half, cut towards zero; what is below its normal numbers becomes zero.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    let sign = (bits >> 16 & 0x8000) as u16;
    if exponent <= 0 { sign } else { sign | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_those_of_the_standard() {
        for (value, bits) in [(1.0, 0x3c00), (-2.0, 0xc000), (8.0, 0x4800), (0.1, 0x2e66), (0.0, 0), (1e-9, 0)] {
            assert_eq!(half(value), bits, "{value}");
        }
    }

    #[test]
    fn the_said_token_is_where_the_output_looks() {
        let tokens = tokens();
        assert_eq!(tokens.len() as u64, VOCABULARY);
        assert_eq!(tokens[said() as usize], "\u{120}token");
        assert!(SPECIAL.iter().all(|(text, id)| tokens[*id as usize] == *text));
        let mut sorted = tokens.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), tokens.len(), "no token twice");
    }
}
