//! `cascadia.builder/1`: options, links, weights, and then an engine.

use super::prim::{Array, ErrOut, Progress, Str, StrOut};
use core::ffi::c_void;

table! {
    /// The part of a model that this worker holds.
    Shard as "cascadia_shard" {
        /// Size of this struct as the host was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// File or folder on this machine.
        path: Str,
        /// The served name.
        model_id: Str,
        /// First layer held; 0 with `layer_end` 0 means all.
        layer_first: u32,
        /// One past the last layer held.
        layer_end: u32,
        /// Place in the pipeline, 0 = first.
        rank: u32,
        /// Number of stages; 1 = the whole model is here.
        stages: u32,
    }
}

table! {
    /// A neighbour in the pipeline.
    Peer as "cascadia_peer" {
        /// Its place in the pipeline.
        rank: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// Where it listens.
        address: Str,
    }
}

table! {
    /// Builds one engine. Calls come in this order: configure, listen?, load_shard, connect_peers?, build; destroy last.
    BuilderV1 as "cascadia_builder_v1" {
        /// Size of this struct as the plugin was built.
        struct_size: u32,
        /// No flag is defined; 0.
        flags: u32,
        /// `[control]` Options as [`super::prim::Kv`]s: checked against the manifest's schema, defaults filled in.
        configure: unsafe extern "C" fn(builder: *mut c_void, options: Array, err: ErrOut) -> u32,
        /// `[control]` Opens the stage's listener; the bound address goes to `bound`. UNSUPPORTED without a pipeline.
        listen: unsafe extern "C" fn(builder: *mut c_void, address: Str, bound: StrOut, err: ErrOut) -> u32,
        /// `[control]` Connects to the given [`Peer`]s. UNSUPPORTED without a pipeline.
        connect_peers: unsafe extern "C" fn(builder: *mut c_void, peers: Array, err: ErrOut) -> u32,
        /// `[control]` Loads the weights; reports progress and gives up with CANCELLED when told to.
        load_shard: unsafe extern "C" fn(builder: *mut c_void, shard: *const Shard, progress: Progress, err: ErrOut) -> u32,
        /// `[control]` The engine, through `out`. The builder is used up: only destroy may follow.
        build: unsafe extern "C" fn(builder: *mut c_void, out: *mut *mut c_void, err: ErrOut) -> u32,
        /// `[control]` Frees the builder.
        destroy: unsafe extern "C" fn(builder: *mut c_void),
    }
}
