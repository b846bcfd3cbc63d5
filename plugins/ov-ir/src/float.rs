//! Half-precision numbers as bits: IEEE 754 binary16 and bfloat16.
//!
//! Invariant: widening is exact; narrowing rounds to nearest, ties to even.

/// The value of a binary16.
pub(crate) fn from_f16(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let exponent = u32::from(bits >> 10) & 0x1f;
    let fraction = u32::from(bits & 0x3ff);
    match (exponent, fraction) {
        (0, _) => {
            // Subnormal: fraction · 2^-24, exact in f32.
            let magnitude = fraction as f32 * f32::from_bits(0x3380_0000);
            f32::from_bits(sign | magnitude.to_bits())
        }
        (0x1f, _) => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// The nearest binary16; too large a magnitude becomes infinite.
pub(crate) fn to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    // 65520 and above round beyond the largest binary16.
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    if magnitude < 0x3880_0000 {
        // Below 2^-14: adding 0.5 lets the f32 adder round at bit 2^-24.
        let shifted = f32::from_bits(magnitude) + 0.5;
        return sign | (shifted.to_bits() - 0.5f32.to_bits()) as u16;
    }
    let odd = (magnitude >> 13) & 1;
    let rounded = magnitude - (112 << 23) + 0xfff + odd;
    sign | (rounded >> 13) as u16
}

/// The value of a bfloat16.
pub(crate) fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Whether a binary16 holds the value exactly.
pub(crate) fn fits_f16(value: f32) -> bool {
    from_f16(to_f16(value)).to_bits() == value.to_bits()
}

/// Little-endian 16-bit words of a byte string.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
}

/// Little-endian f32 of a byte string.
pub(crate) fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_survives_the_way_to_f32_and_back() {
        for bits in 0..=u16::MAX {
            let value = from_f16(bits);
            if value.is_nan() {
                assert!(from_f16(to_f16(value)).is_nan());
            } else {
                assert_eq!(to_f16(value), bits, "{bits:#06x} is {value}");
                assert!(fits_f16(value));
            }
        }
    }

    #[test]
    fn narrowing_rounds_to_nearest_even() {
        for bits in 0..0x7bffu16 {
            let (low, high) = (from_f16(bits), from_f16(bits + 1));
            let middle = (f64::from(low) + f64::from(high)) / 2.0;
            let even = if bits % 2 == 0 { bits } else { bits + 1 };
            assert_eq!(to_f16(middle as f32), even, "between {low} and {high}");
            let above = f32::from_bits((middle as f32).to_bits() + 1);
            assert_eq!(to_f16(above), bits + 1);
        }
        assert_eq!(to_f16(65519.0), 0x7bff);
        assert_eq!(to_f16(65520.0), 0x7c00);
        assert_eq!(to_f16(-1e9), 0xfc00);
    }

    #[test]
    fn bf16_is_the_upper_half_of_f32() {
        assert_eq!(from_bf16(0x3f80), 1.0);
        assert_eq!(from_bf16(0xc040), -3.0);
    }
}
