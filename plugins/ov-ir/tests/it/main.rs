//! The compiler from outside: folders that it writes, and what OpenVINO computes from them.

mod compiling;
mod ffi;
mod fixture;
mod numbers;
