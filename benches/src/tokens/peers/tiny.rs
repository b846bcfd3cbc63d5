//! A model that costs next to nothing and always says the same token: what is left of a server's time is the server's.
//!
//! One layer, 64 wide, with the same file for every engine (GGUF), and the tokenizer alone in the form of Hugging Face for
//! servers that bring no engine. Every embedding has a one in its first place, the layer adds little to it, and only the row
//! of " token" in the output looks there. Ids beyond the bytes are plain ASCII words, so that no server holds one back as
//! half a character.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::gguf::{Pairs, Tensor, file};

/// The answer's one token.
pub(crate) const SAID: &str = " token";
const WIDTH: u64 = 64;
const INNER: u64 = 128;
const VOCABULARY: u64 = 2304;
/// Most tokens of prompt and answer that it claims to take.
const CONTEXT: u32 = 32_768;
/// Ids of the text's end and of a turn's borders; the tokens are the last of the vocabulary.
const SPECIAL: [(&str, u32); 3] = [("<|endoftext|>", 2301), ("<|im_start|>", 2302), ("<|im_end|>", 2303)];
const TEMPLATE: &str = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}\
     {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

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
    let bytes =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
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
    // A word, or a control token.
    let kind = |id: u64| if id < VOCABULARY - SPECIAL.len() as u64 { 1 } else { 3 };
    head.integers("tokenizer.ggml.token_type", &(0..VOCABULARY).map(kind).collect::<Vec<_>>());
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
    for name in
        ["blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight"]
    {
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

#[cfg(test)]
mod tests {
    use super::*;

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
