//! The tensor table: names, shapes, ggml types and their block layouts.
//!
//! Invariant: a [`Tensor`] that exists has sizes and an end that fit in 64 bits, if its type is known.

use crate::error::Error;

/// How a type lays out its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Elements in a block; 1 for plain types.
    pub block: u64,
    /// Bytes of a block.
    pub bytes: u64,
}

macro_rules! tensor_types {
    ($($variant:ident = $id:literal, $name:literal, $block:literal, $bytes:literal;)*) => {
        /// A ggml tensor type.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, non_camel_case_types)] // ggml's own names
        pub enum TensorType {
            $($variant,)*
            /// A number that this reader does not know; its size is unknown too.
            Other(u32),
        }

        impl TensorType {
            /// From ggml's number; an unknown one is kept.
            pub fn from_id(id: u32) -> Self {
                match id { $($id => Self::$variant,)* other => Self::Other(other) }
            }

            /// Ggml's number.
            pub fn id(self) -> u32 {
                match self { $(Self::$variant => $id,)* Self::Other(id) => id }
            }

            /// Ggml's name, `unknown` for an unknown number.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* Self::Other(_) => "unknown" }
            }

            /// Block size in elements and bytes; none for an unknown number.
            pub fn layout(self) -> Option<Layout> {
                match self {
                    $(Self::$variant => Some(Layout { block: $block, bytes: $bytes }),)*
                    Self::Other(_) => None,
                }
            }
        }
    };
}

tensor_types! {
    F32 = 0, "F32", 1, 4;
    F16 = 1, "F16", 1, 2;
    Q4_0 = 2, "Q4_0", 32, 18;
    Q4_1 = 3, "Q4_1", 32, 20;
    Q5_0 = 6, "Q5_0", 32, 22;
    Q5_1 = 7, "Q5_1", 32, 24;
    Q8_0 = 8, "Q8_0", 32, 34;
    Q8_1 = 9, "Q8_1", 32, 36;
    Q2_K = 10, "Q2_K", 256, 84;
    Q3_K = 11, "Q3_K", 256, 110;
    Q4_K = 12, "Q4_K", 256, 144;
    Q5_K = 13, "Q5_K", 256, 176;
    Q6_K = 14, "Q6_K", 256, 210;
    Q8_K = 15, "Q8_K", 256, 292;
    IQ2_XXS = 16, "IQ2_XXS", 256, 66;
    IQ2_XS = 17, "IQ2_XS", 256, 74;
    IQ3_XXS = 18, "IQ3_XXS", 256, 98;
    IQ1_S = 19, "IQ1_S", 256, 50;
    IQ4_NL = 20, "IQ4_NL", 32, 18;
    IQ3_S = 21, "IQ3_S", 256, 110;
    IQ2_S = 22, "IQ2_S", 256, 82;
    IQ4_XS = 23, "IQ4_XS", 256, 136;
    I8 = 24, "I8", 1, 1;
    I16 = 25, "I16", 1, 2;
    I32 = 26, "I32", 1, 4;
    I64 = 27, "I64", 1, 8;
    F64 = 28, "F64", 1, 8;
    IQ1_M = 29, "IQ1_M", 256, 56;
    BF16 = 30, "BF16", 1, 2;
    TQ1_0 = 34, "TQ1_0", 256, 54;
    TQ2_0 = 35, "TQ2_0", 256, 66;
    MXFP4 = 39, "MXFP4", 32, 17;
    NVFP4 = 40, "NVFP4", 64, 36;
    Q1_0 = 41, "Q1_0", 128, 18;
}

/// One row of the tensor table.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Unique name.
    pub name: String,
    /// Elements per dimension, the fastest-moving one first.
    pub dims: Vec<u64>,
    /// Element type.
    pub kind: TensorType,
    /// Bytes from the start of the tensor data (not of the file).
    pub offset: u64,
    elements: u64,
    bytes: Option<u64>,
}

impl Tensor {
    pub(crate) fn new(
        name: String,
        dims: Vec<u64>,
        kind: TensorType,
        offset: u64,
        alignment: u64,
    ) -> Result<Self, Error> {
        match Self::sizes(&dims, kind, offset, alignment) {
            Ok((elements, bytes)) => Ok(Self { name, dims, kind, offset, elements, bytes }),
            Err(problem) => Err(Error::Tensor { name, problem }),
        }
    }

    /// Number of elements: the product of the dimensions.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Bytes of its data; none where the type is unknown.
    pub fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    fn sizes(
        dims: &[u64],
        kind: TensorType,
        offset: u64,
        alignment: u64,
    ) -> Result<(u64, Option<u64>), String> {
        if !offset.is_multiple_of(alignment) {
            return Err(format!(
                "begins at offset {offset}, which is no multiple of the alignment {alignment}"
            ));
        }
        let elements = dims
            .iter()
            .try_fold(1u64, |product, dim| product.checked_mul(*dim))
            .ok_or_else(|| format!("has the shape {dims:?}, whose product does not fit in 64 bits"))?;
        let Some(Layout { block, bytes }) = kind.layout() else { return Ok((elements, None)) };
        let row = dims.first().copied().unwrap_or(1);
        if !row.is_multiple_of(block) {
            return Err(format!("has rows of {row}, {} comes in blocks of {block}", kind.name()));
        }
        let size = (elements / block)
            .checked_mul(bytes)
            .filter(|size| size.checked_add(offset).is_some())
            .ok_or_else(|| {
                format!("has the shape {dims:?} at offset {offset}, its end does not fit in 64 bits")
            })?;
        Ok((elements, Some(size)))
    }
}
