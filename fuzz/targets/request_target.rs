//! Fuzzes [`strait_fuzz::request_target`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| strait_fuzz::request_target::check(input));
