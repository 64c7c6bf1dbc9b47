//! `cargo xtask data …`: makes the data sets that are committed with kiln, converts others to kiln's own
//! form, verifies them and parts them.
//!
//! Making or converting a set twice from the same input gives the same bytes.

mod arcs;
mod control;
mod convert;
mod features;
mod files;
mod index;
mod labels;
mod packages;
mod partition;
mod svd;
mod version;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Subcommand;

use self::arcs::Arcs;
use self::features::Features;
use self::files::DataSet;
use self::index::Index;
use self::labels::Labels;
use self::packages::Packages;

/// Arguments of `cargo xtask data`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Makes `debian-packages` from Debian's index of binary packages.
    DebianPackages(DebianPackages),
    /// Converts a data set or an edge list to kiln's own form, within a given memory.
    Convert(convert::ConvertArgs),
    /// Reads a whole data set and checks its hashes and values.
    Verify(convert::VerifyArgs),
    /// Makes parts of a data set, each a folder that needs no other.
    Partition(partition::PartitionArgs),
}

#[derive(Debug, clap::Args)]
struct DebianPackages {
    /// Folder that the files are written to.
    #[arg(long, default_value = "crates/data/datasets/debian-packages")]
    out: PathBuf,
    /// A `Packages` file, plain or .gz, or `-` for standard input; without it, the index of bookworm main/amd64 that apt has here.
    #[arg(long)]
    packages: Option<PathBuf>,
}

/// What decides over classes and features; the tests make small sets with smaller numbers.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// A section with fewer packages is no class.
    min_packages: usize,
    /// A section of fewer source packages is no class.
    min_sources: usize,
    /// A word in fewer descriptions is dropped.
    min_documents: usize,
    /// Columns of the features.
    n_columns: usize,
}

const RULES: Rules = Rules { min_packages: 100, min_sources: 40, min_documents: 3, n_columns: 128 };

/// Does what the command line says.
pub(crate) fn run(args: Args) -> Result<()> {
    // Sets that are read are mapped.
    kiln_graph::handle_bus_errors().context("handling SIGBUS")?;
    match args.action {
        Action::DebianPackages(args) => debian_packages(args),
        Action::Convert(args) => convert::run_convert(&args),
        Action::Verify(args) => convert::run_verify(&args),
        Action::Partition(args) => partition::run_partition(&args),
    }
}

fn debian_packages(args: DebianPackages) -> Result<()> {
    let index = match &args.packages {
        Some(path) => Index::from_file(path)?,
        None => Index::from_apt()?,
    };
    println!("taken: {}", index.origin);
    let set = make(&index, RULES)?;
    set.write(&args.out).with_context(|| format!("writing to {}", args.out.display()))?;
    print!("{}", set.summary());
    println!("written: {}", args.out.display());
    Ok(())
}

/// The whole conversion, from the index's text to the arrays.
fn make(index: &Index, rules: Rules) -> Result<DataSet> {
    let packages = Packages::parse(&index.text)?;
    let arcs = Arcs::new(&packages);
    let labels = Labels::new(&packages, rules);
    let features = Features::new(&packages, rules)?;
    Ok(DataSet {
        origin: index.origin.clone(),
        distribution: index.distribution,
        rules,
        packages,
        arcs,
        labels,
        features,
    })
}
