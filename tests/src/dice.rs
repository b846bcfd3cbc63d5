//! Random numbers that come again with their seed.

/// A generator (xorshift64*), good enough to draw tests.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// The generator number `which` of those of one seed.
    pub fn new(seed: u64, which: u64) -> Dice {
        Dice(seed.wrapping_add(which + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }
}
