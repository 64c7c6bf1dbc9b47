//! The task runner of kiln's contributors.
//!
//! ```text
//! cargo xtask test         runs the tests and lists what was skipped; --all: also those of devices, MPI and Slurm
//! cargo xtask check        checks formatting, lints, docs, and the workspace's own rules
//! cargo xtask bench        runs one bench per stage, with rates; saves runs and compares with them and with DGL
//! cargo xtask llvm         provides the LLVM that builds for CubeCL's CPU and CUDA devices link
//! cargo xtask cuda-stub    runs a program on a stub of the CUDA driver
//! cargo xtask third-party  writes THIRD-PARTY.md, the packages that the programs contain
//! ```

mod arrows;
mod bench;
mod check;
mod cuda_stub;
mod cycles;
mod deny;
mod exceptions;
mod features;
mod license;
mod llvm;
mod manifest;
mod names;
mod publish;
mod test;
mod third_party;
mod tidy;
mod wheel;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// kiln's tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one")]
enum Task {
    /// Runs every test that this machine can run and lists what it skipped, with the reason.
    Test(test::Args),
    /// Runs what must pass before a change is offered: formatting, lints, docs, the workspace's rules.
    Check(check::Args),
    /// Runs the benches, one per stage, and prints times and rates.
    Bench(bench::Args),
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
        let error = anyhow::anyhow!("no room").context("a.npy: no room").context("converting b");
        assert_eq!(describe(&error), "converting b: a.npy: no room");
    }
}
