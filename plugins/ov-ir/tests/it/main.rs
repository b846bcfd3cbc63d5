//! The compiler from outside: folders that it writes, and what OpenVINO computes from them.

#![allow(clippy::unwrap_used)] // All of this is tests; clippy's allowance is for their functions only.

mod caching;
mod compiling;
mod damage;
mod ffi;
mod fixture;
mod heap;
mod memory;
mod models;
mod numbers;
mod packed;
mod parts;
mod pictures;
mod refusing;
mod split;
