use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Program {
    #[command(flatten)]
    job: JobArgs,
}

fn n_ranks(flags: &str) -> usize {
    let words = ["program"].into_iter().chain(flags.split_whitespace());
    Program::try_parse_from(words).expect("the flags should be valid").job.n_ranks(None)
}

#[test]
fn ranks_auto_counts_the_devices_or_divides_the_cores_by_threads_per_rank() {
    assert_eq!(n_ranks("--ranks 3"), 3);
    assert_eq!(n_ranks("--ranks auto --device cpu,cpu,cpu"), 3);
    assert_eq!(n_ranks("--ranks auto --device cpu,cpu,cpu --threads-per-rank 2"), 3);
    let n_cores = ThreadRanks::of(1).threads_per_rank;
    assert_eq!(n_ranks("--ranks auto"), n_cores);
    assert_eq!(n_ranks("--ranks auto --threads-per-rank 2"), (n_cores / 2).max(1));
    assert!(Program::try_parse_from(["program", "--ranks", "all"]).is_err());
}
