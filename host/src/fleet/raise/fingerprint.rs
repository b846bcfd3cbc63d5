//! What identifies the way a model's answers are made: with the same fingerprint and the same seed they are the same, as far
//! as the engine makes them so.
//!
//! It is a digest of the plugin and its version, the engine and its options (no secret ones), the device and the
//! quantization that the model card names, and the model's files. Of a file count its name, its length, and its first and
//! last 64 KiB: the header says what is stored and how, the end is weights. The whole would take minutes. The served name
//! counts only where there are no files.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::fleet::job::Job;
use crate::plugins::Card;
use crate::plugins::manifest::Manifest;

/// What is read of a file at its beginning and at its end.
const PART: u64 = 64 << 10;
/// Most files of a folder that count.
const FILES: usize = 1024;

/// The fingerprint of the model that `job` builds.
pub(super) fn of(manifest: &Manifest, job: &Job, card: &Card) -> String {
    let mut sum = Sum(Sha256::new());
    for text in [&manifest.id, &manifest.version, &job.engine, &card.device, &card.quantization] {
        sum.add(text.as_bytes());
    }
    for (name, value) in &job.options {
        if !manifest.about.options.get(name).is_some_and(|spec| spec.secret) {
            sum.add(name.as_bytes());
            sum.add(value.as_bytes());
        }
    }
    match &job.path {
        None => sum.add(job.name.as_bytes()),
        Some(path) => files_of(path).iter().for_each(|file| sum.add_file(file)),
    }
    let digest = sum.0.finalize();
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("fp_{hex}")
}

struct Sum(Sha256);

impl Sum {
    /// With its length, so that what follows is not taken for a part of it.
    fn add(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// The engine has read what it needs; of what cannot be read only the name counts.
    fn add_file(&mut self, path: &Path) {
        self.add(path.file_name().unwrap_or_default().as_encoded_bytes());
        if let Ok((length, ends)) = ends(path) {
            self.add(&length.to_le_bytes());
            self.add(&ends);
        }
    }
}

/// The file, all parts of a split one, or those of the folder in the order of their names.
fn files_of(path: &Path) -> Vec<PathBuf> {
    let Ok(folder) = fs::read_dir(path) else {
        let parts = path.file_name().and_then(|name| cascadia_gguf::part_names(&name.to_string_lossy()));
        return parts.map_or_else(
            || vec![path.to_owned()],
            |names| names.iter().take(FILES).map(|name| path.with_file_name(name)).collect(),
        );
    };
    let hidden = |path: &PathBuf| path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"."));
    let all = folder.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<_> = all.filter(|path| path.is_file() && !hidden(path)).take(FILES).collect();
    files.sort();
    files
}

/// A file's length, and its bytes but for the middle of a long one.
fn ends(path: &Path) -> io::Result<(u64, Vec<u8>)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    file.by_ref().take(PART).read_to_end(&mut bytes)?;
    file.seek(SeekFrom::Start(length.saturating_sub(PART).max(PART.min(length))))?;
    file.take(PART).read_to_end(&mut bytes)?;
    Ok((length, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = r#"{"manifest":1,"id":"p","version":"1","abi":[1,0],"tables":{},"about":{"options":
        {"token":{"type":"string","secret":true},"profile":{"type":"string"}}}}"#;

    fn card() -> Card {
        serde_json::from_str(r#"{"device":"CPU","quantization":"q4"}"#).expect("a card")
    }

    #[test]
    fn whatever_changes_answers_changes_the_fingerprint_and_nothing_else_does() {
        let manifest = crate::plugins::manifest::read(MANIFEST.as_bytes()).expect("valid");
        let folder = std::env::temp_dir().join(format!("cascadia-fingerprint-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            fs::write(&path, bytes).expect("a file");
            Some(path)
        };
        let long = |first: u8, last: u8| {
            let mut bytes = vec![0; 300 << 10];
            bytes[9] = first;
            bytes[(300 << 10) - 9] = last;
            bytes
        };
        let mut job = Job::for_test("m");
        job.path = write("m.gguf", &long(1, 1));
        let base = of(&manifest, &job, &card());
        assert!(base.len() == 19 && base.starts_with("fp_"), "{base}");
        let same = Job { name: "another".to_owned(), ..job.clone() };
        assert_eq!(of(&manifest, &same, &card()), base, "a name changes no answer");
        job.options.insert("token".to_owned(), "hush".to_owned());
        assert_eq!(of(&manifest, &job, &card()), base, "a secret is no part of it");
        let mut all = vec![base];
        for bytes in [long(2, 1), long(1, 2), vec![0; 70 << 10], vec![1; 10], Vec::new()] {
            job.path = write("m.gguf", &bytes);
            all.push(of(&manifest, &job, &card()));
        }
        all.push(of(&manifest, &job, &Card { quantization: "q8".to_owned(), ..card() }));
        all.push(of(&manifest, &job, &Card { device: "GPU".to_owned(), ..card() }));
        job.path = write("s-00001-of-00002.gguf", &[1]);
        for second in [&[1], &[2]] {
            write("s-00002-of-00002.gguf", second);
            all.push(of(&manifest, &job, &card()));
        }
        job.options.insert("profile".to_owned(), "fast".to_owned());
        all.push(of(&manifest, &job, &card()));
        job.path = Some(folder.clone());
        write("more.json", b"{}");
        all.push(of(&manifest, &job, &card()));
        job.path = None;
        all.push(of(&manifest, &job, &card()));
        job.name = "another".to_owned();
        all.push(of(&manifest, &job, &card()));
        let mut newer = manifest;
        newer.version = "2".to_owned();
        all.push(of(&newer, &job, &card()));
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
        fs::remove_dir_all(&folder).expect("removed");
    }
}
