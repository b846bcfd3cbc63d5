//! The passes over a row, for the instruction sets there are. Each gives the same answers: maxima, comparisons and masks
//! exactly, sums within the rounding of their order.
//!
//! They are small on purpose: a block or a chunk goes in, a number or a word of bits comes out, and what is done with it
//! is written once, in safe code, for all of them.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

/// Most values of a block: so many can be added in f32 lanes with an error below 1e-6.
pub(crate) const BLOCK: usize = 1024;
/// Cuts that are weighed in one pass.
pub(crate) const CUTS: usize = 4;

/// Bytes that the first pass over a row asks for ahead. A row comes out of a shared cache, and by itself the processor looks ahead within
/// a page of memory only (a fifth less time for 32 rows of 49,152 behind a model; 2 to 16 KiB were alike).
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 2048;

/// For whom the passes were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// 512-bit vectors (AVX-512 F, BW, DQ, VL).
    Avx512,
    /// 256-bit vectors with fused multiply-add.
    Avx2,
    /// Any processor.
    Portable,
}

impl Kernel {
    /// All of them, the fastest first.
    pub const ALL: [Kernel; 3] = [Kernel::Avx512, Kernel::Avx2, Kernel::Portable];

    /// The fastest that this processor has.
    pub fn best() -> Self {
        Self::ALL.into_iter().find(|k| k.is_here()).unwrap_or(Kernel::Portable)
    }

    /// Whether this processor has what it needs.
    pub fn is_here(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(not(target_arch = "x86_64"))]
            Kernel::Avx512 | Kernel::Avx2 => false,
            Kernel::Portable => true,
        }
    }
}

/// What weighs so much, and how much that is, for each cut.
pub(crate) type Weighed = ([f32; CUTS], [u32; CUTS]);

/// The passes of one kind.
#[derive(Debug)]
pub(crate) struct Passes {
    pub(crate) kernel: Kernel,
    /// The largest value that is a number (minus infinity for none), and whether one is not.
    pub(crate) peak: fn(&[f32]) -> (f32, bool),
    /// Sum of `exp((x - max) * scale)` of a block, where the exponent is at least [`crate::row::NOTHING`].
    pub(crate) sum: fn(&[f32], f32, f32) -> f32,
    /// The same over what is at least each of the cuts, and the number of those values.
    pub(crate) weigh: fn(&[f32], f32, f32, &[f32; CUTS]) -> Weighed,
    /// Of a chunk of up to 64 values: a bit for each that is at least this large.
    pub(crate) at_least: fn(&[f32], f32) -> u64,
    /// Copies a row; minus infinity where the bit is not set. The words must reach as far as the row, which must be as long as the copy.
    pub(crate) masked: fn(&[f32], &[u32], &mut [f32]),
}

impl Passes {
    /// Those of one kind, where the processor has what they need: the one way to get at them.
    pub(crate) fn of(kernel: Kernel) -> Option<&'static Passes> {
        if !kernel.is_here() {
            return None;
        }
        match kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => Some(&avx512::PASSES),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => Some(&avx2::PASSES),
            #[cfg(not(target_arch = "x86_64"))]
            Kernel::Avx512 | Kernel::Avx2 => None,
            Kernel::Portable => Some(&portable::PASSES),
        }
    }

    pub(crate) fn portable() -> &'static Passes {
        &portable::PASSES
    }
}

/// `exp(r)` for `|r| <= ln(2) / 2`, as 1 + r + r² · (these by rising powers): the Taylor series to the seventh power, whose
/// remainder is below 1e-8 there.
const SERIES: [f32; 6] = [1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0];
/// ln(2) in two parts, the first with so few bits that its product with a whole number up to 2^9 is exact.
const LN2_HIGH: f32 = 0.693_359_4;
/// The rest.
const LN2_LOW: f32 = -2.121_944_4e-4;

#[cfg(test)]
mod tests;
