//! `cascadia.kv-events/1` for authors.
#![expect(unsafe_code, reason = "the plugin's side of the table")]

use core::ffi::c_void;

use super::with_extension;
use crate::abi::prim::{Array, ErrOut, Str};
use crate::ext::draft::kv_events as wire;
use crate::sdk::Result;

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvChange {
    /// Blocks can be reused from now on.
    Stored {
        /// Hash of the block before the first.
        parent: Option<u64>,
        /// Hashes, each the parent of the next.
        blocks: Vec<u64>,
        /// Their tokens, `block_size` each.
        tokens: Vec<u32>,
        /// Tokens per block.
        block_size: u32,
    },
    /// Blocks are gone from the tier.
    Removed {
        /// Their hashes.
        blocks: Vec<u64>,
    },
    /// Everything is gone, from all tiers.
    Cleared,
}

/// Where blocks lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum KvTier {
    /// Memory of the device that computes.
    #[default]
    Device = wire::KV_TIER_DEVICE,
    /// Memory of the host.
    Host = wire::KV_TIER_HOST,
    /// A local disk.
    Disk = wire::KV_TIER_DISK,
    /// A store that several engines share.
    Shared = wire::KV_TIER_SHARED,
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEvent {
    /// Its number: 1, 2, 3, ...
    pub sequence: u64,
    /// What changed.
    pub change: KvChange,
    /// Where.
    pub tier: KvTier,
    /// Adapter under which the blocks were computed; empty = none.
    pub adapter: String,
    /// Salt of the prefix cache.
    pub cache_salt: String,
    /// When, by [`crate::sdk::now_ns`]; 0 = not reported.
    pub timestamp_ns: u64,
}

impl KvEvent {
    fn wire(&self) -> wire::KvEvent {
        let (kind, parent, blocks, tokens, block_size) = match &self.change {
            KvChange::Stored { parent, blocks, tokens, block_size } => {
                (wire::KV_STORED, *parent, blocks.as_slice(), tokens.as_slice(), *block_size)
            }
            KvChange::Removed { blocks } => (wire::KV_REMOVED, None, blocks.as_slice(), &[][..], 0),
            KvChange::Cleared => (wire::KV_CLEARED, None, &[][..], &[][..], 0),
        };
        wire::KvEvent {
            sequence: self.sequence,
            kind,
            flags: if parent.is_some() { wire::KV_HAS_PARENT } else { 0 },
            parent: parent.unwrap_or(0),
            blocks: Array::new(blocks),
            tokens: Array::new(tokens),
            block_size,
            tier: self.tier as u32,
            adapter: Str::new(self.adapter.as_bytes()),
            cache_salt: Str::new(self.cache_salt.as_bytes()),
            timestamp_ns: self.timestamp_ns,
        }
    }
}

/// An engine that tells which blocks it holds. Both calls come from any thread and must not block.
pub trait KvEvents {
    /// At most `most` events from number `from` on, or from the oldest that is still kept.
    fn read(&self, from: u64, most: usize) -> Result<Vec<KvEvent>>;

    /// Everything held, parents before children, and the number of the last event that is in it.
    fn snapshot(&self) -> Result<(Vec<KvEvent>, u64)>;
}

pub(super) static TABLE: wire::KvEventsV1 =
    wire::KvEventsV1 { struct_size: size_of::<wire::KvEventsV1>() as u32, flags: 0, read, snapshot };

fn give(out: wire::KvEventsOut, events: &[KvEvent]) {
    let events: Vec<_> = events.iter().map(KvEvent::wire).collect();
    if !events.is_empty() {
        // SAFETY: the host lends the callback for the call; the events and what they view live through it.
        unsafe { (out.take)(out.ctx, Array::new(&events)) }
    }
}

unsafe extern "C" fn read(
    engine: *mut c_void,
    from: u64,
    most: u32,
    out: wire::KvEventsOut,
    err: ErrOut,
) -> u32 {
    // SAFETY: the host's promise.
    unsafe {
        with_extension!(engine, Some(err), kv_events, "KV events", |log| {
            give(out, &log.read(from, most as usize)?);
            Ok(())
        })
    }
}

unsafe extern "C" fn snapshot(
    engine: *mut c_void,
    out: wire::KvEventsOut,
    last: *mut u64,
    err: ErrOut,
) -> u32 {
    // SAFETY: the host's promise: `last` is lent for the call.
    unsafe {
        with_extension!(engine, Some(err), kv_events, "KV events", |log| {
            let (events, number) = log.snapshot()?;
            if let Some(last) = last.as_mut() {
                *last = number;
            }
            give(out, &events);
            Ok(())
        })
    }
}
