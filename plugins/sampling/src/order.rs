//! The one order of tokens: larger logits first, equal ones by their id. Minus zero equals zero.

/// A token's place as a number: the smaller, the earlier. The value must be a number.
pub(crate) fn key(x: f32, token: u32) -> u64 {
    let bits = (x + 0.0).to_bits();
    let rising = if bits >> 31 == 1 { !bits } else { bits | 0x8000_0000 };
    (u64::from(!rising) << 32) | u64::from(token)
}

/// The token and its logit.
pub(crate) fn of(key: u64) -> (f32, u32) {
    let rising = !((key >> 32) as u32);
    let bits = if rising >> 31 == 1 { rising & 0x7fff_ffff } else { !rising };
    (f32::from_bits(bits), key as u32)
}

/// The last token, in that order, of those that stay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Edge {
    pub(crate) value: f32,
    pub(crate) token: u32,
}

impl Edge {
    /// All tokens from this value on.
    pub(crate) fn from(value: f32) -> Self {
        Edge { value, token: u32::MAX }
    }

    pub(crate) fn holds(self, x: f32, token: u32) -> bool {
        x > self.value || (x == self.value && token <= self.token)
    }

    /// The one that leaves fewer.
    pub(crate) fn tighter(self, other: Edge) -> Edge {
        if key(other.value, other.token) < key(self.value, self.token) { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_rise_as_logits_fall_and_give_back_what_went_in() {
        let falling = [f32::INFINITY, 3.5, 1e-40, 0.0, -1e-40, -2.0, f32::MIN, f32::NEG_INFINITY];
        for pair in falling.windows(2) {
            assert!(key(pair[0], 9) < key(pair[1], 0), "{pair:?}");
        }
        for x in falling {
            assert_eq!(of(key(x, 77)), (x, 77));
        }
        assert_eq!(key(-0.0, 5), key(0.0, 5));
        assert!(key(1.0, 4) < key(1.0, 5));
    }
}
