//! The parsed header and its typed getters.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::ops::Range;

use crate::error::Error;
use crate::tensor::Tensor;
use crate::value::{Array, Value};

/// Magic, version and the two counts.
const FRONT: usize = 24;
/// The number of tensors among them.
const TENSOR_COUNT: Range<usize> = 8..16;

/// The header of a GGUF file. Tensor data is not read.
///
/// The typed getters answer `Ok(None)` for an absent key and an error for a value of another type, so that a damaged
/// file is not taken for one that leaves the default.
#[derive(Debug, Clone)]
pub struct Gguf {
    pub(crate) version: u32,
    pub(crate) metadata: BTreeMap<String, Value>,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) index: HashMap<String, usize>,
    pub(crate) alignment: u64,
    pub(crate) metadata_end: u64,
    pub(crate) data_offset: u64,
}

impl Gguf {
    /// The format's version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// All metadata, ordered by key.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.metadata.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// All tensors in file order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.index.get(name).map(|at| &self.tensors[*at])
    }

    /// `general.alignment`, or 32.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Byte of the file at which tensor data begins.
    pub fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// Writes a file with the metadata and no tensors: a model's vocabulary and chat template by themselves. `file` is what
    /// this header was read from, at its beginning. Answers the bytes written.
    ///
    /// # Errors
    /// Those of reading and writing; `file` has become shorter.
    pub fn copy_metadata(&self, mut file: impl Read, mut to: impl Write) -> io::Result<u64> {
        let mut front = [0; FRONT];
        file.read_exact(&mut front)?;
        front[TENSOR_COUNT].fill(0);
        to.write_all(&front)?;
        let rest = self.metadata_end - FRONT as u64;
        if io::copy(&mut file.take(rest), &mut to)? < rest {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(self.metadata_end)
    }

    /// The bytes of the file that hold a tensor; none where its type is unknown or the end overflows.
    pub fn range(&self, tensor: &Tensor) -> Option<Range<u64>> {
        let start = self.data_offset.checked_add(tensor.offset)?;
        Some(start..start.checked_add(tensor.bytes()?)?)
    }

    /// Checks that a file of `len` bytes holds every tensor of known type.
    ///
    /// # Errors
    /// The first tensor that reaches behind the end.
    pub fn check_len(&self, len: u64) -> Result<(), Error> {
        for tensor in self.tensors.iter().filter(|t| t.bytes().is_some()) {
            if self.range(tensor).is_none_or(|range| range.end > len) {
                let problem = format!("at offset {} reaches behind the file's {len} bytes", tensor.offset);
                return Err(Error::Tensor { name: tensor.name.clone(), problem });
            }
        }
        Ok(())
    }

    /// The raw value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// A string.
    ///
    /// # Errors
    /// [`Error::WrongType`].
    pub fn str(&self, key: &str) -> Result<Option<&str>, Error> {
        self.typed(key, "a string", |value| match value {
            Value::Str(s) => Some(s.as_str()),
            _ => None,
        })
    }

    /// A non-negative integer of any width.
    ///
    /// # Errors
    /// [`Error::WrongType`], also for a negative number.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, Error> {
        self.typed(key, "a non-negative integer", Value::as_u64)
    }

    /// A non-negative integer that fits in 32 bits.
    ///
    /// # Errors
    /// [`Error::WrongType`], also for a number out of range.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, Error> {
        self.typed(key, "an integer from 0 to 4294967295", |v| v.as_u64().and_then(|n| u32::try_from(n).ok()))
    }

    /// An integer of any width.
    ///
    /// # Errors
    /// [`Error::WrongType`].
    pub fn i64(&self, key: &str) -> Result<Option<i64>, Error> {
        self.typed(key, "an integer", Value::as_i64)
    }

    /// A floating-point number; `f64` is rounded.
    ///
    /// # Errors
    /// [`Error::WrongType`].
    pub fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.typed(key, "a floating-point number", |v| v.as_f64().map(|x| x as f32))
    }

    /// A boolean.
    ///
    /// # Errors
    /// [`Error::WrongType`].
    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "a bool", |value| match value {
            Value::Bool(b) => Some(*b),
            _ => None,
        })
    }

    /// An array of any type.
    ///
    /// # Errors
    /// [`Error::WrongType`].
    pub fn array(&self, key: &str) -> Result<Option<&Array>, Error> {
        self.typed(key, "an array", |value| match value {
            Value::Array(array) => Some(array),
            _ => None,
        })
    }

    /// An array of strings.
    ///
    /// # Errors
    /// [`Error::WrongType`].
    pub fn strings(&self, key: &str) -> Result<Option<&[String]>, Error> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(Array::Str(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of `f32`.
    ///
    /// # Errors
    /// [`Error::WrongType`].
    pub fn f32s(&self, key: &str) -> Result<Option<&[f32]>, Error> {
        self.typed(key, "an array of f32", |value| match value {
            Value::Array(Array::F32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of integers of any width, widened.
    ///
    /// # Errors
    /// [`Error::WrongType`].
    pub fn i64s(&self, key: &str) -> Result<Option<Vec<i64>>, Error> {
        self.typed(key, "an array of integers", |value| match value {
            Value::Array(array) => array.to_i64s(),
            _ => None,
        })
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        match read(value) {
            Some(out) => Ok(Some(out)),
            None => Err(Error::WrongType { key: key.to_owned(), expected, found: value.type_name() }),
        }
    }
}
