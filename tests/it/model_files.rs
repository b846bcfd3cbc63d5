//! `model compile`, `inspect` and `verify` on the compiler's tiny models.

use std::path::PathBuf;

use cascadia_tests::host::run;
use cascadia_tests::{TempDir, setup};
use serde_json::Value;

fn source(name: &str) -> String {
    setup::root().join("plugins/ov-ir/tests/models").join(name).display().to_string()
}

#[test]
fn a_model_is_compiled_found_again_and_verified() {
    let folder = TempDir::new();
    let cache = folder.path().join("cache").display().to_string();
    let args = ["model", "compile", &source("qwen2-gguf/model.gguf"), &cache, "--cache"];
    let first = run(&args);
    assert_eq!((first.status.code(), first.complaint.as_str()), (Some(0), ""));
    let made = PathBuf::from(first.output.lines().next().unwrap());
    assert!(made.join("openvino_model.xml").is_file() && made.join("openvino_model.bin").is_file());
    assert!(first.output.contains("Q4_K: 2 matrices"), "{}", first.output);
    let again = run(&args);
    assert_eq!(again.output.lines().next(), Some(format!("{}, found", made.display()).as_str()));

    let shown = made.display().to_string();
    assert_eq!(run(&["model", "verify", &shown]).status.code(), Some(0));
    let verified = run(&["model", "verify", &shown, "--json"]);
    let json: Value = serde_json::from_str(&verified.output).expect("JSON");
    let compiled = run(&[&args[..], &["--json"]].concat());
    assert_eq!(json, serde_json::from_str::<Value>(&compiled.output).expect("JSON"));
    assert!(json["files"]["openvino_model.bin"]["sha256"].is_string(), "{json}");
    std::fs::write(made.join("openvino_model.xml"), "<net/>").unwrap();
    let broken = run(&["model", "verify", &shown]);
    broken.complains(1, &["openvino_model.xml", "6 bytes", "compile the model again"]);
    let broken = run(&["model", "verify", &shown, "--json"]);
    broken.complains(1, &["openvino_model.xml", "compile the model again"]);
    assert_eq!(broken.output, "");
}

#[test]
fn an_inspection_is_text_or_json_and_refusals_name_the_feature() {
    let seen = run(&["model", "inspect", &source("gemma3-gguf/model.gguf")]);
    assert!(seen.output.contains("family     gemma3, 7 layers"), "{}", seen.output);
    assert!(seen.output.contains("window     8 in 6 layers"), "{}", seen.output);
    let json: Value =
        serde_json::from_str(&run(&["model", "inspect", &source("llama-hf"), "--json"]).output).unwrap();
    assert_eq!(
        (&json["what"], &json["kind"], &json["tied"]),
        (&"source".into(), &"safetensors".into(), &false.into())
    );

    let folder = TempDir::new();
    let out = folder.path().join("out").display().to_string();
    let wrong: &[(&[&str], i32, &[&str])] = &[
        (&[&source("llama-hf"), &out, "--layers", "1..3"], 2, &["1..3", "has 2"]),
        (&[&source("llama-hf"), &out, "--layers", "1-2"], 2, &["FIRST..END"]),
        (&[&source("llama-hf"), &out, "--quantize", "int4", "--group", "48"], 1, &["groups of 48"]),
        (&[&source("nothing"), &out], 1, &["nothing"]),
    ];
    for (args, status, words) in wrong {
        let args: Vec<&str> = ["model", "compile"].iter().chain(*args).copied().collect();
        run(&args).complains(*status, words);
    }
    assert!(!folder.path().join("out").exists());
}
