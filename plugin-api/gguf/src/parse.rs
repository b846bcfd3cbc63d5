//! Turns bytes into a [`Gguf`]. The layout is that of the GGUF specification, versions 2 and 3 (the same header):
//! magic, version, tensor count, key count, the keys, the tensor table, padding to `general.alignment`, tensor data.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufReader, Read};

use crate::error::Error;
use crate::file::Gguf;
use crate::input::Input;
use crate::tensor::{Tensor, TensorType};
use crate::value::{Array, Value};

/// Alignment where the file names none.
const DEFAULT_ALIGNMENT: u64 = 32;
/// Larger alignments than this serve nobody.
const MAX_ALIGNMENT: u64 = 1 << 20;
/// Elements that a claimed array length alone may reserve.
const TRUST: u64 = 4096;

/// What a header may claim before it is refused. The defaults leave an order of magnitude above real models.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of the whole header (128 MiB; real ones are below 20).
    pub header_bytes: u64,
    /// Metadata keys (65,536).
    pub keys: u64,
    /// Bytes of a key (65,535, the specification's own bound).
    pub key_bytes: u64,
    /// Bytes of a string value (64 MiB: embedded tokenizer files are large).
    pub string_bytes: u64,
    /// Elements of an array (16 Mi).
    pub array_len: u64,
    /// Arrays within arrays (4).
    pub depth: u32,
    /// Tensors (262,144).
    pub tensors: u64,
    /// Bytes of a tensor's name (1,024).
    pub name_bytes: u64,
    /// Dimensions of a tensor (4, as in ggml).
    pub dims: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 128 << 20,
            keys: 1 << 16,
            key_bytes: (1 << 16) - 1,
            string_bytes: 64 << 20,
            array_len: 16 << 20,
            depth: 4,
            tensors: 1 << 18,
            name_bytes: 1024,
            dims: 4,
        }
    }
}

impl Gguf {
    /// Reads a header with the default [`Limits`]. Reads ahead of the header by up to 64 KiB.
    ///
    /// # Errors
    /// Anything but a well-formed header of version 2 or 3; [`Error::is_truncated`] where a longer prefix may do.
    pub fn read(reader: impl Read) -> Result<Self, Error> {
        Self::read_within(reader, &Limits::default())
    }

    /// Reads a header with limits of the caller's choice.
    ///
    /// # Errors
    /// As [`Gguf::read`].
    pub fn read_within(reader: impl Read, limits: &Limits) -> Result<Self, Error> {
        read(reader, limits)
    }
}

fn read(reader: impl Read, limits: &Limits) -> Result<Gguf, Error> {
    let mut input = Input::new(BufReader::with_capacity(1 << 16, reader), limits.header_bytes);
    let found = input.bytes()?;
    if &found != b"GGUF" {
        return Err(Error::Magic { found });
    }
    let version = input.u32()?;
    if !(2..=3).contains(&version) {
        return Err(Error::Version(version));
    }
    let tensor_count = input.count("tensor count", limits.tensors)?;
    let key_count = input.count("key count", limits.keys)?;
    let metadata = metadata(&mut input, key_count, limits)?;
    let metadata_end = input.at();
    let alignment = alignment(&metadata)?;
    let (tensors, index) = tensors(&mut input, tensor_count, alignment, limits)?;
    let data_offset = input.at().next_multiple_of(alignment);
    Ok(Gguf { version, metadata, tensors, index, alignment, metadata_end, data_offset })
}

fn metadata<R: Read>(
    input: &mut Input<R>,
    count: u64,
    limits: &Limits,
) -> Result<BTreeMap<String, Value>, Error> {
    let mut out = BTreeMap::new();
    for n in 0..count {
        input.place = format!("metadata key number {n}");
        let key = input.string("key bytes", limits.key_bytes)?;
        input.place = format!("metadata key {key}");
        if out.contains_key(&key) {
            return Err(Error::Duplicate { at: input.at(), place: input.place.clone() });
        }
        let kind = input.u32()?;
        let value = value(input, kind, limits)?;
        out.insert(key, value);
    }
    Ok(out)
}

