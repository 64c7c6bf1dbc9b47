//! The corpus of the fuzz targets, and a few thousand mutations of it, through every reader. The same bodies
//! run under the fuzzer: docs/testing.md.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "corpus/mutate.rs"]
mod mutate;
#[path = "../fuzz/targets/mod.rs"]
mod targets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use mutate::Mutator;
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::SeedableRng;
use targets::{TARGETS, Target};

/// Mutations of a target's corpus, over all its entries.
const N_MUTATIONS: usize = 3000;

/// Entries that are longer stand for one large thing, as a decompression bomb does: they are replayed, and
/// mutated a few times only.
const LONG_BYTES: usize = 4096;

/// Memory that no input may take, of which it has some kilobytes: a reader that trusts a count takes more.
#[cfg(target_os = "linux")]
const MAX_PEAK_KIB: u64 = 768 << 10;

/// The entries of a target's corpus, by name.
fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target.name);
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), fs::read(path).unwrap())).collect()
}

/// Runs a target on one input; the message of a panic says how to repeat it. Gives whether the input opened.
fn run(target: &Target, entry: &str, mutation: Option<usize>, input: &[u8]) -> bool {
    let result = catch_unwind(AssertUnwindSafe(|| (target.body)(input, |_| {})));
    let which = || match mutation {
        None => format!("{}/{entry}", target.name),
        Some(number) => format!("{}/{entry}, mutation {number}", target.name),
    };
    check_memory(&which);
    result.unwrap_or_else(|_| panic!("{} broke a promise: the panic above says which", which()))
}

/// The most memory that this process had so far, which the input before kept within bounds.
#[cfg(target_os = "linux")]
fn check_memory(which: &dyn Fn() -> String) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kib <= MAX_PEAK_KIB, "{} took {peak_kib} KiB, at most {MAX_PEAK_KIB} expected", which());
}

#[cfg(not(target_os = "linux"))]
fn check_memory(_: &dyn Fn() -> String) {}

fn check_target(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let corpus = corpus(target);
    let n_opened = corpus.iter().filter(|(entry, input)| run(target, entry, None, input)).count();
    assert!(4 <= n_opened, "only {n_opened} of {} entries of {name} open", corpus.len());
    assert!(4 <= corpus.len() - n_opened, "only {} entries of {name} are refused", corpus.len() - n_opened);
    let mutable: Vec<_> = corpus.iter().filter(|(_, input)| input.len() <= LONG_BYTES).collect();
    let (mut n_opened, mut mutator) = (0, Mutator::default());
    for number in 0..N_MUTATIONS {
        // Each mutation has a stream of its own, so that one can be repeated alone.
        let mut rng = Xoshiro256StarStar::seed_from_u64(number as u64);
        let (entry, input) = mutable[number % mutable.len()];
        let (_, other) = mutable[(number / mutable.len() + number + 1) % mutable.len()];
        n_opened += usize::from(run(target, entry, Some(number), mutator.mutate(input, other, &mut rng)));
    }
    assert!(N_MUTATIONS / 100 <= n_opened, "only {n_opened} of {N_MUTATIONS} mutations of {name} open");
    for (number, (entry, input)) in corpus.iter().filter(|(_, input)| LONG_BYTES < input.len()).enumerate() {
        let mut rng = Xoshiro256StarStar::seed_from_u64(number as u64);
        run(target, entry, Some(number), mutator.mutate(input, input, &mut rng));
    }
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check_target(stringify!($name));
        })*

        #[test]
        fn every_target_has_a_test_and_a_corpus() {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

tests!(npy_array npy_folder kiln_folder tu gin edge_list graphbolt ogb open_any);
