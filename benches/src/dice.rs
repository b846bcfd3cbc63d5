//! Chance from a seed: the same seed draws the same faults and requests, though threads meet differently each time.

/// A generator (xorshift64*), good enough to draw with.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The dice number `n` of a seed.
    pub(crate) fn new(seed: u64, n: u64) -> Dice {
        Dice(seed.wrapping_add(n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `sides`, which is not 0.
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }
}
