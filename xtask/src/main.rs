//! The task runner: what a person or a machine runs twice is a subcommand here.
//!
//! ```text
//! cargo xtask test     the tests, and at the end what was skipped; --all: also those of devices, MPI and Slurm
//! cargo xtask check    formatting, lints, docs, and the workspace's own rules
//! cargo xtask bench    one bench per stage, with rates; saves runs and compares with them
//! cargo xtask data     makes, converts, verifies and parts data sets
//! cargo xtask cuda-stub  runs a program on a stub of the CUDA driver
//! cargo xtask third-party  writes THIRD-PARTY.md, the packages that the programs contain
//! cargo xtask llvm     provides the LLVM that builds for CubeCL's CPU and CUDA devices link
//! ```

mod arrows;
mod bench;
mod check;
mod cuda_stub;
mod cycles;
mod data;
mod deny;
mod features;
mod license;
mod llvm;
mod manifest;
mod test;
mod third_party;
mod tidy;
mod wheel;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use peak_alloc::PeakAlloc;

/// Counts the heap, so that a conversion can say what it took.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// kiln's tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Runs every test that this machine can run and lists what it skipped, with the reason.
    Test(test::Args),
    /// Runs what must pass before a change is offered: formatting, lints, docs, the workspace's rules.
    Check(check::Args),
    /// Runs the benches, one per stage, and prints times and rates.
    Bench(bench::Args),
    /// Makes, converts, verifies and parts data sets.
    Data(data::Args),
    /// Runs a program on a stub of the CUDA driver and of NCCL, without a GPU, and counts its launches.
    CudaStub(cuda_stub::Args),
    /// Writes THIRD-PARTY.md: the packages that the programs contain, with their licences.
    ThirdParty,
    /// Provides the LLVM that builds for CubeCL's CPU and CUDA devices link.
    Llvm,
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Test(args) => test::run(args),
        Task::Check(args) => check::run(args),
        Task::Bench(args) => bench::run(args),
        Task::Data(args) => data::run(args),
        Task::CudaStub(args) => cuda_stub::run(args),
        Task::ThirdParty => third_party::run(),
        Task::Llvm => llvm::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", describe(&error));
            ExitCode::FAILURE
        }
    }
}

/// What went wrong, the outermost first. Errors that end with what their source says are not said twice.
fn describe(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, next| match said.ends_with(&next) {
        true => said,
        false if said.is_empty() => next,
        false => format!("{said}: {next}"),
    })
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn what_an_error_says_of_its_source_is_not_said_again() {
        let source = std::io::Error::other("no room");
        let inner = kiln_store::Error::Io { path: "a.npy".into(), source };
        let error = anyhow::Error::from(inner).context("converting b");
        assert_eq!(describe(&error), "converting b: a.npy: no room");
    }
}
