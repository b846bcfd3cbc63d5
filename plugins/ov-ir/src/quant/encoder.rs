//! Encodes a matrix in pieces of whole rows, so that neither the stored nor the encoded matrix is ever in memory.

use super::blocks;
use super::round::{Loss, Rounding};
use super::{Grouped, Integer, add_blocks, decode};
use crate::source::Format;

/// Encodes the rows of one matrix in their order.
pub(crate) struct Encoder {
    format: Format,
    columns: usize,
    rounding: Option<Rounding>,
    /// None for floating-point numbers that stay as they are.
    grouped: Option<Grouped>,
    loss: Loss,
    /// Rows so far, for messages.
    rows: usize,
}

/// What belongs to the integers of a matrix.
#[derive(Debug)]
pub(crate) struct Factors {
    /// One per group.
    pub(crate) scales: Vec<f32>,
    /// One per group, not necessarily whole.
    pub(crate) zeros: Option<Vec<f32>>,
}

impl Encoder {
    /// For a matrix of so many rows and columns, rounded if asked for.
    ///
    /// # Errors
    /// The groups to round in do not divide a row.
    pub(crate) fn new(
        format: Format,
        rows: usize,
        columns: usize,
        rounding: Option<Rounding>,
    ) -> Result<Self, String> {
        if let Some(problem) = rounding.and_then(|rounding| rounding.misfit(columns)) {
            return Err(problem);
        }
        let grouped = match (rounding, blocks::shape(format)) {
            (Some(rounding), _) => Some((rounding.integer, rounding.group.unwrap_or(columns), false)),
            (None, shape) => shape.map(|shape| (shape.integer, shape.group, shape.affine)),
        };
        let grouped = grouped
            .map(|(integer, group, affine)| Grouped::with_capacity(integer, group, rows * columns, affine));
        Ok(Self { format, columns, rounding, grouped, loss: Loss::default(), rows: 0 })
    }

    /// Type and length of the groups of integers that the matrix becomes; none where it stays as it is.
    pub(crate) fn form(&self) -> Option<(Integer, usize)> {
        self.grouped.as_ref().map(|grouped| (grouped.integer, grouped.group))
    }

    /// The data of the next rows as OpenVINO has it.
    ///
    /// # Errors
    /// A scale, or a value to be rounded, is no number; the message names the row.
    pub(crate) fn rows(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        let Some(grouped) = &mut self.grouped else { return Ok(bytes) };
        let (block, block_bytes) = self.format.layout();
        let elements = bytes.len() / block_bytes * block;
        grouped.quants = Vec::with_capacity(elements * grouped.integer.bits() / 8);
        match self.rounding {
            Some(rounding) => {
                let values = decode(self.format, &bytes);
                rounding.apply(&values, self.columns, self.rows, grouped, &mut self.loss)?;
            }
            None => add_blocks(grouped, self.format, &bytes, self.columns, self.rows)?,
        }
        self.rows += elements / self.columns.max(1);
        Ok(std::mem::take(&mut grouped.quants))
    }

    /// The share of the energy that rounding on request took away; none where nothing was rounded.
    pub(crate) fn loss(&self) -> Option<f64> {
        self.rounding.map(|_| self.loss.share())
    }

    /// Scales and zero points of all rows; none for plain numbers.
    pub(crate) fn finish(self) -> Option<Factors> {
        self.grouped.map(|grouped| Factors { scales: grouped.scales, zeros: grouped.zeros })
    }
}
