//! Models that take pictures too: their text model is the text model, and what is left out is told.

use std::fs;
use std::path::{Path, PathBuf};

use cascadia_ov_ir::{BIN, Error, Inspection, XML, compile, inspect};
use serde_json::{Map, Value, json};

use crate::fixture::{Scratch, request, whole};
use crate::models::source;

/// A tiny text model as a part of a model that takes pictures: its configuration within another one, its tensors renamed,
/// and two parts beside it.
struct Wrapped<'a> {
    text: &'a str,
    outer: &'a str,
    /// What stands before `model.` and before `lm_head.`, and before the parts beside it.
    prefixes: [&'a str; 3],
    /// Keys that its configuration leaves out.
    without: &'a [&'a str],
}

impl Wrapped<'_> {
    fn write(&self, to: &Path) -> PathBuf {
        drop(fs::remove_dir_all(to));
        fs::create_dir(to).unwrap();
        let from = source(self.text);
        let config = fs::read(from.join("config.json")).unwrap();
        let mut text: Map<String, Value> = serde_json::from_slice(&config).unwrap();
        text.retain(|key, _| !self.without.contains(&key.as_str()));
        let config =
            json!({"model_type": self.outer, "text_config": text, "vision_config": {"hidden_size": 8}});
        fs::write(to.join("config.json"), config.to_string()).unwrap();

        let file = fs::read(from.join("model.safetensors")).unwrap();
        let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        let (head, mut data) = (&file[8..8 + length], file[8 + length..].to_vec());
        let table: Map<String, Value> = serde_json::from_slice(head).unwrap();
        let [body, head, beside] = self.prefixes;
        let renamed = table.into_iter().map(|(name, row)| match name.strip_prefix("model.") {
            Some(rest) => (format!("{body}{rest}"), row),
            None => (format!("{head}{name}"), row),
        });
        let mut table: Map<String, Value> = renamed.collect();
        for name in ["vision_tower.encoder.weight", "vision_tower.norm.bias", "multi_modal_projector.weight"]
        {
            let row =
                json!({"dtype": "BF16", "shape": [4, 2], "data_offsets": [data.len(), data.len() + 16]});
            table.insert(format!("{beside}{name}"), row);
            data.extend([1; 16]);
        }
        let head = Value::Object(table).to_string();
        let bytes = [&(head.len() as u64).to_le_bytes(), head.as_bytes(), &data].concat();
        fs::write(to.join("model.safetensors"), bytes).unwrap();
        to.to_owned()
    }
}

/// As Gemma 3 is published, and as later versions of transformers write it.
const LAYOUTS: [[&str; 3]; 2] =
    [["language_model.model.", "language_model.", ""], ["model.language_model.", "", "model."]];

#[test]
fn the_text_model_in_a_model_that_takes_pictures_is_the_text_model() {
    let scratch = Scratch::new("pictures");
    for (text, outer) in [("gemma3-hf", "gemma3"), ("mistral-hf", "mistral3")] {
        let alone = whole(text, &scratch.path(text));
        for (number, prefixes) in LAYOUTS.into_iter().enumerate() {
            let model = Wrapped { text, outer, prefixes, without: &[] }.write(&scratch.path("model"));
            let out = scratch.path(&format!("{outer}-{number}"));
            let found = compile(&request(&model, &out), &mut ()).unwrap().manifest;
            assert_eq!(found.files[BIN], alone.manifest.files[BIN], "{outer} {number}");
            assert_eq!(found.files[XML], alone.manifest.files[XML], "{outer} {number}");
            assert_eq!(found.model, alone.manifest.model);
            let left: Vec<_> =
                found.weights.left_out.iter().map(|(n, s)| (n.as_str(), s.tensors, s.bytes)).collect();
            assert_eq!(left, [("multi_modal_projector", 1, 16), ("vision_tower", 2, 32)]);
            let Inspection::Source(seen) = inspect(&model).unwrap() else { panic!("a folder is a source") };
            assert_eq!(seen.left_out, found.weights.left_out);
        }
        assert!(alone.manifest.weights.left_out.is_empty());
    }
}

#[test]
fn what_the_inner_configuration_leaves_out_is_what_its_class_has() {
    let scratch = Scratch::new("pictures-defaults");
    let alone = whole("gemma3-hf", &scratch.path("alone"));
    let of = |text: &str, outer: &str, without: &[&str]| {
        let model = Wrapped { text, outer, prefixes: LAYOUTS[0], without }.write(&scratch.path("model"));
        drop(fs::remove_dir_all(scratch.path("out")));
        compile(&request(&model, &scratch.path("out")), &mut ())
    };
    // A base of a million, where text models alone have ten thousand.
    let same = of(
        "gemma3-hf",
        "gemma3",
        &["model_type", "rope_theta", "rope_local_base_freq", "tie_word_embeddings"],
    );
    assert_eq!(same.unwrap().manifest.files[XML], alone.manifest.files[XML]);
    for (text, outer, key, shape) in [
        ("gemma3-hf", "gemma3", "num_attention_heads", "[128, 32] is needed"),
        ("gemma3-hf", "gemma3", "num_key_value_heads", "cannot be"),
        ("gemma3-hf", "gemma3", "head_dim", "[512, 32] is needed"),
        ("gemma3-hf", "gemma3", "hidden_size", "[64, 2304] is needed"),
        ("gemma3-hf", "gemma3", "num_hidden_layers", "26 layers"),
        ("mistral-hf", "mistral3", "num_attention_heads", "[512, 32] is needed"),
        ("mistral-hf", "mistral3", "hidden_size", "[64, 4096] is needed"),
        ("mistral-hf", "mistral3", "num_hidden_layers", "tensor language_model.model.layers.2."),
    ] {
        let said = of(text, outer, &[key]).unwrap_err().to_string();
        assert!(said.contains(shape), "{key}: {said}");
    }
    // A window of 4096, where none is given.
    of("mistral-hf", "mistral3", &["sliding_window"]).unwrap();
    let Inspection::Source(seen) = inspect(&scratch.path("model")).unwrap() else {
        panic!("a folder is a source")
    };
    assert_eq!(seen.windows.keys().copied().collect::<Vec<_>>(), [4096]);
}

#[test]
fn another_model_in_it_and_a_part_that_nobody_knows_are_refused_by_name() {
    let scratch = Scratch::new("pictures-refused");
    let refusal = |wrapped: Wrapped| {
        let error = inspect(&wrapped.write(&scratch.path("model"))).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        error.to_string()
    };
    let gemma = |outer, prefixes| Wrapped { text: "gemma3-hf", outer, prefixes, without: &[] };
    let said = refusal(gemma("llava", LAYOUTS[0]));
    assert!(said.contains("the model type llava"), "{said}");
    let said = refusal(gemma("mistral3", LAYOUTS[0]));
    assert!(said.contains("mistral3 with a text model of the type gemma3_text"), "{said}");
    // Audio would be lost silently.
    let said = refusal(gemma("gemma3", ["language_model.model.", "language_model.", "audio_tower."]));
    assert!(said.contains("tensor audio_tower."), "{said}");
}
