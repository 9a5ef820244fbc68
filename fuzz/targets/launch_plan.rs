//! Fuzzes [`strait_fuzz::launch_plan`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| strait_fuzz::launch_plan::check(input));