fn value<R: Read>(input: &mut Input<R>, kind: u32, limits: &Limits) -> Result<Value, Error> {
    Ok(match kind {
        0 => Value::U8(u8::from_le_bytes(input.bytes()?)),
        1 => Value::I8(i8::from_le_bytes(input.bytes()?)),
        2 => Value::U16(u16::from_le_bytes(input.bytes()?)),
        3 => Value::I16(i16::from_le_bytes(input.bytes()?)),
        4 => Value::U32(input.u32()?),
        5 => Value::I32(i32::from_le_bytes(input.bytes()?)),
        6 => Value::F32(f32::from_le_bytes(input.bytes()?)),
        7 => Value::Bool(boolean(input)?),
        8 => Value::Str(input.string("string bytes", limits.string_bytes)?),
        9 => Value::Array(array(input, limits, 1)?),
        10 => Value::U64(input.u64()?),
        11 => Value::I64(i64::from_le_bytes(input.bytes()?)),
        12 => Value::F64(f64::from_le_bytes(input.bytes()?)),
        found => return Err(Error::ValueType { at: input.at(), place: input.place.clone(), found }),
    })
}

fn array<R: Read>(input: &mut Input<R>, limits: &Limits, depth: u32) -> Result<Array, Error> {
    input.check("array depth", u64::from(depth), u64::from(limits.depth))?;
    let kind = input.u32()?;
    let len = input.count("array length", limits.array_len)?;
    Ok(match kind {
        0 => Array::U8(many(input, len, |i| Ok(u8::from_le_bytes(i.bytes()?)))?),
        1 => Array::I8(many(input, len, |i| Ok(i8::from_le_bytes(i.bytes()?)))?),
        2 => Array::U16(many(input, len, |i| Ok(u16::from_le_bytes(i.bytes()?)))?),
        3 => Array::I16(many(input, len, |i| Ok(i16::from_le_bytes(i.bytes()?)))?),
        4 => Array::U32(many(input, len, Input::u32)?),
        5 => Array::I32(many(input, len, |i| Ok(i32::from_le_bytes(i.bytes()?)))?),
        6 => Array::F32(many(input, len, |i| Ok(f32::from_le_bytes(i.bytes()?)))?),
        7 => Array::Bool(many(input, len, boolean)?),
        8 => Array::Str(many(input, len, |i| i.string("string bytes", limits.string_bytes))?),
        9 => Array::Array(many(input, len, |i| array(i, limits, depth + 1))?),
        10 => Array::U64(many(input, len, Input::u64)?),
        11 => Array::I64(many(input, len, |i| Ok(i64::from_le_bytes(i.bytes()?)))?),
        12 => Array::F64(many(input, len, |i| Ok(f64::from_le_bytes(i.bytes()?)))?),
        found => return Err(Error::ValueType { at: input.at(), place: input.place.clone(), found }),
    })
}

/// Reads `len` elements. The vector grows with what was read, not with what was claimed.
fn many<R: Read, T>(
    input: &mut Input<R>,
    len: u64,
    mut one: impl FnMut(&mut Input<R>) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let mut out = Vec::with_capacity(len.min(TRUST) as usize);
    for _ in 0..len {
        out.push(one(input)?);
    }
    Ok(out)
}

fn boolean<R: Read>(input: &mut Input<R>) -> Result<bool, Error> {
    match input.bytes::<1>()?[0] {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(Error::Bool { at: input.at(), place: input.place.clone(), found }),
    }
}

fn alignment(metadata: &BTreeMap<String, Value>) -> Result<u64, Error> {
    let Some(value) = metadata.get("general.alignment") else { return Ok(DEFAULT_ALIGNMENT) };
    let found = value.as_u64().ok_or_else(|| Error::WrongType {
        key: "general.alignment".to_owned(),
        expected: "u32",
        found: value.type_name(),
    })?;
    if !found.is_power_of_two() || found > MAX_ALIGNMENT {
        return Err(Error::Alignment(found));
    }
    Ok(found)
}

fn tensors<R: Read>(
    input: &mut Input<R>,
    count: u64,
    alignment: u64,
    limits: &Limits,
) -> Result<(Vec<Tensor>, HashMap<String, usize>), Error> {
    let mut out = Vec::with_capacity(count.min(TRUST) as usize);
    let mut index = HashMap::new();
    for n in 0..count {
        input.place = format!("tensor number {n}");
        let name = input.string("name bytes", limits.name_bytes)?;
        input.place = format!("tensor {name}");
        if index.insert(name.clone(), out.len()).is_some() {
            return Err(Error::Duplicate { at: input.at(), place: input.place.clone() });
        }
        let rank = u64::from(input.u32()?);
        input.check("dimensions", rank, limits.dims)?;
        let dims = many(input, rank, Input::u64)?;
        let kind = TensorType::from_id(input.u32()?);
        let offset = input.u64()?;
        out.push(Tensor::new(name, dims, kind, offset, alignment)?);
    }
    Ok((out, index))
}
