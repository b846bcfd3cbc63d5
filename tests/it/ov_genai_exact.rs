//! Exactness with the real engine: what is served is what the model's own numbers say, whatever runs beside it.

use std::path::{Path, PathBuf};

use anyhow::Result;
use cascadia_tests::client::{CHAT, COMPLETIONS, Stream, streamed};
use cascadia_tests::http::Request;
use cascadia_tests::{Host, TempDir, setup};
use serde_json::{Value, json};

use crate::ov_genai;

#[path = "../../plugins/ov-ir/tests/it/split.rs"]
mod split;

#[test]
fn sixteen_greedy_texts_at_once_are_those_of_single_runs_and_giving_up_five_changes_none() -> Result<()> {
    let Some(host) = ov_genai::host(&["--cb", "--profile", "exact", "--max-concurrent", "16"]) else {
        return Ok(());
    };
    let limit = 16;
    let question = |i: usize| format!("Tell me about the number {i}. {}", "And more. ".repeat(i));
    let body = |i: usize, tokens: u64| {
        ov_genai::ask(&question(i), &json!({"max_tokens": tokens, "ignore_eos": true}))
    };
    let alone: Vec<String> =
        (0..16).map(|i| Ok(host.post(CHAT, &body(i, limit))?.content())).collect::<Result<_>>()?;
    // Once all of them, once with five that are given up on the way.
    for given_up in [0, 5] {
        let begin = |i: usize| -> Result<Stream> {
            let tokens = if i < given_up { 20 * limit } else { limit };
            let request = Request::post(CHAT, &streamed(body(i, tokens)));
            host.begin(&request.header("x-request-id", &format!("{given_up}-{i}")))?.stream()
        };
        let mut streams: Vec<Stream> = (0..16).map(begin).collect::<Result<_>>()?;
        for (i, stream) in streams.iter_mut().take(given_up).enumerate() {
            stream.pieces(2 + i)?;
        }
        for (i, stream) in streams.drain(..given_up).enumerate() {
            let text = stream.told().text.clone();
            assert!(alone[i].starts_with(&text), "{i}: {text:?}, alone {:?}", alone[i]);
            match i {
                0 | 1 => host.cancel(&format!("{given_up}-{i}"))?,
                2 => stream.reset(),
                _ => drop(stream),
            }
        }
        for (i, stream) in streams.into_iter().enumerate().map(|(at, stream)| (at + given_up, stream)) {
            let told = stream.rest()?;
            assert_eq!((told.finish(), told.completion_tokens()), ("length", limit));
            assert_eq!(told.text, alone[i], "stream {i} beside fifteen, {given_up} of them given up");
        }
        let metrics = host.quiet();
        assert_eq!(metrics.ended("cancelled"), given_up as f64);
    }
    Ok(())
}

/// A letter for each id of the tiny models, so that a text is the list of its tokens.
const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";

fn fixture(name: &str) -> PathBuf {
    setup::root().join("plugins/ov-ir/tests/models").join(name)
}

/// A tiny GGUF model with a tokenizer of letters, which it does not have of its own.
fn with_letters(name: &str, vocab: usize, to: &Path) -> Result<PathBuf> {
    let file = std::fs::read(fixture(name).join("model.gguf"))?;
    let (mut pairs, mut count) = (Vec::new(), 0);
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    let mut put = |key: &str, kind: u32, value: &[u8]| {
        count += 1;
        text(&mut pairs, key);
        pairs.extend(kind.to_le_bytes());
        pairs.extend(value);
        pairs.len()
    };
    let string = |value: &str| [&(value.len() as u64).to_le_bytes(), value.as_bytes()].concat();
    put("tokenizer.ggml.model", 8, &string("gpt2"));
    put("tokenizer.ggml.pre", 8, &string("gpt-2"));
    put("tokenizer.ggml.eos_token_id", 4, &(vocab as u32 - 1).to_le_bytes());
    let mut tokens = [8_u32.to_le_bytes().as_slice(), &(vocab as u64).to_le_bytes()].concat();
    LETTERS[..vocab].chars().for_each(|letter| text(&mut tokens, &letter.to_string()));
    put("tokenizer.ggml.tokens", 9, &tokens);
    let length =
        put("tokenizer.ggml.merges", 9, &[8_u32.to_le_bytes().as_slice(), &0_u64.to_le_bytes()].concat());
    // What is put in front of the table of tensors must not move their alignment.
    let frame = 8 + "pad".len() + 4 + 8;
    put("pad", 8, &string(&" ".repeat((length + frame).next_multiple_of(32) - length - frame)));
    let keys = u64::from_le_bytes(file[16..24].try_into()?) + count;
    let path = to.join(format!("{name}.gguf"));
    std::fs::write(&path, [&file[..16], &keys.to_le_bytes(), &pairs, &file[24..]].concat())?;
    Ok(path)
}

