//! Each re-encoding against an element-by-element reading of the block layouts, on random blocks.

#![allow(clippy::unwrap_used)]

use super::round::Rounding;
use super::{Encoder, Grouped, Integer, decode};
use crate::float::{fits_f16, from_f16, to_f16};
use crate::source::Format;

const ALL: [Format; 12] = [
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::Q2_K,
    Format::Q3_K,
    Format::Q4_K,
    Format::Q5_K,
    Format::Q6_K,
    Format::IQ4_NL,
    Format::IQ4_XS,
];

/// xorshift64*: the same blocks in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn byte(&mut self) -> u8 {
        (self.next() >> 56) as u8
    }
    /// A finite f16 of either sign between 2^-14 and 2.
    fn half(&mut self) -> [u8; 2] {
        (((self.next() >> 48) as u16) & 0xbfff).to_le_bytes()
    }
}

/// Where a format keeps its f16 numbers.
fn halves(format: Format) -> &'static [usize] {
    match format {
        Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
        Format::Q2_K => &[80, 82],
        Format::Q3_K => &[108],
        Format::Q6_K => &[208],
        _ => &[0],
    }
}

fn random(format: Format, blocks: usize) -> Vec<u8> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ format.layout().1 as u64);
    let size = format.layout().1;
    let mut out: Vec<u8> = (0..blocks * size).map(|_| random.byte()).collect();
    for block in out.chunks_exact_mut(size) {
        for at in halves(format) {
            block[*at..at + 2].copy_from_slice(&random.half());
        }
    }
    out
}

