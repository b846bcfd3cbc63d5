//! What a path is taken for, and how refusals read.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::*;

/// The compiler's tiny models: one of each family.
fn model(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ov-ir/tests/models").join(name);
    let file = folder.join("model.gguf");
    if file.is_file() { file } else { folder }
}

/// A folder of its own, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("cascadia-ov-base-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    /// All layers of a tiny model, or some, compiled into a folder.
    fn compiled(&self, name: &str, layers: Option<std::ops::Range<usize>>) -> PathBuf {
        let folder = self.0.join(name);
        let target = ov_ir::Target::Folder(folder.clone());
        let request = ov_ir::Request { layers, ..ov_ir::Request::whole(model(name), target) };
        ov_ir::compile(&request, &mut ()).unwrap();
        folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn refusal(path: &Path) -> Error {
    Source::of(path, Loader::Own).expect_err("refused")
}

#[test]
fn what_is_no_whole_model_is_refused_before_the_library_sees_it() {
    let scratch = Scratch::new("refused");
    let said = |path: &Path| refusal(path).message;
    assert!(said(&scratch.0).contains("openvino_model.xml"));
    assert!(said(&scratch.0.join("absent.gguf")).contains("absent.gguf"));
    let file = scratch.0.join("m.gguf");
    fs::write(&file, "text").unwrap();
    assert!(said(&file).contains("neither a GGUF file"));
    // A file whose header promises more than is there.
    let bytes = fs::read(model("llama-gguf")).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 4096]).unwrap();
    assert!(said(&file).contains("fetch it again"), "{}", said(&file));
    fs::write(&file, &bytes).unwrap();
    assert_eq!(Source::of(&file, Loader::Own).unwrap().source, Source::Compile);
    assert_eq!(Source::of(&file, Loader::Library), Ok(Source::Library.into()));
}

#[test]
fn folders_are_compiled_unless_they_have_a_network() {
    let scratch = Scratch::new("folders");
    let found = |path: &Path| Source::of(path, Loader::Own).unwrap().source;
    assert_eq!(found(&model("qwen2-hf")), Source::Compile);
    assert_eq!(found(&scratch.compiled("qwen2-hf", None)), Source::Network);
    let stage = refusal(&scratch.compiled("llama-hf", Some(0..1)));
    assert!(stage.message.contains("layers 0..1 of 2"), "{}", stage.message);
    // Another maker's network has no manifest.
    let other = scratch.0.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join(XML), "<net/>").unwrap();
    assert_eq!(Source::of(&other, Loader::Own), Ok(Source::Network.into()));
    // A network of ours that was cut short since.
    let cut = scratch.compiled("mistral-hf", None);
    fs::File::options().write(true).open(cut.join(ov_ir::BIN)).unwrap().set_len(100).unwrap();
    assert!(refusal(&cut).message.contains("compile the model again"));
}

#[test]
fn a_family_that_is_not_supported_is_named_with_the_way_out() {
    let scratch = Scratch::new("family");
    let mut bytes = fs::read(model("qwen3-gguf")).unwrap();
    for at in 0..2000 {
        if bytes[at..].starts_with(b"qwen3") {
            bytes[at..at + 5].copy_from_slice(b"rwkv6");
        }
    }
    let file = scratch.0.join("m.gguf");
    fs::write(&file, bytes).unwrap();
    let error = refusal(&file);
    assert_eq!(error.code, code::UNSUPPORTED);
    for word in ["rwkv6", "converted is served", "m.gguf"] {
        assert!(error.message.contains(word), "{word} in {}", error.message);
    }
}

#[test]
fn capped_attention_scores_are_seen_in_every_form() {
    let scratch = Scratch::new("capped");
    let capped = |path: &Path| Source::of(path, Loader::Own).expect("found").capped;
    let ours = |path: &Path| Source::of(path, Loader::Own).expect("found").ours;
    let compiled = scratch.compiled("gemma2-gguf", None);
    for path in [model("gemma2-gguf"), model("gemma2-hf"), compiled.clone()] {
        assert_eq!(capped(&path).as_deref(), Some("gemma2"), "{}", path.display());
    }
    // As another maker's network comes: without our manifest.
    assert!(ours(&compiled) && ours(&model("gemma2-hf")));
    fs::remove_file(compiled.join(MANIFEST)).unwrap();
    assert!(!ours(&compiled));
    assert_eq!(capped(&compiled), None, "nothing says so");
    let config = compiled.join("config.json");
    for (text, family) in [
        (r#"{"model_type":"gemma2","attn_logit_softcapping":50.0}"#, Some("gemma2")),
        (r#"{"text_config":{"attn_logit_softcapping":50.0}}"#, Some("its family")),
        (r#"{"model_type":"gemma3","attn_logit_softcapping":null}"#, None),
    ] {
        fs::write(&config, text).unwrap();
        assert_eq!(capped(&compiled).as_deref(), family, "{text}");
    }
}

#[test]
fn a_full_disk_and_a_locked_folder_say_which_option_helps() {
    let of = |kind: ErrorKind| {
        let source = std::io::Error::from(kind);
        refused(&ov_ir::Error::Io { what: "write", path: "/c/openvino_model.bin".into(), source }).message
    };
    assert!(of(ErrorKind::StorageFull).contains("--cache-limit"), "{}", of(ErrorKind::StorageFull));
    assert!(of(ErrorKind::PermissionDenied).ends_with("--cache-dir"), "{}", of(ErrorKind::PermissionDenied));
    assert!(of(ErrorKind::StorageFull).contains("/c/openvino_model.bin"));
}

#[test]
fn a_network_embeds_if_it_gives_states_and_no_logits() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ov-genai/tests/models");
    assert!(embeds(&models.join("bert")));
    assert!(!embeds(&models));
}