/// A tiny Hugging Face model with such a tokenizer.
fn folder_with_letters(name: &str, vocab: usize, to: &Path) -> Result<PathBuf> {
    let folder = to.join(name);
    std::fs::create_dir(&folder)?;
    for entry in std::fs::read_dir(fixture(name))? {
        let path = entry?.path();
        std::fs::copy(&path, folder.join(path.file_name().unwrap_or_default()))?;
    }
    let config = folder.join("config.json");
    let mut text: Value = serde_json::from_slice(&std::fs::read(&config)?)?;
    text["eos_token_id"] = json!(vocab - 1);
    std::fs::write(&config, text.to_string())?;
    let letters: serde_json::Map<String, Value> =
        LETTERS[..vocab].chars().enumerate().map(|(id, letter)| (letter.to_string(), json!(id))).collect();
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true});
    let tokenizer = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": bytes, "post_processor": null,
        "decoder": bytes, "model": {"type": "BPE", "vocab": letters, "merges": []},
    });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string())?;
    Ok(folder)
}

#[test]
fn the_served_greedy_text_of_each_family_is_that_of_the_reference() -> Result<()> {
    let files = TempDir::new();
    // Between them Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, the K types and IQ4_XS; then bf16 and f16 folders.
    let (gguf, folders) =
        (["llama-gguf", "qwen2-gguf", "gemma3-gguf", "qwen3-gguf"], ["llama-hf", "mistral-hf"]);
    let case = |name: &str| -> Result<Value> {
        Ok(serde_json::from_slice(&std::fs::read(fixture(name).join("case.json"))?)?)
    };
    let mut models = Vec::new();
    for name in gguf.into_iter().chain(folders) {
        let vocab = case(name)?["vocab"].as_u64().map_or(0, |n| n as usize);
        let path = match name.ends_with("-gguf") {
            true => with_letters(name, vocab, files.path())?,
            false => folder_with_letters(name, vocab, files.path())?,
        };
        models.extend(["--model".to_owned(), format!("{name}={}", path.display())]);
    }
    let options: Vec<&str> = models.iter().map(String::as_str).collect();
    let Some(host) = ov_genai::plugged(&[&options[..], &["--cb", "--profile", "exact"]].concat()) else {
        return Ok(());
    };
    host.ready_within(ov_genai::COMPILED);
    for name in gguf.into_iter().chain(folders) {
        let case = case(name)?;
        let ids = |key: &str| case[key].as_array().cloned().unwrap_or_default();
        let (prompt, chain) = (case["prompt"].as_u64().map_or(0, |n| n as usize), ids("greedy"));
        let expected: String = chain
            .iter()
            .map(|id| &LETTERS[id.as_u64().map_or(0..0, |n| n as usize..n as usize + 1)])
            .collect();
        let body = json!({
            "model": name, "prompt": ids("ids")[..prompt], "temperature": 0, "ignore_eos": true,
            "max_tokens": chain.len(),
        });
        assert_eq!(host.post(COMPLETIONS, &body)?.content(), expected, "{name}");
        let told = host.told(COMPLETIONS, &streamed(body))?;
        assert_eq!(
            (told.text, told.finish.clone()),
            (expected, vec!["length".to_owned()]),
            "{name}, streamed"
        );
    }
    says_how_weights_are_kept(&host);
    Ok(())
}

#[test]
fn a_model_split_over_files_is_served_by_its_first_and_refused_by_another() -> Result<()> {
    let files = TempDir::new();
    let case: Value = serde_json::from_slice(&std::fs::read(fixture("llama-gguf").join("case.json"))?)?;
    let whole = with_letters("llama-gguf", 64, files.path())?;
    let first = split::split(&whole, files.path(), "tiny", &[0, 9]).display().to_string();
    let second = first.replace("00001-of", "00002-of");
    std::fs::remove_file(whole)?;
    let options = ["--model", &first, "--cb", "--profile", "exact"];
    let Some(host) = ov_genai::plugged(&options) else { return Ok(()) };
    host.ready_within(ov_genai::COMPILED);
    let ids = |key: &str| case[key].as_array().cloned().unwrap_or_default();
    let (prompt, chain) = (case["prompt"].as_u64().map_or(0, |n| n as usize), ids("greedy"));
    let expected: String = chain.iter().filter_map(|id| LETTERS.chars().nth(id.as_u64()? as usize)).collect();
    // Its name is that of the model, not of the part.
    let body = json!({
        "model": "tiny", "prompt": ids("ids")[..prompt], "temperature": 0, "ignore_eos": true,
        "max_tokens": chain.len(),
    });
    assert_eq!(host.post(COMPLETIONS, &body)?.content(), expected);
    let wish = json!({"name": "other", "engine": "ov-genai", "path": second});
    let error = host.post("/admin/v1/models?wait=true", &wish)?.error(500);
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.contains("part 2 of 3") && message.contains("-00001-of-00003.gguf"), "{message}");
    Ok(())
}

fn says_how_weights_are_kept(host: &Host) {
    let log = host.log();
    for words in [
        "weights compiled as they are stored (llama; matrices by type: F32 2, IQ4_NL 2, Q4_0 2",
        "(qwen2; matrices",
    ] {
        assert!(log.contains(words), "{words:?} is not in the log");
    }
}
