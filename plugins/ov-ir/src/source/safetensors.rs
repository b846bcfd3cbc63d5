//! Opens a Hugging Face folder: `model.safetensors`, or the shards that `model.safetensors.index.json` names.
//!
//! The format is an 8-byte little-endian length, a JSON object of that many bytes (name → dtype, shape, data_offsets)
//! and the data. Everything that the object claims is checked against the file's length.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Format, Integers, Source};
use crate::error::Error;

/// Bytes of a header; real ones are below 20 MB.
const MAX_HEADER: u64 = 100 << 20;
/// Bytes of a configuration or an index.
const MAX_JSON: u64 = 64 << 20;

/// Reads the headers of all shards.
pub(crate) fn open(folder: &Path) -> Result<Source, Error> {
    let files = shards(folder)?;
    let mut source = Source::new(folder, files.clone());
    for (number, path) in files.iter().enumerate() {
        shard(&mut source, number, path)?;
    }
    Ok(source)
}

/// A JSON file of the folder.
pub(crate) fn json(path: &Path) -> Result<Value, Error> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let mut text = Vec::new();
    file.take(MAX_JSON).read_to_end(&mut text).map_err(Error::io("read", path))?;
    serde_json::from_slice(&text)
        .map_err(|e| Error::damaged(path, format!("is no valid json: {e}; fetch the file again")))
}

fn shards(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let single = folder.join("model.safetensors");
    let index = folder.join("model.safetensors.index.json");
    if !index.exists() {
        return Ok(vec![single]);
    }
    let value = json(&index)?;
    let map = value.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| Error::damaged(&index, "has no weight_map; fetch the file again"))?;
    let mut names = BTreeSet::new();
    for (tensor, file) in map {
        let name = file.as_str().unwrap_or_default();
        let plain = !name.is_empty() && Path::new(name).file_name().is_some_and(|last| last == name);
        if !plain {
            let problem = format!("names the file {file} for {tensor}, which is no file name");
            return Err(Error::damaged(&index, problem));
        }
        names.insert(name.to_owned());
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

fn shard(source: &mut Source, number: usize, path: &Path) -> Result<(), Error> {
    let mut file = File::open(path).map_err(Error::io("open", path))?;
    let len = file.metadata().map_err(Error::io("read", path))?.len();
    let mut head = [0; 8];
    let short = |_| Error::damaged(path, "is too short for a header; fetch the file again");
    file.read_exact(&mut head).map_err(short)?;
    let header = u64::from_le_bytes(head);
    if header > MAX_HEADER || header.saturating_add(8) > len {
        let problem = format!("claims a header of {header} bytes in a file of {len}; fetch the file again");
        return Err(Error::damaged(path, problem));
    }
    let mut text = vec![0; header as usize];
    file.read_exact(&mut text).map_err(short)?;
    let value: Value = serde_json::from_slice(&text).map_err(|e| {
        Error::damaged(path, format!("has a header that is no valid json: {e}; fetch the file again"))
    })?;
    let table = value
        .as_object()
        .ok_or_else(|| Error::damaged(path, "has a header that is no object; fetch the file again"))?;
    for (name, row) in table.iter().filter(|(name, _)| *name != "__metadata__") {
        tensor(source, number, path, name, row, 8 + header, len)?;
    }
    Ok(())
}

fn tensor(
    source: &mut Source,
    number: usize,
    path: &Path,
    name: &str,
    row: &Value,
    data: u64,
    len: u64,
) -> Result<(), Error> {
    let wrong = |problem: String| Error::tensor(path, name, problem);
    if source.has(name) {
        return Err(wrong("occurs twice; fetch all files from one place".into()));
    }
    let dtype = row.get("dtype").and_then(Value::as_str).unwrap_or_default();
    let format = match dtype {
        "F32" => Some(Format::F32),
        "F16" => Some(Format::F16),
        "BF16" => Some(Format::BF16),
        "I32" => None,
        other => {
            source.unreadable.insert(name.to_owned(), other.to_owned());
            return Ok(());
        }
    };
    let numbers = |key: &str| -> Option<Vec<u64>> {
        row.get(key)?.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>()
    };
    let dims = numbers("shape").ok_or_else(|| wrong("has no shape; fetch the file again".into()))?;
    let offsets = numbers("data_offsets").filter(|two| two.len() == 2);
    let offsets = offsets.ok_or_else(|| wrong("has no data_offsets; fetch the file again".into()))?;
    let width = format.map_or(4, |format| format.layout().1) as u64;
    let bytes = dims.iter().try_fold(width, |product, dim| product.checked_mul(*dim));
    if bytes.is_none() || offsets[1].checked_sub(offsets[0]) != bytes {
        return Err(wrong(format!(
            "has the shape {dims:?} of {dtype} and the bytes {offsets:?}; fetch the file again"
        )));
    }
    if data.checked_add(offsets[1]).is_none_or(|end| end > len) {
        return Err(wrong("reaches behind the end of the file; fetch the file again".into()));
    }
    let shape = dims.iter().map(|dim| usize::try_from(*dim)).collect::<Result<_, _>>();
    let shape = shape.map_err(|_| wrong("is too large for this machine".into()))?;
    let start = data + offsets[0];
    match format {
        Some(format) => source.add(name.to_owned(), shape, format, number, start),
        None => {
            source.unreadable.insert(name.to_owned(), dtype.to_owned());
            source.integers.insert(name.to_owned(), Integers { shape, file: number, start });
        }
    }
    Ok(())
}
