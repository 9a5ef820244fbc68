//! Fuzzes [`strait_fuzz::decide`].
#![no_main]

libfuzzer_sys::fuzz_target!(|case: strait_fuzz::decide::Case| strait_fuzz::decide::check(&case));
