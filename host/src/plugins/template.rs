//! `cascadia-host plugin new`: projects for new plugins, whole. The texts are in `templates/` and in the boundary's own
//! sources, all of them in this binary: nothing is published, and a project builds without this workspace.

use std::fs;
use std::path::Path;

/// Language of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// The SDK's traits.
    Rust,
    /// The headers.
    C,
}

/// A file of a project: where it goes, and what is in it.
type File = (&'static str, &'static str);

macro_rules! from {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../", $folder, "/", $name)))),*]
    };
}

const RUST: &[File] = from!("templates/plugin-rust":
    "Cargo.toml", "README.md", "manifest.json", "src/lib.rs", "tests/check.rs", "sdk/Cargo.toml", "sdk/README.md",
);
/// The crate of the boundary; they go to `sdk/`.
const SDK: &[File] = from!("plugin-api":
    "abi.frozen", "abi.lock", "src/abi.rs", "src/ext.rs", "src/ext/draft.rs", "src/frozen.rs", "src/lib.rs", "src/lock.rs", "src/manifest.rs", "src/proof.rs", "src/sdk.rs",
    "src/table.rs", "src/abi/builder.rs", "src/abi/chunk.rs", "src/abi/code.rs", "src/abi/engine.rs", "src/abi/entry.rs",
    "src/abi/host.rs", "src/abi/plugin.rs", "src/abi/prim.rs", "src/abi/task.rs", "src/sdk/chunk.rs", "src/sdk/engine.rs",
    "src/sdk/error.rs", "src/sdk/export.rs", "src/sdk/guard.rs", "src/sdk/host.rs", "src/sdk/serial.rs", "src/sdk/serial/turns.rs",
    "src/sdk/task.rs", "src/sdk/trace.rs", "src/sdk/transport.rs",
    "src/ext/draft/adapters.rs", "src/ext/draft/async_sink.rs", "src/ext/draft/embeddings.rs",
    "src/ext/draft/kv_events.rs", "src/ext/draft/kv_state.rs", "src/ext/draft/pause.rs",
    "src/ext/draft/stage.rs", "src/ext/draft/token_mask.rs", "src/ext/draft/tokenize.rs", "src/sdk/ext.rs",
    "src/sdk/ext/adapters.rs", "src/sdk/ext/async_sink.rs", "src/sdk/ext/embeddings.rs",
    "src/sdk/ext/kv_events.rs", "src/sdk/ext/kv_state.rs", "src/sdk/ext/pause.rs", "src/sdk/ext/stage.rs",
    "src/sdk/ext/token_mask.rs", "src/sdk/ext/tokenize.rs",
);
const C: &[File] = from!("templates/plugin-c": "Makefile", "README.md");
const HEADERS: &[File] =
    from!("plugin-api/include": "cascadia_plugin.h", "cascadia_plugin.hpp", "cascadia_sdk.h");
const ENGINE_C: &str = include_str!("../../../plugins/examples/echo-c/echo.c");

impl Language {
    /// The command that builds a project.
    pub fn build(self) -> &'static str {
        match self {
            Language::Rust => "cargo build",
            Language::C => "make",
        }
    }

    /// Where the library lies then.
    pub fn library(self, name: &str) -> String {
        let file = format!("lib{}.so", name.replace('-', "_"));
        match self {
            Language::Rust => format!("target/debug/{file}"),
            Language::C => file,
        }
    }

    /// The files of a project called `name`.
    fn files(self, name: &str) -> Vec<(String, String)> {
        let named = |text: &str| {
            text.replace("my-engine", name)
                .replace("my_engine", &name.replace('-', "_"))
                .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        };
        let own = |files: &[File]| {
            files.iter().map(|(at, text)| ((*at).to_owned(), named(text))).collect::<Vec<_>>()
        };
        let as_they_are = |below: &str, files: &[File]| {
            files.iter().map(|(at, text)| (format!("{below}{at}"), (*text).to_owned())).collect::<Vec<_>>()
        };
        match self {
            Language::Rust => [own(RUST), as_they_are("sdk/", SDK)].concat(),
            Language::C => {
                let engine = ENGINE_C.replace("echo-c", name).replace("\"echo\"", &format!("\"{name}\""));
                let engine = vec![("engine.c".to_owned(), engine)];
                [own(C), engine, as_they_are("", HEADERS)].concat()
            }
        }
    }
}

