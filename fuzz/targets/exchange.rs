//! Fuzzes [`strait_fuzz::exchange`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| strait_fuzz::exchange::check(input));
