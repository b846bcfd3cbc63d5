//! What a configuration says of weights that were quantized before: read where nothing of them is lost, else refused by the
//! method and by what of it is not read.

use std::path::Path;

use serde_json::Value;

use crate::error::Error;
use crate::source::packed::{Method, Packing};

const INSTEAD: &str = "take the folder with the weights before quantization, which can be rounded to int4 or int8 here, or a \
                       gguf file of the model; read are gptq, awq and compressed-tensors with integers of 4 bits";

/// How the matrices of a folder are packed, by the first configuration that says so.
pub(super) fn of(path: &Path, configs: &[Option<&Value>]) -> Result<Option<Packing>, Error> {
    let found = configs.iter().flatten().find_map(|config| {
        let given = |key: &str| config.get(key).filter(|value| !value.is_null());
        given("quantization_config").or(given("compression_config"))
    });
    let Some(found) = found else { return Ok(None) };
    let q = Quantization { path, json: found };
    let method = found.get("quant_method").and_then(Value::as_str).unwrap_or("without a quant_method");
    match method {
        "gptq" => gptq(&q).map(Some),
        "awq" => awq(&q).map(Some),
        "compressed-tensors" => compressed(&q).map(Some),
        other => Err(q.refusal(other, String::new())),
    }
}

fn gptq(q: &Quantization) -> Result<Packing, Error> {
    q.four("gptq", "bits")?;
    let less_one = match q.text("checkpoint_format") {
        None | Some("gptq") => true,
        Some("gptq_v2") => false,
        Some(other) => return Err(q.refusal("gptq", format!("checkpoint_format {other}"))),
    };
    let symmetric = q.json.get("sym").and_then(Value::as_bool).unwrap_or(false);
    Ok(Packing { method: Method::Gptq { less_one }, group: q.group("gptq", "group_size")?, symmetric })
}

fn awq(q: &Quantization) -> Result<Packing, Error> {
    q.four("awq", "bits")?;
    match q.text("version") {
        None | Some("gemm" | "GEMM") => {}
        Some(other) => return Err(q.refusal("awq", format!("version {other}"))),
    }
    if q.json.get("zero_point").and_then(Value::as_bool) == Some(false) {
        return Err(q.refusal("awq", "zero_point false".into()));
    }
    Ok(Packing { method: Method::Awq, group: q.group("awq", "group_size")?, symmetric: false })
}

fn compressed(q: &Quantization) -> Result<Packing, Error> {
    const METHOD: &str = "compressed-tensors";
    match q.text("format") {
        Some("pack-quantized") => {}
        other => return Err(q.refusal(METHOD, format!("format {}", other.unwrap_or("not said")))),
    }
    let groups = q.json.get("config_groups").and_then(Value::as_object);
    let mut all = groups.into_iter().flat_map(|groups| groups.values()).map(|one| {
        let activations = one.get("input_activations").filter(|value| !value.is_null());
        if activations.is_some() {
            return Err(q.refusal(METHOD, "input_activations".into()));
        }
        let weights = Quantization { path: q.path, json: one.get("weights").unwrap_or(&Value::Null) };
        weights.four(METHOD, "num_bits")?;
        let flag = |key: &str| weights.json.get(key).and_then(Value::as_bool);
        if weights.text("type").is_some_and(|kind| kind != "int") || flag("symmetric") != Some(true) {
            return Err(q.refusal(METHOD, "weights that are no symmetric integers".into()));
        }
        weights.group(METHOD, "group_size")
    });
    let group = all.next().ok_or_else(|| q.refusal(METHOD, "no config_groups".into()))??;
    for other in all {
        if other? != group {
            return Err(q.refusal(METHOD, "config_groups of different sizes".into()));
        }
    }
    Ok(Packing { method: Method::Compressed, group, symmetric: true })
}

/// One object of a configuration.
struct Quantization<'a> {
    path: &'a Path,
    json: &'a Value,
}

impl Quantization<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.json.get(key).and_then(Value::as_str)
    }

    fn four(&self, method: &str, key: &str) -> Result<(), Error> {
        match self.json.get(key).and_then(Value::as_u64) {
            Some(4) => Ok(()),
            Some(other) => Err(self.refusal(method, format!("{key} {other}"))),
            None => Err(self.refusal(method, format!("{key} not said"))),
        }
    }

    /// Elements of a group; a row where it says -1 or nothing.
    fn group(&self, method: &str, key: &str) -> Result<Option<usize>, Error> {
        match self.json.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) if value.as_i64() == Some(-1) => Ok(None),
            Some(value) => match value.as_u64().filter(|size| (2..1 << 24).contains(size)) {
                Some(size) => Ok(Some(size as usize)),
                None => Err(self.refusal(method, format!("{key} {value}"))),
            },
        }
    }

    fn refusal(&self, method: &str, detail: String) -> Error {
        let detail = if detail.is_empty() { detail } else { format!(" ({detail})") };
        Error::unsupported(self.path, format!("quantization method {method}{detail}"), INSTEAD)
    }
}
