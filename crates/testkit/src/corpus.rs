use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The number of mutations of each entry of a corpus, without the variable `KILN_MUTATIONS`.
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

/// The numbers of inputs that [`check_corpus`] ran, and of those that were valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorpusCounts {
    /// The number of files of the corpus.
    pub n_entries: usize,
    /// The number of valid files.
    pub n_valid: usize,
    /// The number of mutations.
    pub n_mutations: usize,
    /// The number of valid mutations.
    pub n_valid_mutations: usize,
}

/// Runs the body of a fuzz target on each file of a folder, and on mutations of it, which are the same in every run: 60, or as many
/// as the environment variable `KILN_MUTATIONS` states. The body returns true for a valid input.
///
/// ```
/// let corpus = tempfile::tempdir()?;
/// std::fs::write(corpus.path().join("number"), "12")?;
/// let is_number = |input: &[u8]| std::str::from_utf8(input).is_ok_and(|text| text.parse::<i64>().is_ok());
/// let counts = kiln_testkit::check_corpus(corpus.path(), is_number);
/// assert_eq!((counts.n_entries, counts.n_valid), (1, 1));
/// assert!((1..counts.n_mutations).contains(&counts.n_valid_mutations));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics
/// Panics if the body panics, with the name of the file and the number of the mutation, or if a file cannot be read.
pub fn check_corpus(folder: impl AsRef<Path>, body: impl Fn(&[u8]) -> bool) -> CorpusCounts {
    let run = |name: &str, input: &[u8]| {
        let result = catch_unwind(AssertUnwindSafe(|| body(input)));
        usize::from(result.unwrap_or_else(|_| panic!("{name} violates an invariant: see the panic above")))
    };
    let entries = fs::read_dir(folder).expect("the corpus should be a folder");
    let mut entries: Vec<_> =
        entries.map(|entry| entry.expect("the corpus should be readable").path()).collect();
    entries.sort();
    let mut counts = CorpusCounts { n_entries: 0, n_valid: 0, n_mutations: 0, n_valid_mutations: 0 };
    for path in &entries {
        let name = path.display();
        let input = fs::read(path).expect("the corpus should be readable");
        counts.n_entries += 1;
        counts.n_valid += run(&name.to_string(), &input);
        for number in 0..n_mutations() {
            let mut rng = Xoshiro256StarStar::seed_from_u64(number as u64);
            counts.n_mutations += 1;
            counts.n_valid_mutations += run(&format!("{name}, mutation {number}"), &mutate(&input, &mut rng));
        }
    }
    counts
}

fn n_mutations() -> usize {
    let number = std::env::var("KILN_MUTATIONS").ok();
    number.map_or(N_MUTATIONS, |number| number.parse().expect("KILN_MUTATIONS should be a number"))
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

fn below(rng: &mut Xoshiro256StarStar, n: usize) -> usize {
    (rng.next_u64() % n.max(1) as u64) as usize
}
