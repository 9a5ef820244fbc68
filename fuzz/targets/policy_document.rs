//! Fuzzes [`strait_fuzz::policy_document`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| strait_fuzz::policy_document::check(input));
