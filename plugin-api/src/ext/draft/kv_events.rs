//! `cascadia.kv-events/1`: which blocks of prompts an engine holds for reuse, as a numbered log.
//!
//! The host reads the log, the engine does not push it: indexing must not run on the engine's thread while a step
//! waits; the reader has its own place in the log, so that what was lost on the way can be read again; and a slow reader
//! costs the engine a bounded ring instead of an unbounded queue. A gap shows in the numbers, and `snapshot` closes it.

use crate::abi::prim::{Array, ErrOut, Str};
use core::ffi::c_void;

/// [`KvEvent::kind`]: `blocks` can be reused from now on.
pub const KV_STORED: u32 = 1;
/// [`KvEvent::kind`]: `blocks` are gone from `tier`.
pub const KV_REMOVED: u32 = 2;
/// [`KvEvent::kind`]: every block of the engine is gone, from all tiers.
pub const KV_CLEARED: u32 = 3;

/// [`KvEvent::flags`]: [`KvEvent::parent`] is set; without it the first block begins a sequence.
pub const KV_HAS_PARENT: u32 = 1;

/// [`KvEvent::tier`]: memory of the device that computes.
pub const KV_TIER_DEVICE: u32 = 0;
/// [`KvEvent::tier`]: memory of the host.
pub const KV_TIER_HOST: u32 = 1;
/// [`KvEvent::tier`]: a local disk.
pub const KV_TIER_DISK: u32 = 2;
/// [`KvEvent::tier`]: a store that several engines share.
pub const KV_TIER_SHARED: u32 = 3;

table! {
    /// A change of what is held. An element of an array, borrowed for the call.
    KvEvent as "cascadia_kv_event" {
        /// Place in the log: 1, 2, 3, ... without a hole, per engine.
        sequence: u64,
        /// One of the `KV_STORED`, `KV_REMOVED`, `KV_CLEARED` values.
        kind: u32,
        /// [`KV_HAS_PARENT`].
        flags: u32,
        /// Hash of the block before the first of `blocks`.
        parent: u64,
        /// Hashes (`u64`) of whole blocks, for [`KV_STORED`] each the parent of the next. A hash stands for everything
        /// up to its block's end, adapter and salt included; how it is made is the engine's own affair.
        blocks: Array,
        /// Token ids (`u32`) of the stored blocks, `block_size` each. Empty for the other kinds.
        tokens: Array,
        /// Tokens per block.
        block_size: u32,
        /// One of the `KV_TIER_` values.
        tier: u32,
        /// Adapter under which the blocks were computed; empty = none.
        adapter: Str,
        /// Salt of the prefix cache; empty = the common one.
        cache_salt: Str,
        /// When it happened, by the host's clock in nanoseconds; 0 = not reported.
        timestamp_ns: u64,
    }
}

table! {
    /// Where events go.
    KvEventsOut as "cascadia_kv_events_out" {
        /// The receiver's context.
        ctx: *mut c_void,
        /// Takes an array of [`KvEvent`]; may be called several times.
        take: unsafe extern "C" fn(ctx: *mut c_void, events: Array),
    }
}

table! {
    /// `cascadia.kv-events/1`.
    KvEventsV1 as "cascadia_kv_events_v1" {
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[any]` Gives at most `most` events in order, beginning with number `from` or with the oldest that is still
        /// kept. A first number larger than `from` is a gap: take a snapshot. Nothing is given where `from` lies in the
        /// future. Reading removes nothing.
        read: unsafe extern "C" fn(engine: *mut c_void, from: u64, most: u32, out: KvEventsOut, err: ErrOut) -> u32,
        /// `[any]` Gives everything held as [`KV_STORED`] events, parents before children, and puts the number of the
        /// last event that they include into `last` (0 = none yet). Read on from `last + 1`. The events' own number is
        /// `last`.
        snapshot: unsafe extern "C" fn(engine: *mut c_void, out: KvEventsOut, last: *mut u64, err: ErrOut) -> u32,
    }
}
