//! The program `kiln`: trains graph neural networks, converts and partitions datasets, and serves partitions.
//!
//! This crate parses flags and prints results. Everything else is the public API of the crate `kiln`, which other
//! programs can use in the same way.
//!
//! ```text
//! kiln train --data debian-packages --ranks 2
//! kiln predict --run runs/train-001 --data debian-packages --out predictions
//! kiln data partition debian-packages --standardize --parts 2 --out parts
//! kiln serve --part parts/part0 --listen 10.0.0.1:29600
//! ```

#![forbid(unsafe_code)]

mod data;
mod dataset;
mod described;
mod flags;
#[cfg(feature = "tables")]
mod import;
#[cfg(all(test, feature = "tables"))]
#[path = "../tests/inputs/mod.rs"]
mod inputs;
mod list;
mod out_folder;
mod output;
mod predict;
mod runs;
mod serve;
mod sweep;
mod train;
mod usage;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

/// Trains graph neural networks on minibatches of sampled neighbourhoods.
#[derive(Debug, Parser)]
#[command(name = "kiln")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one")]
enum Command {
    /// Trains a model, keeps the weights of the best epoch and evaluates them on the test split.
    Train(train::TrainArgs),
    /// Trains runs over a grid or random values of flags and over seeds, several at a time, and compares them.
    ///
    /// The same command continues a sweep that was stopped. The exit status is 1 if a run has failed, and 75 if runs are left.
    Sweep(sweep::SweepArgs),
    /// Predicts classes, scores and embeddings with the model of a run, for the run's data or for other data.
    Predict(predict::PredictArgs),
    /// Lists runs: the settings in which they differ, their metric and time, the best first.
    Runs(runs::RunsArgs),
    /// Writes the report page of a run, also of one that was interrupted or still trains, with the epochs so far.
    Report(runs::ReportArgs),
    /// Converts, verifies and partitions datasets.
    #[command(subcommand)]
    Data(data::DataCommand),
    /// Serves a partition of a graph to training processes. The server holds no training state and can be restarted at
    /// any time; SIGTERM stops it. Clients authenticate with the token in KILN_GRAPH_TOKEN, or in the file that
    /// KILN_GRAPH_TOKEN_FILE names, or with a certificate.
    Serve(serve::ServeArgs),
    /// Prints a graph server's partition, number of clients, uptime and age of the oldest request; fails if the server
    /// does not respond within 5 s.
    Health(serve::HealthArgs),
    /// Lists the devices with their names, models, memory and drivers, and runs a smoke test on each; fails if a device
    /// exists but does not work.
    Device,
    /// Prints a shell completion script.
    Completions {
        /// The shell to generate the script for.
        shell: Shell,
    },
}

/// Returns the version, the commit and the features of this build.
fn version() -> String {
    macro_rules! built {
        ($($feature:literal)*) => { [$(cfg!(feature = $feature).then_some($feature)),*] };
    }
    let built: Vec<&str> =
        built!("cuda" "wgpu" "cube-cpu" "tls" "mpi" "nccl" "metis").into_iter().flatten().collect();
    let features = if built.is_empty() { "none".to_owned() } else { built.join(", ") };
    format!("{} (commit {}, features {features})", env!("CARGO_PKG_VERSION"), env!("KILN_COMMIT"))
}

fn command() -> clap::Command {
    // clap requires a version with the lifetime `'static`.
    kiln_usage::shorten_help(Cli::command().version(&*version().leak()), &usage::FIRST_FLAGS)
}

/// Runs the program with the arguments of this process: `fn main() -> ExitCode { kiln_cli::main() }`. Returns its exit
/// status.
pub fn main() -> ExitCode {
    kiln::print_log_with(output::print_log_line);
    let args: Vec<_> = std::env::args_os().collect();
    run(&args).unwrap_or_else(|error| {
        output::log(&format!("Error: {}", kiln::comm::error_text(error.as_ref())));
        let status = error.chain().find_map(|cause| cause.downcast_ref().map(kiln::Error::exit_status));
        ExitCode::from(if usage::is_usage(&error) { kiln_usage::EXIT_USAGE } else { status.unwrap_or(1) })
    })
}

fn parse(command: &clap::Command, args: &[OsString]) -> clap::ArgMatches {
    let matches = command.clone().try_get_matches_from(args);
    matches.unwrap_or_else(|error| kiln_usage::advise(error, command, args, &usage::LISTS).exit())
}

fn run(args: &[OsString]) -> anyhow::Result<ExitCode> {
    let command = command();
    let mut matches = parse(&command, args);
    let missing = described::missing_arguments(&command, &matches)?;
    if !missing.is_empty() {
        matches = parse(&command, &[&args[..2], &missing, &args[2..]].concat());
    }
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // Datasets are memory-mapped, so reading a truncated file raises SIGBUS.
    kiln::graph::handle_bus_errors().context("handling SIGBUS")?;
    kiln::report_file_size_limit()?;
    if matches!(
        cli.command,
        Command::Train(_) | Command::Predict(_) | Command::Data(_) | Command::Serve(_) | Command::Device
    ) {
        kiln::start_threads()?;
    }
    let given = flags::read_given(&command, &matches);
    if let Command::Train(args) = &cli.command {
        output::set_format(args.fit.log_format);
    }
    output::show_progress(|| execute(cli.command, given, &command))
}

/// Runs a command with the flags that were given. `program` is the parser of the whole program.
fn execute(command: Command, given: flags::GivenFlags, program: &clap::Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Train(args) => return train::run(&args, given),
        Command::Sweep(args) => return sweep::run(&args, program),
        Command::Predict(args) => predict::run(&args, &given)?,
        Command::Runs(args) => runs::list(&args)?,
        Command::Report(args) => runs::report(&args)?,
        Command::Data(command) => data::run(&command, &given)?,
        Command::Serve(args) => serve::serve(&args)?,
        Command::Health(args) => serve::health(&args)?,
        Command::Device => return list::run(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut program.clone(), "kiln", &mut script);
            output::write_result(&String::from_utf8_lossy(&script))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(all(test, feature = "tables"))]
#[path = "../tests/progress/mod.rs"]
mod progress_tests;

#[cfg(test)]
#[path = "../tests/command/mod.rs"]
mod tests;
