//! Metadata values. Arrays are typed, so that 250,000 scores take 1 MB and not 8.

/// One metadata value.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // the variants are the format's own type names
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array: all elements have one type. Arrays of arrays are allowed within the reader's depth limit.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // the variants are the format's own type names
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    Str(Vec<String>),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Value {
    /// The format's name of the type, for messages and listings.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::F32(_) => "f32",
            Self::Bool(_) => "a bool",
            Self::Str(_) => "a string",
            Self::Array(array) => array.type_name(),
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F64(_) => "f64",
        }
    }

    /// The value as an unsigned number, if it is an integer of any width and not negative.
    pub fn as_u64(&self) -> Option<u64> {
        self.as_i128().and_then(|n| u64::try_from(n).ok())
    }

    /// The value as a signed number, if it is an integer that fits.
    pub fn as_i64(&self) -> Option<i64> {
        self.as_i128().and_then(|n| i64::try_from(n).ok())
    }

    /// The value as `f64`, if it is a floating-point number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::F32(x) => Some(f64::from(*x)),
            Self::F64(x) => Some(*x),
            _ => None,
        }
    }

    fn as_i128(&self) -> Option<i128> {
        Some(match self {
            Self::U8(n) => i128::from(*n),
            Self::I8(n) => i128::from(*n),
            Self::U16(n) => i128::from(*n),
            Self::I16(n) => i128::from(*n),
            Self::U32(n) => i128::from(*n),
            Self::I32(n) => i128::from(*n),
            Self::U64(n) => i128::from(*n),
            Self::I64(n) => i128::from(*n),
            _ => return None,
        })
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::Str(v) => v.len(),
            Self::Array(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as signed numbers, if they are integers of any width and all fit.
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        Some(match self {
            Self::U8(v) => v.iter().map(|n| i64::from(*n)).collect(),
            Self::I8(v) => v.iter().map(|n| i64::from(*n)).collect(),
            Self::U16(v) => v.iter().map(|n| i64::from(*n)).collect(),
            Self::I16(v) => v.iter().map(|n| i64::from(*n)).collect(),
            Self::U32(v) => v.iter().map(|n| i64::from(*n)).collect(),
            Self::I32(v) => v.iter().map(|n| i64::from(*n)).collect(),
            Self::I64(v) => v.clone(),
            Self::U64(v) => return v.iter().map(|n| i64::try_from(*n).ok()).collect(),
            _ => return None,
        })
    }

    fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "an array of u8",
            Self::I8(_) => "an array of i8",
            Self::U16(_) => "an array of u16",
            Self::I16(_) => "an array of i16",
            Self::U32(_) => "an array of u32",
            Self::I32(_) => "an array of i32",
            Self::F32(_) => "an array of f32",
            Self::Bool(_) => "an array of bools",
            Self::Str(_) => "an array of strings",
            Self::Array(_) => "an array of arrays",
            Self::U64(_) => "an array of u64",
            Self::I64(_) => "an array of i64",
            Self::F64(_) => "an array of f64",
        }
    }
}
