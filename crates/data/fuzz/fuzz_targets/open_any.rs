//! Fuzzes `targets::open_any`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kiln_data_fuzz::run("open_any", input));
