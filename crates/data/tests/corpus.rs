//! Runs the corpus of the fuzz targets, and a few thousand mutations of it, through every reader. The fuzzer runs the
//! same bodies (see docs/testing.md).
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

/// The number of mutations per target, distributed over all entries of its corpus.
const N_MUTATIONS: usize = 3000;

/// The maximum length, in bytes, of entries that receive an equal share of the mutations. Longer entries test one large
/// structure, such as a decompression bomb; each is replayed and mutated once.
const LONG_BYTES: usize = 4096;

/// The maximum memory of the process in KiB. Inputs have a few kilobytes, so a reader exceeds it only if it allocates
/// memory for a count in the input.
#[cfg(target_os = "linux")]
const MAX_PEAK_KIB: u64 = 768 << 10;

/// Returns the name and content of each entry of a target's corpus, sorted by name.
fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target.name);
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), fs::read(path).unwrap())).collect()
}

/// Runs a target on one input and returns true if the input opened. A panic message names the entry and the mutation.
fn run(target: &Target, entry: &str, mutation: Option<usize>, input: &[u8]) -> bool {
    let result = catch_unwind(AssertUnwindSafe(|| (target.body)(input, |_| {})));
    let which = || match mutation {
        None => format!("{}/{entry}", target.name),
        Some(number) => format!("{}/{entry}, mutation {number}", target.name),
    };
    check_memory(&which);
    result.unwrap_or_else(|_| panic!("{} violates an invariant: see the panic above", which()))
}

/// Checks the peak memory of this process so far. The check ran after each previous input, so a failure is caused by
/// the current input.
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
    assert!(4 <= corpus.len() - n_opened, "only {} entries of {name} are rejected", corpus.len() - n_opened);
    let mutable: Vec<_> = corpus.iter().filter(|(_, input)| input.len() <= LONG_BYTES).collect();
    let (mut n_opened, mut mutator) = (0, Mutator::default());
    for number in 0..N_MUTATIONS {
        // Each mutation has a separate random stream, so that it can be repeated alone.
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

tests!(npy_array npy_folder kiln_folder typed_folder tu gin edge_list graphbolt typed_graphbolt ogb typed_ogb open_any);
