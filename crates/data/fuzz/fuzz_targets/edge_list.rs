//! Fuzzes `targets::edge_list`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kiln_data_fuzz::run("edge_list", input));
