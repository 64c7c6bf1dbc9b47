//! The task runner of kiln's contributors.
//!
//! ```text
//! cargo xtask test         runs the tests and lists the skipped ones; --all: also those of devices, MPI and Slurm
//! cargo xtask check        checks formatting, lints, docs and the rules of the workspace; --cuda: the CUDA path
//! cargo xtask bench        runs the benches and prints rates; saves runs, compares them with saved runs and with DGL
//! cargo xtask llvm         installs the LLVM that CubeCL's CPU and CUDA compilers link
//! cargo xtask cuda-stub    runs a program on a stub of the CUDA driver
//! cargo xtask dist         packs the program `kiln` as one static executable
//! cargo xtask gpu          packs programs for a machine with a GPU, and tests the script of that machine on the stub
//! cargo xtask sizes        prints lines of code, types and cycles of the crates as a table
//! cargo xtask cycles       prints the import cycles of files within crates, with the imports inside them
//! cargo xtask third-party  writes THIRD-PARTY.md, the list of packages that the programs contain
//! ```

mod arrows;
mod bench;
mod book;
mod check;
mod commits;
mod cuda;
mod cycles;
mod dist;
mod exceptions;
mod features;
mod gpu;
mod llvm;
mod log;
mod manifest;
mod messages;
mod method_examples;
mod names;
mod prose;
mod publish;
mod python;
mod sizes;
mod style;
mod test;
mod third_party;
mod tidy;
mod tools;
mod wheel;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The tasks of kiln's contributors.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "the program creates only one value")]
enum Task {
    /// Runs all tests that this machine can run, and lists the skipped ones with the reason.
    Test(test::Args),
    /// Runs the checks that a change must pass: formatting, lints, docs and the rules of the workspace.
    Check(check::Args),
    /// Runs the benches of all stages or of some, and prints times and rates.
    Bench(bench::Args),
    /// Checks the book in `docs/book`, and builds it with mdBook.
    Book(book::Args),
    /// Runs a program on a stub of the CUDA driver and of NCCL, without a GPU, and counts its launches.
    CudaStub(cuda::Args),
    /// Packs the program `kiln` as one static executable with its licences, completions and a checksum.
    Dist(dist::Args),
    /// Packs programs for a machine with a GPU but without cargo, and tests the script of that machine on the stub.
    Gpu(gpu::Args),
    /// Builds the Python package and runs its tests.
    Python(python::Args),
    /// Prints lines of code, types and import cycles of the crates, as a table in Markdown.
    Sizes,
    /// Prints the import cycles of files within crates, with the imports inside them, as a list in Markdown.
    Cycles,
    /// Writes THIRD-PARTY.md: the packages that the programs contain, with their licences.
    ThirdParty,
    /// Installs the LLVM that CubeCL's CPU and CUDA compilers link.
    Llvm,
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Test(args) => test::run(args),
        Task::Check(args) => check::run(args),
        Task::Bench(args) => bench::run(args),
        Task::Book(args) => book::run(&args),
        Task::CudaStub(args) => cuda::run(&args),
        Task::Dist(args) => dist::run(&args),
        Task::Gpu(args) => gpu::run(args),
        Task::Python(args) => python::run(&args),
        Task::Sizes => sizes::run(),
        Task::Cycles => cycles::run(),
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

/// Formats an error and its causes, outermost first. A cause is omitted if the text before it already ends with it.
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
    fn describe_does_not_repeat_causes() {
        let error = anyhow::anyhow!("no room").context("a.npy: no room").context("converting b");
        assert_eq!(describe(&error), "converting b: a.npy: no room");
    }
}
