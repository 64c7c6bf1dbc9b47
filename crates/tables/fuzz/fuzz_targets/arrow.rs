//! Fuzzes `targets::arrow`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kiln_tables_fuzz::arrow(input));
