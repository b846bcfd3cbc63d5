//! Re-encodes weights as OpenVINO constants: integers with a scale, and where needed a zero point, per group of a row.
//!
//! OpenVINO has no ggml block types. Its compressed weights are `(q - zero) · scale` with one scale and one zero point
//! per group of neighbours in a row, so each ggml group becomes one such group:
//!
//! | ggml | value | here | what is lost |
//! | --- | --- | --- | --- |
//! | Q4_0, Q3_K | `d·q` | `i4`, scale | nothing |
//! | Q5_0, Q6_K, Q8_0, IQ4_NL, IQ4_XS | `d·q` | `i8`, scale | nothing |
//! | Q4_1, Q4_K, Q2_K | `d·q + m` | `u4`, scale, zero = `-m/d` in f32 | the rounding of the zero point |
//! | Q5_1, Q5_K | `d·q + m` | `u8`, scale, zero = `-m/d` in f32 | the rounding of the zero point |
//!
//! The scales of K types are products of an f16 and an integer of at most 8 bits: exact in f32. A rounded zero point
//! moves a weight by at most 2^-24 of the group's offset, no more than f32 arithmetic does anyway.
//!
//! On request the last two rows, and types with groups of 16, are rounded to `i8` in groups of 32 instead (see `round`).
//!
//! Invariant: rows come and go in pieces; what is kept of a matrix is a scale and a zero point per group. Knows nothing of
//! graphs or files.

mod blocks;
mod encoder;
mod round;

#[cfg(test)]
mod tests;

use crate::float;
use crate::source::Format;

pub(crate) use encoder::{Encoder, Factors};
pub(crate) use round::Rounding;

/// An integer type of OpenVINO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Integer {
    I4,
    U4,
    I8,
    U8,
}

/// Integers of rows with a scale per group.
#[derive(Debug)]
struct Grouped {
    integer: Integer,
    /// Elements of a group; divides the row.
    group: usize,
    /// Row by row; two 4-bit integers share a byte, the first in the low half. Taken out after each piece.
    quants: Vec<u8>,
    /// One per group, of all rows.
    scales: Vec<f32>,
    /// One per group, not necessarily whole.
    zeros: Option<Vec<f32>>,
}

/// Adds whole rows of `columns` elements, the first of them row `first` of its matrix.
///
/// # Errors
/// What is wrong with the tensor: a scale that is no number.
fn add_blocks(
    out: &mut Grouped,
    format: Format,
    bytes: &[u8],
    columns: usize,
    first: usize,
) -> Result<(), String> {
    let (block, block_bytes) = format.layout();
    debug_assert!(columns.is_multiple_of(out.group));
    let mut broken = None;
    for (number, block) in bytes.chunks_exact(block_bytes).enumerate() {
        blocks::unpack(format, block, |quants, scale, offset| {
            if !scale.is_finite() || !offset.is_finite() {
                broken.get_or_insert(number);
            }
            out.push(quants, scale, offset);
        });
    }
    match broken {
        Some(number) => Err(format!(
            "has a scale that is no finite number in row {}; fetch the file again",
            first + number * block / columns.max(1)
        )),
        None => Ok(()),
    }
}

/// The values of plain numbers or of blocks, in f32 as ggml computes them.
pub(crate) fn decode(format: Format, bytes: &[u8]) -> Vec<f32> {
    match format {
        Format::F32 => return float::floats(bytes).collect(),
        Format::F16 => return float::words(bytes).map(float::from_f16).collect(),
        Format::BF16 => return float::words(bytes).map(float::from_bf16).collect(),
        _ => {}
    }
    let (block, block_bytes) = format.layout();
    let mut out = Vec::with_capacity(bytes.len() / block_bytes * block);
    for block in bytes.chunks_exact(block_bytes) {
        blocks::unpack(format, block, |quants, scale, offset| {
            out.extend(quants.iter().map(|q| f32::from(*q) * scale + offset));
        });
    }
    out
}

impl Grouped {
    /// Room for the scales of so many elements.
    fn with_capacity(integer: Integer, group: usize, elements: usize, affine: bool) -> Self {
        let groups = elements / group;
        Self {
            integer,
            group,
            quants: Vec::new(),
            scales: Vec::with_capacity(groups),
            zeros: affine.then(|| Vec::with_capacity(groups)),
        }
    }

    /// Adds a group of values `q · scale + offset`.
    fn push(&mut self, quants: &[i8], scale: f32, offset: f32) {
        let Some(zeros) = &mut self.zeros else {
            self.scales.push(scale);
            return self.push_quants(quants);
        };
        if scale == 0.0 {
            // All values are the offset, which no zero point can express: 1 · offset can.
            zeros.push(0.0);
            self.scales.push(offset);
            return self.push_quants(&vec![1; quants.len()]);
        }
        zeros.push(-offset / scale);
        self.scales.push(scale);
        self.push_quants(quants);
    }

    fn push_quants(&mut self, quants: &[i8]) {
        if self.integer.bits() == 4 {
            self.quants.extend(quants.chunks_exact(2).map(|two| two[0] as u8 & 15 | (two[1] as u8) << 4));
        } else {
            self.quants.extend(quants.iter().map(|q| *q as u8));
        }
    }
}

impl Integer {
    /// Bits of an element.
    pub(crate) fn bits(self) -> usize {
        match self {
            Self::I4 | Self::U4 => 4,
            Self::I8 | Self::U8 => 8,
        }
    }
}