/// Element `i` of a block as (integer, scale, offset), by the formulas and not by loops over the layout.
fn element(format: Format, b: &[u8], i: usize) -> (i32, f32, f32) {
    let f = |at: usize| from_f16(u16::from_le_bytes([b[at], b[at + 1]]));
    let nib = |at: usize, i: usize| i32::from(if i < 16 { b[at + i] % 16 } else { b[at + i - 16] / 16 });
    let bit = |at: usize, n: usize| i32::from(b[at + n / 8] >> (n % 8) & 1);
    const IQ: [i32; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    // The 6-bit pairs of Q4_K and Q5_K as ggml documents them: the upper two bits of 4..8 lie in bytes 0..8.
    let six = |j: usize| {
        let s = &b[4..16];
        if j < 4 {
            (s[j] % 64, s[j + 4] % 64)
        } else {
            ((s[j + 4] % 16) + 16 * (s[j - 4] / 64), (s[j + 4] / 16) + 16 * (s[j] / 64))
        }
    };
    match format {
        Format::Q4_0 => (nib(2, i) - 8, f(0), 0.0),
        Format::Q4_1 => (nib(4, i), f(0), f(2)),
        Format::Q5_0 => (nib(6, i) + 16 * bit(2, i) - 16, f(0), 0.0),
        Format::Q5_1 => (nib(8, i) + 16 * bit(4, i), f(0), f(2)),
        Format::Q8_0 => (i32::from(b[2 + i] as i8), f(0), 0.0),
        Format::IQ4_NL => (IQ[nib(2, i) as usize], f(0), 0.0),
        Format::Q2_K => {
            // 128 elements share 32 bytes; each 32 of them take the next two bits.
            let q = b[16 + i / 128 * 32 + i % 32] / 4u8.pow((i % 128 / 32) as u32) % 4;
            let s = b[i / 16];
            (i32::from(q), f(80) * f32::from(s % 16), -(f(82) * f32::from(s / 16)))
        }
        Format::Q3_K => {
            let q = b[32 + i / 128 * 32 + i % 32] / 4u8.pow((i % 128 / 32) as u32) % 4;
            let high = b[i % 32] >> (i / 32) & 1;
            let g = i / 16;
            let low = if g < 8 { b[96 + g] % 16 } else { b[96 + g - 8] / 16 };
            let scale = i32::from(low) + 16 * i32::from(b[104 + g % 4] >> (2 * (g / 4)) & 3) - 32;
            (i32::from(q) - if high == 1 { 0 } else { 4 }, f(108) * scale as f32, 0.0)
        }
        Format::Q4_K => {
            let (s, m) = six(i / 32);
            let byte = b[16 + i / 64 * 32 + i % 32];
            let q = if i % 64 < 32 { byte % 16 } else { byte / 16 };
            (i32::from(q), f(0) * f32::from(s), -(f(2) * f32::from(m)))
        }
        Format::Q5_K => {
            let (s, m) = six(i / 32);
            let byte = b[48 + i / 64 * 32 + i % 32];
            let q = if i % 64 < 32 { byte % 16 } else { byte / 16 };
            let high = b[16 + i % 32] >> (i / 32) & 1;
            (i32::from(q) + 16 * i32::from(high), f(0) * f32::from(s), -(f(2) * f32::from(m)))
        }
        Format::Q6_K => {
            // As in the C source: four elements l, l+32, l+64, l+96 of each 128 share ql[l], ql[l+32] and qh[l].
            let (half, l, plane) = (i / 128, i % 32, i % 128 / 32);
            let low = b[half * 64 + l + [0, 32, 0, 32][plane]];
            let low = if plane < 2 { low % 16 } else { low / 16 };
            let high = b[128 + half * 32 + l] >> (2 * plane) & 3;
            let scale = b[192 + half * 8 + plane * 2 + l / 16] as i8;
            (i32::from(low) + 16 * i32::from(high) - 32, f(208) * f32::from(scale), 0.0)
        }
        Format::IQ4_XS => {
            let g = i / 32;
            let high = u16::from_le_bytes([b[2], b[3]]) >> (2 * g) & 3;
            let low = b[4 + g / 2] >> (4 * (g % 2)) & 15;
            let scale = i32::from(low) + 16 * i32::from(high) - 32;
            (IQ[nib(8 + 16 * g, i % 32) as usize], f(0) * scale as f32, 0.0)
        }
        Format::F32 | Format::F16 | Format::BF16 | Format::Int4 { .. } => unreachable!("they have no blocks"),
    }
}

/// What OpenVINO computes from the constants: `(q - zero) · scale` in f32.
fn values(g: &Grouped) -> Vec<f32> {
    let count = g.quants.len() * 8 / g.integer.bits();
    (0..count)
        .map(|i| {
            let q = match g.integer {
                Integer::U8 => f32::from(g.quants[i]),
                Integer::I8 => f32::from(g.quants[i] as i8),
                Integer::U4 => f32::from(g.quants[i / 2] >> (i % 2 * 4) & 15),
                Integer::I4 => f32::from((g.quants[i / 2] << (4 - i % 2 * 4)) as i8 >> 4),
            };
            let zero = g.zeros.as_ref().map_or(0.0, |zeros| zeros[i / g.group]);
            (q - zero) * g.scales[i / g.group]
        })
        .collect()
}

/// Encodes a matrix piece by piece, and gives it with the share that rounding took away.
fn pieces(
    (format, columns): (Format, usize),
    bytes: &[u8],
    rounding: Option<Rounding>,
    piece: usize,
) -> Result<(Grouped, Option<f64>), String> {
    let (block, size) = format.layout();
    let row = columns / block * size;
    let mut encoder = Encoder::new(format, bytes.len() / row, columns, rounding)?;
    let (integer, group) = encoder.form().expect("integers");
    let mut quants = Vec::new();
    for piece in bytes.chunks(piece * row) {
        quants.extend(encoder.rows(piece.to_vec())?);
    }
    let loss = encoder.loss();
    let factors = encoder.finish().expect("scales");
    Ok((Grouped { integer, group, quants, scales: factors.scales, zeros: factors.zeros }, loss))
}

fn encode(format: Format, bytes: &[u8], columns: usize) -> Result<Grouped, String> {
    Ok(pieces((format, columns), bytes, None, 7)?.0)
}

fn round(rounding: Rounding, values: &[f32], columns: usize) -> Result<(Grouped, f64), String> {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let (grouped, loss) = pieces((Format::F32, columns), &bytes, Some(rounding), 3)?;
    Ok((grouped, loss.expect("something was rounded")))
}

#[test]
fn a_matrix_is_the_same_whatever_the_pieces_it_comes_in() {
    let same = |format, columns, bytes: &[u8], rounding| {
        let (whole, lost) = pieces((format, columns), bytes, rounding, usize::MAX / 4096).unwrap();
        for piece in [1, 3] {
            let (cut, loss) = pieces((format, columns), bytes, rounding, piece).unwrap();
            assert_eq!(
                (&cut.quants, cut.scales, cut.zeros),
                (&whole.quants, whole.scales.clone(), whole.zeros.clone())
            );
            assert_eq!(loss, lost);
        }
    };
    for format in ALL {
        same(format, 2 * format.layout().0, &random(format, 20), None);
    }
    let weights: Vec<u8> = (0..640u16).flat_map(|x| (0x3c00 + x).to_le_bytes()).collect();
    same(Format::BF16, 64, &weights, Some(Rounding { integer: Integer::I4, group: Some(32) }));
    same(Format::F16, 64, &weights, Some(Rounding { integer: Integer::I8, group: None }));
}

#[test]
fn symmetric_blocks_are_kept_bit_for_bit() {
    for format in ALL {
        let (block, size) = format.layout();
        let bytes = random(format, 200);
        let got = encode(format, &bytes, block).unwrap();
        if got.zeros.is_some() {
            continue;
        }
        for (i, value) in values(&got).into_iter().enumerate() {
            let (q, scale, _) = element(format, &bytes[i / block * size..][..size], i % block);
            assert_eq!(value.to_bits(), (q as f32 * scale).to_bits(), "{format:?} element {i}");
        }
    }
}

#[test]
fn affine_blocks_lose_only_the_rounding_of_the_zero_point() {
    let mut seen = 0;
    for format in ALL {
        let (block, size) = format.layout();
        let bytes = random(format, 200);
        let got = encode(format, &bytes, block).unwrap();
        if got.zeros.is_none() {
            continue;
        }
        seen += 1;
        for (i, value) in values(&got).into_iter().enumerate() {
            let (q, scale, offset) = element(format, &bytes[i / block * size..][..size], i % block);
            let exact = f64::from(q) * f64::from(scale) + f64::from(offset);
            let bound = (f64::from(offset).abs() + 2.0 * exact.abs()) * 2f64.powi(-24) * 1.01;
            let error = (f64::from(value) - exact).abs();
            assert!(error <= bound, "{format:?} element {i}: {value} for {exact}, off by {error:e}");
        }
    }
    assert_eq!(seen, 5);
}

#[test]
fn decoding_agrees_with_the_formulas() {
    for format in ALL {
        let (block, size) = format.layout();
        let bytes = random(format, 20);
        let got = decode(format, &bytes);
        assert_eq!(got.len(), 20 * block);
        for (i, value) in got.into_iter().enumerate() {
            let (q, scale, offset) = element(format, &bytes[i / block * size..][..size], i % block);
            assert_eq!(value, q as f32 * scale + offset, "{format:?} element {i}");
        }
    }
}

#[test]
fn a_block_without_a_step_keeps_its_offset() {
    let mut block = vec![0x5a; 20];
    block[..2].copy_from_slice(&0u16.to_le_bytes());
    block[2..4].copy_from_slice(&to_f16(-0.375).to_le_bytes());
    let got = encode(Format::Q4_1, &block, 32).unwrap();
    assert!(values(&got).iter().all(|value| *value == -0.375));
}

#[test]
fn scales_that_are_no_numbers_are_refused_with_their_row() {
    let mut bytes = random(Format::Q8_0, 40);
    bytes[36 * 34..36 * 34 + 2].copy_from_slice(&0x7c00u16.to_le_bytes());
    let problem = encode(Format::Q8_0, &bytes, 64).unwrap_err();
    assert!(problem.contains("row 18"), "{problem}");
}

#[test]
fn rounding_stays_within_half_a_step() {
    let mut random = Random(7);
    let weights: Vec<f32> = (0..4096).map(|_| (random.next() >> 40) as f32 / 8_388_608.0 - 1.0).collect();
    for (integer, limit) in [(Integer::I8, 2e-5), (Integer::I4, 6e-3)] {
        let (got, lost) = round(Rounding { integer, group: Some(64) }, &weights, 256).unwrap();
        for (i, (a, b)) in weights.iter().zip(values(&got)).enumerate() {
            let step = got.scales[i / 64].abs();
            // The largest positive value may need +8, which does not exist with 4 bits.
            let slack = if integer == Integer::I4 { 1.01 } else { 0.51 };
            assert!((a - b).abs() <= step * slack, "{a} became {b} with steps of {step}");
        }
        assert!(lost < limit && lost > 0.0, "{integer:?}: {lost}");
        assert!(got.scales.iter().all(|scale| fits_f16(*scale)), "scales are rounded before the integers");
    }
}

#[test]
fn types_that_are_slow_are_rounded_to_eight_bits_within_half_a_step() {
    let mut kept = Vec::new();
    for format in ALL {
        let (block, size) = format.layout();
        let columns = block * 2;
        let Some(rounding) = Rounding::symmetric(format, columns) else {
            kept.push(format);
            continue;
        };
        let bytes = random(format, 40);
        let (got, lost) = pieces((format, columns), &bytes, Some(rounding), 3).unwrap();
        assert_eq!((got.integer, got.group, got.zeros.is_none()), (Integer::I8, 32, true), "{format:?}");
        for (i, (a, b)) in decode(format, &bytes[..40 * size]).iter().zip(values(&got)).enumerate() {
            let step = got.scales[i / 32].abs();
            assert!((a - b).abs() <= step * 0.51, "{format:?}: {a} became {b} with steps of {step}");
        }
        assert!(lost.is_some_and(|lost| lost < 1e-4), "{format:?}: {lost:?}");
    }
    use Format::{IQ4_NL, IQ4_XS, Q4_0, Q5_0, Q8_0};
    let all = [Q4_0, Q5_0, Q8_0, IQ4_NL, IQ4_XS];
    assert!(kept.iter().all(|format| all.contains(format)) && kept.len() == all.len(), "{kept:?}");
    assert_eq!(Rounding::symmetric(Format::Int4 { group: 16, zeros: true }, 48), None, "no whole groups");
}

#[test]
fn rounding_refuses_what_does_not_divide() {
    let rounding = Rounding { integer: Integer::I4, group: Some(64) };
    assert!(round(rounding, &[0.0; 96], 96).unwrap_err().contains("rows of 96"));
    let mut values = [0.0; 640];
    values[9 * 64] = f32::NAN;
    assert!(round(rounding, &values, 64).unwrap_err().contains("row 9"), "counted over all pieces");
    let whole = Rounding { integer: Integer::I8, group: None };
    assert_eq!(round(whole, &[0.5; 96], 96).unwrap().0.group, 96);
}

#[test]
fn integers_that_others_packed_are_kept_bit_for_bit() {
    let mut random = Random(11);
    for zeros in [false, true] {
        // A group may be a long row.
        let (format, group) = (Format::Int4 { group: 512, zeros }, 512);
        let size = format.layout().1;
        let mut bytes: Vec<u8> = (0..6 * size).map(|_| random.byte()).collect();
        for (number, block) in bytes.chunks_exact_mut(size).enumerate() {
            let scale = if number == 5 { 0.0 } else { from_f16(u16::from_le_bytes(random.half())) };
            block[..4].copy_from_slice(&scale.to_le_bytes());
            block[4] = if zeros { number as u8 * 3 } else { 8 };
        }
        let got = encode(format, &bytes, 2 * group).unwrap();
        for (i, value) in values(&got).into_iter().enumerate() {
            let block = &bytes[i / group * size..][..size];
            let scale = f32::from_le_bytes(block[..4].try_into().unwrap());
            let q = block[5 + i % group / 2] >> (4 * (i % 2)) & 15;
            let exact = (f32::from(q) - f32::from(block[4])) * scale;
            assert_eq!(value, exact, "element {i}, zero points {zeros}");
        }
    }
}
