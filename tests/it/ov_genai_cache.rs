//! Where models are compiled to: the cache of `ov-genai`, what is found in it, and what is refused before it is touched.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cascadia_tests::client::Answer;
use cascadia_tests::http::Request;
use cascadia_tests::{Host, TempDir, setup, wait};
use serde_json::{Value, json};

use crate::ov_genai;

const MODELS: &str = "/admin/v1/models";

fn fixture(name: &str) -> PathBuf {
    setup::root().join("plugins/ov-ir/tests/models").join(name)
}

fn load(host: &Host, query: &str, name: &str, path: &Path, cache: &Path) -> Result<Answer> {
    let options = json!({"cache-dir": cache.display().to_string()});
    let wish =
        json!({"name": name, "engine": "ov-genai", "path": path.display().to_string(), "options": options});
    host.post(&format!("{MODELS}{query}"), &wish)
}

fn unload(host: &Host, name: &str) -> Result<Answer> {
    host.call(&Request::new("DELETE", &format!("{MODELS}/{name}?wait=true")))
}

fn count(host: &Host, message: &str) -> usize {
    let says = |line: &Value| line["message"].as_str().is_some_and(|found| found.starts_with(message));
    host.log_lines().iter().filter(|line| says(line)).count()
}

/// Names in a folder, without locks and notes.
fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    entries
        .filter(|path| path.extension().is_none_or(|e| e != "lock") && !path.ends_with("digests"))
        .collect()
}

/// A host with the plugin that already serves the real model, whose tokenizer the tiny ones lack.
fn host() -> Option<Host> {
    ov_genai::host(&["--max-concurrent", "1"])
}

#[test]
fn a_model_is_compiled_once_and_again_when_the_cache_was_damaged() -> Result<()> {
    let (Some(host), Some(model)) = (host(), setup::model()) else { return Ok(()) };
    let cache = TempDir::new();
    // Its own folder, so that what others have compiled is not found.
    let again = |expected: (usize, usize)| -> Result<()> {
        let before = (count(&host, "model compiled"), count(&host, "compiled model found in the cache"));
        let up = load(&host, "?wait=true&timeout=240s", "b", &model, cache.path())?;
        assert_eq!(up.status(), 200, "{}", up.text());
        assert_eq!(unload(&host, "b")?.status(), 200);
        let after = (count(&host, "model compiled"), count(&host, "compiled model found in the cache"));
        assert_eq!((after.0 - before.0, after.1 - before.1), expected);
        Ok(())
    };
    again((1, 0))?;
    again((0, 1))?;
    let folder = listed(cache.path()).pop().context("a compiled model")?;
    let weights = folder.join("openvino_model.bin");
    let mut bytes = std::fs::read(&weights)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&weights, bytes)?;
    again((1, 0))?;
    assert_eq!(listed(cache.path()), [folder]);
    Ok(())
}

#[test]
fn a_model_that_is_let_go_while_it_is_compiled_leaves_nothing_behind() -> Result<()> {
    let (Some(host), Some(model)) = (host(), setup::model()) else { return Ok(()) };
    let cache = TempDir::new();
    assert_eq!(load(&host, "", "b", &model, cache.path())?.status(), 202);
    let partial = |path: &PathBuf| path.extension().is_some_and(|e| e == "partial");
    wait("the compilation to begin", || match listed(cache.path()).iter().any(partial) {
        true => Ok(()),
        false => Err(format!("{:?}", listed(cache.path()))),
    });
    assert_eq!(unload(&host, "b")?.status(), 200);
    wait("the partial folder to be gone", || match listed(cache.path()) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    });
    // It can be had again, and the host serves on.
    let up = load(&host, "?wait=true&timeout=240s", "b", &model, cache.path())?;
    assert_eq!(up.status(), 200, "{}", up.text());
    Ok(())
}

#[test]
fn what_cannot_be_served_exactly_is_refused_with_the_way_out_and_nothing_is_written() -> Result<()> {
    let Some(host) = host() else { return Ok(()) };
    let (cache, files) = (TempDir::new(), TempDir::new());
    let refused = |path: &Path, words: &[&str]| -> Result<()> {
        let error = load(&host, "?wait=true", "b", path, cache.path())?.error(500);
        let message = error["message"].as_str().unwrap_or_default();
        for word in words {
            assert!(message.contains(word), "{word:?} is not in {message}");
        }
        assert_eq!(listed(cache.path()), [] as [&Path; 0]);
        Ok(())
    };
    refused(&fixture("gemma2-gguf/model.gguf"), &["gemma2 caps its attention scores", "choose another"])?;
    refused(&fixture("gemma2-hf"), &["gemma2 caps its attention scores"])?;
    let folder = files.path().join("mamba");
    std::fs::create_dir(&folder)?;
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture("qwen3-hf").join(name), folder.join(name))?;
    }
    let config: Value = serde_json::from_slice(&std::fs::read(folder.join("config.json"))?)?;
    std::fs::write(folder.join("config.json"), config.to_string().replace("\"qwen3\"", "\"mamba2\""))?;
    refused(&folder, &["mamba2", "not supported", "--gguf-loader library"])?;
    // A folder for the cache that is none.
    let blocked = files.file("cache", "a file");
    let model = fixture("qwen2-gguf/model.gguf");
    let error = load(&host, "?wait=true", "b", &model, &blocked)?.error(500);
    assert!(error["message"].as_str().is_some_and(|m| m.contains(&blocked.display().to_string())), "{error}");
    Ok(())
}
