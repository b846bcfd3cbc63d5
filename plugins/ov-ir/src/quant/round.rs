//! Quantizes weights on request, floating-point ones and such whose groups OpenVINO is slow with: signed integers, symmetric, one scale per group of a row.
//!
//! The scale is rounded to f16 before the integers are chosen, so that what is stored is what was rounded to. With 4
//! bits the element of the largest magnitude becomes exactly -8 steps, which uses all sixteen values.

use super::{Grouped, Integer, blocks};
use crate::float::{from_f16, to_f16};
use crate::source::Format;

/// Elements of a group that OpenVINO multiplies with activations of 8 bits by default, and no fewer.
const GROUP: usize = 32;

/// What weights become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rounding {
    /// 4 or 8 bits.
    pub(crate) integer: Integer,
    /// Elements of a group; none for one scale per row.
    pub(crate) group: Option<usize>,
}

/// What rounding took away so far.
#[derive(Debug, Default)]
pub(super) struct Loss {
    /// Sum of squared differences.
    lost: f64,
    /// Sum of squares.
    whole: f64,
}

impl Loss {
    /// The share that is lost.
    pub(super) fn share(&self) -> f64 {
        if self.whole > 0.0 { self.lost / self.whole } else { 0.0 }
    }
}

impl Rounding {
    /// What a quantized matrix must become so that 8 bits are multiplied with 8 bits: none where it is so already, or its rows are
    /// not made of such groups.
    pub(crate) fn symmetric(format: Format, columns: usize) -> Option<Rounding> {
        let shape = blocks::shape(format)?;
        let slow = shape.affine || shape.group < GROUP;
        (slow && columns.is_multiple_of(GROUP))
            .then_some(Rounding { integer: Integer::I8, group: Some(GROUP) })
    }

    /// Rounds rows of `columns` values, which the group divides, and adds them; the first is row `first` of its matrix.
    ///
    /// # Errors
    /// A value is no number.
    pub(super) fn apply(
        &self,
        values: &[f32],
        columns: usize,
        first: usize,
        out: &mut Grouped,
        loss: &mut Loss,
    ) -> Result<(), String> {
        let group = out.group;
        let mut quants = vec![0i8; group];
        for (number, values) in values.chunks_exact(group).enumerate() {
            let scale = self.scale(values);
            if !scale.is_finite() || values.iter().any(|value| !value.is_finite()) {
                return Err(format!(
                    "has a weight that is no finite number in row {}",
                    first + number * group / columns
                ));
            }
            for (quant, value) in quants.iter_mut().zip(values) {
                *quant = self.nearest(*value, scale);
                let error = f64::from(*value) - f64::from(*quant) * f64::from(scale);
                loss.lost += error * error;
                loss.whole += f64::from(*value) * f64::from(*value);
            }
            out.scales.push(scale);
            out.push_quants(&quants);
        }
        Ok(())
    }

    /// Why rows of `columns` values cannot be rounded, if so.
    pub(crate) fn misfit(&self, columns: usize) -> Option<String> {
        let group = self.group.unwrap_or(columns);
        let odd = self.integer.bits() == 4 && group % 2 == 1;
        (group == 0 || !columns.is_multiple_of(group) || odd)
            .then(|| format!("has rows of {columns}, which groups of {group} do not divide"))
    }

    fn scale(&self, values: &[f32]) -> f32 {
        let largest = values.iter().copied().fold(0.0f32, |a, b| if b.abs() > a.abs() { b } else { a });
        let scale = if self.integer.bits() == 4 { largest / -8.0 } else { largest.abs() / 127.0 };
        let rounded = from_f16(to_f16(scale));
        // Beyond f16's range the scale stays as it is; the tensor's scales are then stored as f32.
        if rounded.is_finite() && rounded.abs() >= f32::from_bits(0x3880_0000) { rounded } else { scale }
    }

    fn nearest(&self, value: f32, scale: f32) -> i8 {
        if scale == 0.0 {
            return 0;
        }
        let (low, high) = if self.integer.bits() == 4 { (-8.0, 7.0) } else { (-127.0, 127.0) };
        (value / scale).round().clamp(low, high) as i8
    }
}
