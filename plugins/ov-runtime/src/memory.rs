//! How many blocks the KV cache has, and from that how long a generation may be.

use cascadia_plugin_api::sdk::{Error, Result};

/// How large the key-value cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cache {
    /// What all generations of full length need, at most a quarter of the memory.
    Fitting,
    Blocks(usize),
    Gigabytes(usize),
}

/// Sizes that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Blocks of the cache.
    pub(crate) blocks: usize,
    /// Most tokens of prompt and answer together: the model's, where the cache holds so many.
    pub(crate) window: usize,
}

/// What decides over the sizes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// Tokens that the model takes; none where nobody says.
    pub(crate) context: Option<usize>,
    /// Generations at once.
    pub(crate) sequences: usize,
    pub(crate) block_tokens: usize,
    pub(crate) block_bytes: usize,
    /// Bytes that this process may have; none where nobody says.
    pub(crate) memory: Option<u64>,
}

/// Blocks are numbered, and their positions counted, in 32 bits.
const MOST_POSITIONS: usize = i32::MAX as usize;

impl Cache {
    /// # Errors
    /// Not even one block fits.
    pub(crate) fn sizes(self, needs: Needs) -> Result<Sizes> {
        let blocks = match self {
            Cache::Blocks(blocks) => blocks,
            Cache::Gigabytes(gigabytes) => gigabytes.saturating_mul(1_000_000_000) / needs.block_bytes,
            Cache::Fitting => {
                let full =
                    needs.context.map(|c| c.div_ceil(needs.block_tokens).saturating_mul(needs.sequences));
                // A quarter, as weights, the library's own buffers and others need some too.
                let quarter = needs.memory.map_or(4_000_000_000, |bytes| bytes / 4);
                let fitting = usize::try_from(quarter).unwrap_or(usize::MAX) / needs.block_bytes;
                full.map_or(fitting, |full| full.min(fitting))
            }
        };
        let most = MOST_POSITIONS / needs.block_tokens.max(needs.sequences);
        let blocks = blocks.min(most);
        if blocks == 0 {
            return Err(Error::config(format!(
                "the KV cache has no room for a block of {} bytes; raise cb-cache-size",
                needs.block_bytes
            )));
        }
        let held = blocks * needs.block_tokens;
        Ok(Sizes { blocks, window: needs.context.map_or(held, |context| context.min(held)) })
    }
}

/// Bytes that this process may use: the machine's, or fewer where a control group says so.
pub(crate) fn available() -> Option<u64> {
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let limit =
        std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    match (total, limit) {
        (Some(total), Some(limit)) => Some(total.min(limit)),
        (total, limit) => total.or(limit),
    }
}

/// `MemTotal` of `/proc/meminfo`, which counts in KiB.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs {
        context: Some(1000),
        sequences: 4,
        block_tokens: 32,
        block_bytes: 1 << 20,
        memory: Some(16 << 30),
    };

    #[test]
    fn a_cache_is_as_large_as_all_need_within_a_quarter_of_the_memory() {
        assert_eq!(Cache::Fitting.sizes(NEEDS), Ok(Sizes { blocks: 128, window: 1000 }));
        let many = Needs { sequences: 1000, ..NEEDS };
        assert_eq!(Cache::Fitting.sizes(many), Ok(Sizes { blocks: 4096, window: 1000 }));
        let unknown = Needs { context: None, memory: None, ..NEEDS };
        assert_eq!(Cache::Fitting.sizes(unknown), Ok(Sizes { blocks: 3814, window: 3814 * 32 }));
    }

    #[test]
    fn a_small_cache_shortens_the_window_and_none_is_refused() {
        assert_eq!(Cache::Blocks(5).sizes(NEEDS), Ok(Sizes { blocks: 5, window: 160 }));
        assert_eq!(Cache::Gigabytes(1).sizes(NEEDS), Ok(Sizes { blocks: 953, window: 1000 }));
        let huge = Needs { block_bytes: 2_000_000_000, ..NEEDS };
        assert!(Cache::Gigabytes(1).sizes(huge).is_err_and(|e| e.message.contains("cb-cache-size")));
        // The numbers of blocks and positions are of 32 bits.
        let most = Cache::Blocks(usize::MAX / 2).sizes(NEEDS).map(|sizes| sizes.blocks);
        assert_eq!(most, Ok(i32::MAX as usize / 32));
    }

    #[test]
    fn the_memory_of_this_machine_is_found() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       16 kB\n"), Some(16384));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert!(available().is_some_and(|bytes| bytes > 1 << 26));
    }
}
