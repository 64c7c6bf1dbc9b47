//! Fuzzes `targets::parquet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kiln_tables_fuzz::parquet(input));
