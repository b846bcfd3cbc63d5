//! The block layouts of ggml, taken apart into groups of integers with a scale and an offset.
//!
//! Layouts as in ggml's `ggml-common.h`; all numbers are little-endian. Invariant: `unpack` gives the groups of a block
//! in element order, each with the length that `shape` says, and computes scales in the order of operations that
//! ggml uses, so that products are the same f32.

use super::Integer;
use crate::float::from_f16;
use crate::source::Format;

/// What a format's groups look like.
pub(super) struct Shape {
    pub(super) integer: Integer,
    pub(super) group: usize,
    /// Values are `q·scale + offset` with an offset of their own, not `q·scale`.
    pub(super) affine: bool,
}

/// None for plain numbers.
pub(super) fn shape(format: Format) -> Option<Shape> {
    let (integer, group, affine) = match format {
        Format::F32 | Format::F16 | Format::BF16 => return None,
        Format::Q4_0 => (Integer::I4, 32, false),
        Format::Q4_1 | Format::Q4_K => (Integer::U4, 32, true),
        Format::Q5_1 | Format::Q5_K => (Integer::U8, 32, true),
        Format::Q5_0 | Format::Q8_0 | Format::IQ4_NL | Format::IQ4_XS => (Integer::I8, 32, false),
        Format::Q2_K => (Integer::U4, 16, true),
        Format::Q3_K => (Integer::I4, 16, false),
        Format::Q6_K => (Integer::I8, 16, false),
        Format::Int4 { group, zeros } => (if zeros { Integer::U4 } else { Integer::I4 }, group, zeros),
    };
    Some(Shape { integer, group, affine })
}

/// The 16 values of the IQ4 types.
const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Gives each group of one block as (integers, scale, offset).
pub(super) fn unpack(format: Format, b: &[u8], mut give: impl FnMut(&[i8], f32, f32)) {
    let half = |at: usize| from_f16(u16::from_le_bytes([b[at], b[at + 1]]));
    match format {
        Format::F32 | Format::F16 | Format::BF16 => {}
        Format::Q4_0 => give(&nibbles(&b[2..18], |q| q as i8 - 8), half(0), 0.0),
        Format::Q4_1 => give(&nibbles(&b[4..20], |q| q as i8), half(0), half(2)),
        Format::Q5_0 => give(&fives(&b[2..6], &b[6..22]).map(|q| q - 16), half(0), 0.0),
        Format::Q5_1 => give(&fives(&b[4..8], &b[8..24]), half(0), half(2)),
        Format::Q8_0 => give(&bytes(&b[2..34]), half(0), 0.0),
        Format::IQ4_NL => give(&nibbles(&b[2..18], |q| IQ4[usize::from(q)]), half(0), 0.0),
        Format::Q2_K => q2_k(b, half(80), half(82), give),
        Format::Q3_K => q3_k(b, half(108), give),
        Format::Q4_K => q4_k(b, half(0), half(2), give),
        Format::Q5_K => q5_k(b, half(0), half(2), give),
        Format::Q6_K => q6_k(b, half(208), give),
        Format::IQ4_XS => iq4_xs(b, half(0), give),
        Format::Int4 { zeros, .. } => int4(b, zeros, give),
    }
}

/// A scale, a zero point and integers; without zero points they are signed, which is the same less 8.
fn int4(b: &[u8], zeros: bool, mut give: impl FnMut(&[i8], f32, f32)) {
    let scale = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    let shift = if zeros { 0 } else { 8 };
    let quants: Vec<i8> =
        b[5..].iter().flat_map(|two| [(two & 15) as i8 - shift, (two >> 4) as i8 - shift]).collect();
    // Exact: an f16 or bf16 times an integer of 4 bits, and so is the division that makes a zero point of it.
    give(&quants, scale, if zeros { -(f32::from(b[4]) * scale) } else { 0.0 });
}

/// 16 bytes: elements 0 to 15 in the low halves, 16 to 31 in the high ones.
fn nibbles(b: &[u8], value: impl Fn(u8) -> i8) -> [i8; 32] {
    std::array::from_fn(|i| value(if i < 16 { b[i] & 15 } else { b[i - 16] >> 4 }))
}

/// As `nibbles`, with a fifth bit per element in a 32-bit word.
fn fives(high: &[u8], low: &[u8]) -> [i8; 32] {
    let low = nibbles(low, |q| q as i8);
    std::array::from_fn(|i| low[i] | ((high[i / 8] >> (i % 8) & 1) << 4) as i8)
}

