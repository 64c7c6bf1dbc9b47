//! Fuzzes `targets::typed_folder`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kiln_data_fuzz::run("typed_folder", input));
