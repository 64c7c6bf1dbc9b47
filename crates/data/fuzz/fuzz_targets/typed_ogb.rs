//! Fuzzes `targets::typed_ogb`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kiln_data_fuzz::run("typed_ogb", input));