fn bytes(b: &[u8]) -> [i8; 32] {
    std::array::from_fn(|i| b[i] as i8)
}

/// Scale and minimum `j` of the 12 bytes that hold eight 6-bit pairs.
fn pair(s: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        (s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4)
    }
}

/// Scales 16, quants 64 (2 bits), d, dmin.
fn q2_k(b: &[u8], d: f32, dmin: f32, mut give: impl FnMut(&[i8], f32, f32)) {
    for group in 0..16 {
        let (half, shift, side) = (group / 8, group % 8 / 2 * 2, group % 2);
        let at = 16 + half * 32 + side * 16;
        let quants: [i8; 16] = std::array::from_fn(|i| (b[at + i] >> shift & 3) as i8);
        give(&quants, d * f32::from(b[group] & 15), -(dmin * f32::from(b[group] >> 4)));
    }
}

/// High bits 32, quants 64 (2 bits), scales 12 (sixteen of 6 bits), d.
fn q3_k(b: &[u8], d: f32, mut give: impl FnMut(&[i8], f32, f32)) {
    let s = &b[96..108];
    for group in 0..16 {
        let low = if group < 8 { s[group] & 15 } else { s[group - 8] >> 4 };
        let high = s[8 + group % 4] >> (group / 4 * 2) & 3;
        let scale = i32::from(low | high << 4) - 32;
        let (half, plane, side) = (group / 8, group % 8 / 2, group % 2);
        let quants: [i8; 16] = std::array::from_fn(|i| {
            let low = (b[32 + half * 32 + side * 16 + i] >> (plane * 2) & 3) as i8;
            let set = b[side * 16 + i] >> (half * 4 + plane) & 1 == 1;
            if set { low } else { low - 4 }
        });
        give(&quants, d * scale as f32, 0.0);
    }
}

/// d, dmin, scales 12, quants 128 (4 bits).
fn q4_k(b: &[u8], d: f32, dmin: f32, mut give: impl FnMut(&[i8], f32, f32)) {
    for group in 0..8 {
        let (scale, min) = pair(&b[4..16], group);
        let (at, shift) = (16 + group / 2 * 32, group % 2 * 4);
        let quants: [i8; 32] = std::array::from_fn(|i| (b[at + i] >> shift & 15) as i8);
        give(&quants, d * f32::from(scale), -(dmin * f32::from(min)));
    }
}

/// d, dmin, scales 12, high bits 32, quants 128 (4 bits).
fn q5_k(b: &[u8], d: f32, dmin: f32, mut give: impl FnMut(&[i8], f32, f32)) {
    for group in 0..8 {
        let (scale, min) = pair(&b[4..16], group);
        let (at, shift) = (48 + group / 2 * 32, group % 2 * 4);
        let quants: [i8; 32] =
            std::array::from_fn(|i| (b[at + i] >> shift & 15 | (b[16 + i] >> group & 1) << 4) as i8);
        give(&quants, d * f32::from(scale), -(dmin * f32::from(min)));
    }
}

/// Low bits 128 (4 bits), high bits 64 (2 bits), scales 16, d.
fn q6_k(b: &[u8], d: f32, mut give: impl FnMut(&[i8], f32, f32)) {
    for group in 0..16 {
        let (half, plane, side) = (group / 8, group % 8 / 2, group % 2);
        let quants: [i8; 16] = std::array::from_fn(|i| {
            let lane = side * 16 + i;
            let low = b[half * 64 + plane % 2 * 32 + lane] >> (plane / 2 * 4) & 15;
            let high = b[128 + half * 32 + lane] >> (plane * 2) & 3;
            (low | high << 4) as i8 - 32
        });
        give(&quants, d * f32::from(b[192 + group] as i8), 0.0);
    }
}

/// d, high bits of scales 2, low bits of scales 4, quants 128 (4 bits, looked up).
fn iq4_xs(b: &[u8], d: f32, mut give: impl FnMut(&[i8], f32, f32)) {
    let high = u16::from_le_bytes([b[2], b[3]]);
    for group in 0..8 {
        let low = b[4 + group / 2] >> (group % 2 * 4) & 15;
        let scale = i32::from(low | ((high >> (group * 2) & 3) as u8) << 4) - 32;
        let at = 8 + group * 16;
        give(&nibbles(&b[at..at + 16], |q| IQ4[usize::from(q)]), d * scale as f32, 0.0);
    }
}
