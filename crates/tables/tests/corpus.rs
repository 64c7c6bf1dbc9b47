//! Runs the corpus of the fuzz target, and mutations of it. The fuzzer runs the same body (see docs/testing.md).
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../fuzz/targets/mod.rs"]
mod targets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The number of mutations of each entry.
const N_MUTATIONS: usize = 60;

/// Texts that mutations insert.
const TOKENS: [&str; 14] = [
    "-1",
    "0",
    "1",
    "4294967296",
    "18446744073709551616",
    "1e999",
    ".nan",
    "null",
    "[",
    "{",
    "\n",
    "'",
    "*a",
    "é",
];

fn below(rng: &mut Xoshiro256StarStar, n: usize) -> usize {
    (rng.next_u64() % n.max(1) as u64) as usize
}

/// Returns an input with one to three changes: a changed bit, a removed or repeated range, or an inserted text.
fn mutate(input: &[u8], rng: &mut Xoshiro256StarStar) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 + below(rng, 3) {
        let at = below(rng, bytes.len());
        let end = (at + 1 + below(rng, 12)).min(bytes.len());
        match below(rng, 4) {
            0 if at < bytes.len() => bytes[at] ^= 1 << below(rng, 8),
            1 => drop(bytes.drain(at.min(end)..end)),
            2 => {
                let range = bytes[at.min(end)..end].to_vec();
                drop(bytes.splice(at..at, range));
            }
            _ => {
                drop(bytes.splice(at..end.min(at + below(rng, 3)), TOKENS[below(rng, TOKENS.len())].bytes()))
            }
        }
    }
    bytes
}

fn run(name: &str, input: &[u8]) -> bool {
    let result = catch_unwind(AssertUnwindSafe(|| targets::spec(input)));
    result.unwrap_or_else(|_| panic!("{name} violates an invariant: see the panic above"))
}

#[test]
fn specs_of_the_corpus_and_their_mutations_do_not_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/spec");
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let (mut n_valid, mut n_valid_mutations) = (0, 0);
    for path in &entries {
        let (name, input) = (path.file_name().unwrap().to_string_lossy(), fs::read(path).unwrap());
        n_valid += usize::from(run(&name, &input));
        for number in 0..N_MUTATIONS {
            let mut rng = Xoshiro256StarStar::seed_from_u64(number as u64);
            n_valid_mutations +=
                usize::from(run(&format!("{name}, mutation {number}"), &mutate(&input, &mut rng)));
        }
    }
    assert!(6 <= n_valid && n_valid + 6 <= entries.len(), "{n_valid} of {} entries are valid", entries.len());
    let n_mutations = N_MUTATIONS * entries.len();
    assert!(
        n_mutations / 50 <= n_valid_mutations,
        "{n_valid_mutations} of {n_mutations} mutations are valid"
    );
}
