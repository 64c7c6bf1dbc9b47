//! Runs the corpora of the fuzz targets, and mutations of them. The fuzzer runs the same bodies (see docs/testing.md).
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../fuzz/targets/mod.rs"]
mod targets;

use kiln_testkit::{CorpusCounts, check_corpus};

fn check(corpus: &str, body: fn(&[u8]) -> bool, least_valid: usize, least_invalid: usize) {
    let counts = check_corpus(format!("{}/fuzz/corpus/{corpus}", env!("CARGO_MANIFEST_DIR")), body);
    let CorpusCounts { n_entries, n_valid, n_mutations, n_valid_mutations } = counts;
    assert!(least_valid <= n_valid && n_valid + least_invalid <= n_entries, "{counts:?}");
    assert!(n_mutations / 50 <= n_valid_mutations, "{counts:?}");
}

#[test]
fn specs_of_the_corpus_and_their_mutations_do_not_panic() {
    check("spec", targets::spec, 6, 6);
}

#[test]
fn parquet_files_of_the_corpus_and_their_mutations_do_not_panic() {
    check("parquet", targets::parquet, 12, 2);
}

#[test]
fn arrow_files_of_the_corpus_and_their_mutations_do_not_panic() {
    check("arrow", targets::arrow, 9, 3);
}
