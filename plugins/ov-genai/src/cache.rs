//! How many blocks the KV cache has and how many are in use: the library tells a share and bytes.
//!
//! The size of a block is learned from the warm-up, whose one generation fits into one block. Where that does not come
//! out even, nothing is known and nothing is said.

use crate::ffi::paged::Metrics;

/// What is known of the blocks; all zero where the size of one is not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// Bytes of one block; 0 = not known.
    bytes: usize,
    used: u64,
    total: u64,
}

impl Blocks {
    /// Learns the size of a block from numbers taken while exactly one is in use.
    pub(crate) fn learn(&mut self, one_used: &Metrics) {
        let share = f64::from(one_used.cache_usage) / 100.0;
        if share <= 0.0 {
            return;
        }
        let total = (1.0 / share).round();
        // The share is a float of the library's: a total that it does not stand for is no whole number.
        let even = (total * share - 1.0).abs() < 1e-4 && total >= 1.0;
        let total = total as usize;
        if even && one_used.cache_bytes.is_multiple_of(total) {
            self.bytes = one_used.cache_bytes / total;
        }
    }

    /// Takes the numbers of the last step.
    pub(crate) fn take(&mut self, metrics: &Metrics) {
        let total = metrics.cache_bytes.checked_div(self.bytes).unwrap_or(0) as u64;
        let used = (f64::from(metrics.cache_usage) / 100.0 * total as f64).round() as u64;
        (self.used, self.total) = (used.min(total), total);
    }

    /// Nothing runs: what is kept for reuse is free.
    pub(crate) fn rest(&mut self) {
        self.used = 0;
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(usage: f32, bytes: usize) -> Metrics {
        Metrics { cache_usage: usage, cache_bytes: bytes, ..Metrics::default() }
    }

    #[test]
    fn a_block_is_learned_once_and_counted_from_then_on() {
        let mut blocks = Blocks::default();
        blocks.take(&metrics(50.0, 4096));
        assert_eq!((blocks.used(), blocks.total()), (0, 0), "not known yet");
        blocks.learn(&metrics(100.0 / 3.0, 3 * 512));
        blocks.take(&metrics(25.0, 64 * 512));
        assert_eq!((blocks.used(), blocks.total()), (16, 64));
        blocks.rest();
        assert_eq!((blocks.used(), blocks.total()), (0, 64));
    }

    #[test]
    fn numbers_that_do_not_come_out_even_teach_nothing() {
        for (usage, bytes) in [(0.0, 4096), (40.0, 4096), (100.0 / 3.0, 1000)] {
            let mut blocks = Blocks::default();
            blocks.learn(&metrics(usage, bytes));
            assert_eq!(blocks, Blocks::default(), "{usage} {bytes}");
        }
    }
}
