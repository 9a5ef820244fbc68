//! Fuzzes [`strait_fuzz::forwarding`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| strait_fuzz::forwarding::check(input));
