//! Fuzzes `targets::npy_array`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kiln_data_fuzz::run("npy_array", input));