/// Writes a project into `folder`, which must not be there or be empty; answers the number of files.
pub fn write(name: &str, language: Language, folder: &Path) -> Result<usize, String> {
    valid(name)?;
    let in_the_way = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_some(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
        Err(e) => return Err(format!("{} cannot be read: {e}", folder.display())),
    };
    if in_the_way {
        let folder = folder.display();
        return Err(format!("{folder} is not empty, and nothing is overwritten; choose another with --path"));
    }
    let files = language.files(name);
    for (at, text) in &files {
        let path = folder.join(at);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        made.map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
    }
    Ok(files.len())
}

/// A name must do as the plugin's id and as a crate's name.
fn valid(name: &str) -> Result<(), String> {
    let parts = name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    let ends = name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.ends_with('-');
    if parts && ends && name.len() <= 64 {
        return Ok(());
    }
    Err(format!("{name:?} is no name for a plugin; use a-z, 0-9 and -, beginning with a letter"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn sources(folder: &Path, below: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("the boundary's sources") {
            let entry = entry.expect("readable");
            let name = format!("{below}{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                sources(&entry.path(), &format!("{name}/"), found);
            } else {
                found.insert(name);
            }
        }
    }

    #[test]
    fn every_source_of_the_boundary_is_in_the_project() {
        let mut found = BTreeSet::from(["abi.frozen", "abi.lock"].map(str::to_owned));
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugin-api/src"), "src/", &mut found);
        assert_eq!(found, SDK.iter().map(|(at, _)| (*at).to_owned()).collect());
        let mut headers = BTreeSet::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugin-api/include"), "", &mut headers);
        assert_eq!(headers, HEADERS.iter().map(|(at, _)| (*at).to_owned()).collect());
    }

    #[test]
    fn a_project_has_its_own_name_everywhere() {
        for language in [Language::Rust, Language::C] {
            let own = |at: &str| !at.starts_with("sdk/src/") && !at.starts_with("cascadia_");
            for (at, text) in language.files("fast-llm").into_iter().filter(|(at, _)| own(at)) {
                for old in ["my-engine", "my_engine", "@VERSION@"] {
                    assert!(!text.contains(old), "{at} has {old}");
                }
            }
        }
        let engine = Language::C.files("fast-llm");
        let engine = &engine.iter().find(|(at, _)| at == "engine.c").expect("engine.c").1;
        assert!(engine.contains("\"fast-llm\"") && !engine.contains("echo-c"));
    }

    #[test]
    fn the_commands_of_a_project_are_ones_that_the_host_takes() {
        for language in [Language::Rust, Language::C] {
            let files = language.files("fast-llm");
            let readme = &files.iter().find(|(at, _)| at == "README.md").expect("README.md").1;
            let asks = readme.split("curl ").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
            for command in asks {
                assert!(command.contains("-H 'content-type: application/json'"), "{command}");
            }
            assert!(readme.contains(&format!("--plugin ./{}", language.library("fast-llm"))), "{readme}");
        }
    }

    #[test]
    fn nothing_is_overwritten() {
        let folder = std::env::temp_dir().join(format!("cascadia-template-{}", std::process::id()));
        let files = write("one", Language::C, &folder).expect("a fresh folder");
        assert!(files >= 5);
        assert!(write("one", Language::C, &folder).expect_err("there").contains("not empty"));
        fs::remove_dir_all(&folder).expect("ours");
        assert!(write("Two", Language::C, &folder).expect_err("a capital").contains("no name"));
        assert!(!folder.exists());
    }
}
