//! Runs the corpus of the fuzz target, and mutations of it. The fuzzer runs the same body (see docs/testing.md).

#[path = "../../fuzz/targets/mod.rs"]
mod targets;

use kiln_testkit::{CorpusCounts, check_corpus};

#[test]
fn models_of_the_corpus_and_their_mutations_do_not_panic() {
    let counts = check_corpus(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/model"), targets::model);
    let CorpusCounts { n_entries, n_valid, n_mutations, n_valid_mutations } = counts;
    assert!(12 <= n_valid && n_valid + 4 <= n_entries, "{counts:?}");
    assert!(n_mutations / 50 <= n_valid_mutations, "{counts:?}");
}
