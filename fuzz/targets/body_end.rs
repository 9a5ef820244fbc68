//! Fuzzes [`strait_fuzz::body_end`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| strait_fuzz::body_end::check(input));
