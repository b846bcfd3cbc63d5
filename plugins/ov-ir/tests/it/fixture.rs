//! Tiny models with reference logits (`reference/make.py` writes them), and folders to compile into.

use std::path::{Path, PathBuf};

use cascadia_ov_ir::{Report, Request, Target, compile};
use serde_json::Value;

/// Families and forms; each is a folder of `tests/models`.
pub(crate) const ALL: [&str; 15] = [
    "gemma-hf",
    "gemma2-gguf",
    "gemma2-hf",
    "gemma3-gguf",
    "gemma3-hf",
    "llama-gguf",
    "llama-hf",
    "mistral-hf",
    "phi3-hf",
    "qwen2-gguf",
    "qwen2-hf",
    "qwen3-gguf",
    "qwen3-hf",
    "smollm3-gguf",
    "smollm3-hf",
];

pub(crate) fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models")
}

/// What is compiled of a fixture.
pub(crate) fn source(name: &str) -> PathBuf {
    let folder = models().join(name);
    let file = folder.join("model.gguf");
    if file.exists() { file } else { folder }
}

/// Token ids and a row of logits for each.
pub(crate) fn case(name: &str) -> (Vec<i64>, Vec<Vec<f32>>) {
    let folder = models().join(name);
    let case: Value = serde_json::from_slice(&std::fs::read(folder.join("case.json")).unwrap()).unwrap();
    let vocab = case["vocab"].as_u64().unwrap() as usize;
    let bytes = std::fs::read(folder.join("logits.bin")).unwrap();
    let logits: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    (ids(&case), logits.chunks_exact(vocab).map(<[f32]>::to_vec).collect())
}

pub(crate) fn ids(case: &Value) -> Vec<i64> {
    case["ids"].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
}

/// A folder that goes with the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// All layers of a source into a folder.
pub(crate) fn request(source: &Path, folder: &Path) -> Request {
    Request {
        source: source.to_owned(),
        target: Target::Folder(folder.to_owned()),
        layers: None,
        quantize: None,
        context: None,
    }
}

pub(crate) fn whole(name: &str, folder: &Path) -> Report {
    compile(&request(&source(name), folder), &mut ()).unwrap_or_else(|error| panic!("{name}: {error}"))
}
