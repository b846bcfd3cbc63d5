//! Requests that compile the tiny models, and folders to compile into.

use std::path::{Path, PathBuf};

use cascadia_ov_ir::{Report, Request, Target, compile};
use serde_json::Value;

use crate::models::{self, source};

/// Token ids and a row of logits for each.
pub(crate) fn case(name: &str) -> (Vec<i64>, Vec<Vec<f32>>) {
    let (case, logits) = models::case(name);
    (ids(&case), logits)
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
    Request::whole(source.to_owned(), Target::Folder(folder.to_owned()))
}

pub(crate) fn whole(name: &str, folder: &Path) -> Report {
    compile(&request(&source(name), folder), &mut ()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Names in a folder, but for locks and notes.
pub(crate) fn listed(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| !name.ends_with(".lock") && name != "digests")
        .collect();
    names.sort();
    names
}

/// A folder's files in another folder, which begins empty.
pub(crate) fn copy(from: &Path, to: &Path) -> PathBuf {
    drop(std::fs::remove_dir_all(to));
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
    to.to_owned()
}
