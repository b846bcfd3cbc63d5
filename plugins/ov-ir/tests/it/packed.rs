//! Folders whose matrices GPTQ, AWQ and compressed-tensors packed; that their values are right is shown by `numbers`.

use std::fs;
use std::path::PathBuf;

use cascadia_ov_ir::{Bits, Inspection, Quantize, Request, compile, inspect};
use serde_json::{Map, Value, json};

use crate::fixture::{Scratch, copy, request, whole};
use crate::models::source;
use crate::refusing::words;

/// A copy of a tiny folder whose files are changed.
struct Changed {
    folder: PathBuf,
    table: Map<String, Value>,
    data: Vec<u8>,
}

impl Changed {
    fn new(name: &str, scratch: &Scratch) -> Self {
        let folder = copy(&source(name), &scratch.path("source"));
        let file = fs::read(folder.join("model.safetensors")).unwrap();
        let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        let table = serde_json::from_slice(&file[8..8 + length]).unwrap();
        Self { folder, table, data: file[8 + length..].to_vec() }
    }

    fn config(self, change: impl FnOnce(&mut Value)) -> Self {
        let path = self.folder.join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut config["quantization_config"]);
        fs::write(path, config.to_string()).unwrap();
        self
    }

    /// The first 32-bit word of a tensor.
    fn word(mut self, name: &str, word: u32) -> Self {
        let at = self.table[name]["data_offsets"][0].as_u64().unwrap() as usize;
        self.data[at..at + 4].copy_from_slice(&word.to_le_bytes());
        self
    }

    fn table(mut self, change: impl FnOnce(&mut Map<String, Value>)) -> Self {
        change(&mut self.table);
        self
    }

    fn write(self) -> PathBuf {
        let head = Value::Object(self.table).to_string();
        let bytes = [&(head.len() as u64).to_le_bytes(), head.as_bytes(), &self.data].concat();
        fs::write(self.folder.join("model.safetensors"), bytes).unwrap();
        self.folder
    }

    fn refused(self, scratch: &Scratch) -> String {
        let folder = self.write();
        let out = scratch.path("out");
        let said = words(&compile(&request(&folder, &out), &mut ()).unwrap_err());
        assert!(!out.exists());
        said
    }
}

const Q: &str = "model.layers.0.self_attn.q_proj";

#[test]
fn packed_integers_are_kept_and_not_rounded_on_request() {
    let scratch = Scratch::new("packed");
    for (name, format, matrices) in [
        ("llama-gptq-hf", "INT4 in groups of 16 with zero points", 14),
        ("mistral-gptq-hf", "INT4 in groups of 32", 14),
        ("qwen2-awq-hf", "INT4 in groups of 16 with zero points", 14),
        ("qwen3-packed-hf", "INT4 in groups of 16", 14),
    ] {
        let stored = whole(name, &scratch.path(name)).manifest;
        assert_eq!(stored.weights.formats[format].tensors, matrices, "{name}: {:?}", stored.weights.formats);
        let Inspection::Source(seen) = inspect(&source(name)).unwrap() else {
            panic!("a folder is a source")
        };
        assert_eq!(seen.formats[format].tensors, matrices);
        let quantize = Some(Quantize { bits: Bits::Four, group: None });
        let asked = Request { quantize, ..request(&source(name), &scratch.path("rounded")) };
        let rounded = compile(&asked, &mut ()).unwrap().manifest;
        assert!(rounded.weights.quantized.iter().all(|one| !one.tensor.contains("proj")), "{name}");
        assert_eq!(rounded.weights.formats[format], stored.weights.formats[format]);
        fs::remove_dir_all(scratch.path("rounded")).unwrap();
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let scratch = Scratch::new("packed-doubt");
    let of = |name| Changed::new(name, &scratch);
    // Stored less one: 15 is 16, or 0 that became less than nothing.
    let said = of("llama-gptq-hf").word(&format!("{Q}.qzeros"), 0xf).refused(&scratch);
    assert!(
        said.contains("row 0 of model.layers.0.self_attn.q_proj, whose zero point is 0 to some"),
        "{said}"
    );
    // The second version has no such doubt, but says that all are 8.
    let said = of("mistral-gptq-hf").word(&format!("{Q}.qzeros"), 0x8888_8988).refused(&scratch);
    assert!(said.contains("row 2 of") && said.contains("is 9 and not the 8"), "{said}");
    // Inputs in another order.
    let said = of("llama-gptq-hf").word(&format!("{Q}.g_idx"), 1).refused(&scratch);
    assert!(
        said.contains("the order of inputs of model.layers.0.self_attn.q_proj (desc_act, actorder)"),
        "{said}"
    );
    // The same order, whatever the configuration calls it.
    let sorted = of("llama-gptq-hf").config(|q| q["desc_act"] = json!(true)).write();
    inspect(&sorted).unwrap();
}

#[test]
fn parts_that_do_not_fit_each_other_are_refused_by_their_matrix() {
    let scratch = Scratch::new("packed-parts");
    let of = |name| Changed::new(name, &scratch);
    let shape = |table: &mut Map<String, Value>, name: &str, shape: [u64; 2]| {
        table[&format!("{Q}.{name}")]["shape"] = json!(shape);
    };
    let lost = |table: &mut Map<String, Value>, name: &str| drop(table.remove(&format!("{Q}.{name}")));
    type Change<'a> = Box<dyn Fn(Changed) -> Changed + 'a>;
    let table: [(&str, Change, &str); 8] = [
        ("llama-gptq-hf", Box::new(|one| one.table(|t| lost(t, "qzeros"))), "q_proj.qzeros is missing"),
        ("qwen2-awq-hf", Box::new(|one| one.table(|t| lost(t, "scales"))), "q_proj.scales is missing"),
        ("llama-gptq-hf", Box::new(|one| one.table(|t| shape(t, "qweight", [8, 32]))), "which cannot be"),
        (
            "qwen3-packed-hf",
            Box::new(|one| one.table(|t| shape(t, "weight_scale", [2, 64]))),
            "q_proj has scales of",
        ),
        (
            "qwen2-awq-hf",
            Box::new(|one| one.table(|t| shape(t, "qzeros", [8, 2]))),
            "q_proj has zero points of",
        ),
        (
            "qwen3-packed-hf",
            Box::new(|one| {
                one.config(|q| q["config_groups"]["group_0"]["weights"]["group_size"] = json!(32))
            }),
            "has 4 groups of 32 for 32 rows of 64, which cannot be; fetch the model again",
        ),
        // Nothing of everything.
        (
            "llama-gptq-hf",
            Box::new(|one| {
                one.table(|t| {
                    shape(t, "qweight", [1 << 61, 0]);
                    t[&format!("{Q}.qweight")]["data_offsets"] = json!([0, 0]);
                })
            }),
            "q_proj has scales of the shape [2, 64] for 0 rows",
        ),
        // Without the integers its other parts are of nothing.
        ("llama-gptq-hf", Box::new(|one| one.table(|t| lost(t, "qweight"))), "q_proj.weight is missing"),
    ];
    for (name, change, part) in table {
        let said = change(of(name)).refused(&scratch);
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn a_cut_file_is_refused() {
    let scratch = Scratch::new("packed-cut");
    let mut cut = Changed::new("llama-gptq-hf", &scratch);
    cut.data.truncate(cut.data.len() - 8);
    let said = cut.refused(&scratch);
    assert!(said.contains("behind the end of the file; fetch the file again"), "{said}");
}
