//! `cargo xtask data …`: converts data sets to the kiln format, verifies them, and cuts them into partitions.

mod convert;
mod partition;

use anyhow::{Context, Result};
use clap::Subcommand;

/// Arguments of `cargo xtask data`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Converts a data set or an edge list to the kiln format, within a given memory.
    Convert(convert::ConvertArgs),
    /// Reads a whole data set and checks its hashes and values.
    Verify(convert::VerifyArgs),
    /// Cuts a data set into partitions, each a folder that needs no other.
    Partition(partition::PartitionArgs),
}

/// Runs a subcommand.
pub(crate) fn run(args: Args) -> Result<()> {
    // Data sets are mapped.
    kiln_graph::handle_bus_errors().context("handling SIGBUS")?;
    match args.action {
        Action::Convert(args) => convert::run_convert(&args),
        Action::Verify(args) => convert::run_verify(&args),
        Action::Partition(args) => partition::run_partition(&args),
    }
}
