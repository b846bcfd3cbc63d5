//! `cargo xtask tidy`: the house rules that a tool can check.
//!
//! Holds: each finding names a file, a line and the way out; all are printed before the command fails. The rules are
//! the files of `tidy/`, each a pure function of texts with tests that break it; names come from `tidy.toml`.

mod circles;
mod crates;
mod doors;
mod files;
mod layers;
mod licences;
mod policy;
mod source;
mod texts;

use crate::place::Place;
use crate::proc;
use anyhow::{Context, Result, bail};
use policy::{Deny, Policy};
use source::Module;
use std::path::{Path, PathBuf};

/// A breach of a rule, or (`fails` false) a remark.
#[derive(Debug, PartialEq)]
struct Finding {
    file: String,
    line: usize,
    text: String,
    fails: bool,
}

impl Finding {
    fn breach(file: &str, line: usize, text: impl Into<String>) -> Finding {
        Finding { file: file.to_owned(), line, text: text.into(), fails: true }
    }

    fn remark(file: &str, line: usize, text: impl Into<String>) -> Finding {
        Finding { file: file.to_owned(), line, text: text.into(), fails: false }
    }
}

/// A text of the tree; `name` is its path from the root, with `/`.
struct Text {
    name: String,
    text: String,
}

pub(crate) fn run(place: &Place) -> Result<()> {
    let policy = Policy::read(&place.root.join("tidy.toml"))?;
    let deny = Deny::read(&place.root.join("deny.toml"))?;
    let texts = texts(&place.root)?;
    let modules = Module::all(&policy.layers.root, &texts);

    let mut found = files::check(&policy, &texts);
    found.extend(texts::check(&policy, &texts));
    found.extend(layers::check(&policy.layers, &modules));
    found.extend(doors::check(&policy, &modules));
    found.extend(circles::check(&modules));
    found.extend(crates::check(&policy.crates, &metadata(place, &["--no-deps"])?));
    let platform = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    found.extend(licences::check(&deny, &metadata(place, &platform)?));

    found.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    for one in &found {
        let kind = if one.fails { "" } else { "remark: " };
        eprintln!("{}:{}: {kind}{}", one.file, one.line, one.text);
    }
    match found.iter().filter(|one| one.fails).count() {
        0 => Ok(()),
        1 => bail!("1 house rule is broken; see above"),
        n => bail!("{n} house rules are broken; see above"),
    }
}

fn metadata(place: &Place, more: &[&str]) -> Result<serde_json::Value> {
    let mut command = proc::cargo(&place.root);
    let text = proc::output(command.args(["metadata", "--format-version", "1"]).args(more))?;
    serde_json::from_str(&text).context("read cargo metadata")
}

/// Endings of the files that are read as text, beside those without any ending.
const READ: [&str; 13] =
    ["rs", "md", "toml", "json", "py", "cpp", "hpp", "h", "map", "lock", "jinja", "yml", "yaml"];

/// Every text of the tree but build outputs and hidden folders; sorted.
fn texts(root: &Path) -> Result<Vec<Text>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
            let path: PathBuf = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let hidden = name.starts_with('.') && !matches!(name.as_str(), ".ci" | ".config" | ".cargo");
            if hidden
                || matches!(name.as_str(), "target" | "__pycache__" | "node_modules")
                || path.is_symlink()
            {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_none_or(|end| READ.contains(&end.to_string_lossy().as_ref())) {
                // A file that is no text has no lines to check.
                let Ok(text) = std::fs::read_to_string(&path) else { continue };
                let name = path.strip_prefix(root).context("a path below the root")?;
                found.push(Text { name: name.to_string_lossy().into_owned(), text });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}
