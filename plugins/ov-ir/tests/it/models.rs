//! The tiny models that `reference/make.py` writes with their logits. The folder `tests/models` is the list of them: what
//! lies there is tested, by the compiler's tests and by those of the engine that runs what it writes.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Where they are.
pub(crate) fn folder() -> PathBuf {
    // Also from a crate beside this one.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ov-ir/tests/models")
}

/// The names of all, sorted: a family and a form, as in `qwen3-gguf`.
pub(crate) fn all() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("case.json").is_file())
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    // Every family that the compiler has, in each form that it comes in.
    assert!(names.len() >= 15, "only {names:?} are there; reference/make.py writes them");
    names
}

/// What is compiled of one.
pub(crate) fn source(name: &str) -> PathBuf {
    let folder = folder().join(name);
    let file = folder.join("model.gguf");
    if file.exists() { file } else { folder }
}

/// Its `case.json` (token ids, a prompt's length and the greedy answer), and a row of logits for each of the ids.
pub(crate) fn case(name: &str) -> (Value, Vec<Vec<f32>>) {
    let folder = folder().join(name);
    let case: Value = serde_json::from_slice(&std::fs::read(folder.join("case.json")).unwrap()).unwrap();
    let vocab = case["vocab"].as_u64().unwrap() as usize;
    let bytes = std::fs::read(folder.join("logits.bin")).unwrap();
    let logits: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    (case, logits.chunks_exact(vocab).map(<[f32]>::to_vec).collect())
}
