//! Fuzzes `targets::model`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kiln_fuzz::model(input));
