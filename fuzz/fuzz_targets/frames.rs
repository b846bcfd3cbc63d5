//! The entry `frames` of host/src/fuzz.rs as a program.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cascadia_host::fuzz::frames(data));
