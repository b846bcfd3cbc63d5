//! The boundary between `cascadia-host` and its engines.
//!
//! - [`abi`]: the `#[repr(C)]` tables and the ids they are found by. This is the contract; any language can speak it.
//! - [`ext`]: optional tables, asked for by id; absent is an answer.
//! - [`sdk`]: safe Rust over the tables for plugin authors: traits, [`export_plugin!`], panic guards.
//! - [`lock`]: the layout of every table as text, held equal to `abi.lock` by a test.
//! - [`frozen`]: which of these lines were shipped, and may never change.
//! - [`proof`] (feature `proof`): abi_stable's layout proof, carried by Rust plugins beside the tables.
//!
//! What must always hold: memory never changes owner at this boundary; in-arguments are borrowed for the call and
//! out-data goes through callbacks. A table that was shipped is never edited: growth is a new id.
//!
//! # Threads
//! Every function carries one tag. `[control]`: at most one call at a time per object, may block, never concurrent with
//! `[drive]` on the same engine unless the function says so. `[drive]`: at most one call at a time per engine, from any
//! OS thread. `[any]`: concurrent with everything, must not block; the few that wait by their nature say so
//! ([`abi::host`]).
//!
//! # States of an engine
//! `built` → warmup → `ready` → close → `closed` → destroy. `submit`, `step` and `cancel` are called in `ready` only
//! (`cancel` and `step` also during close); `destroy` is the last call on the object, when no other is running.
#![allow(non_local_definitions, reason = "abi_stable's derive expands to impls inside functions")]

#[macro_use]
mod table;

pub mod abi;
pub mod ext;
pub mod frozen;
pub mod lock;
pub mod manifest;
#[cfg(feature = "proof")]
pub mod proof;
pub mod sdk;
