//! Makes the built-in data set `debian-packages` from Debian's index of binary packages.
//!
//! ```text
//! cargo run --profile tests -p debian-packages -- [--packages FILE] [--out DIR]
//! ```
//!
//! The same index always gives the same bytes.

mod arcs;
mod control;
mod features;
mod files;
mod index;
mod labels;
mod packages;
mod svd;
mod version;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;

use self::arcs::Arcs;
use self::features::Features;
use self::files::DataSet;
use self::index::Index;
use self::labels::Labels;
use self::packages::Packages;

/// Makes the data set `debian-packages` from Debian's index of binary packages.
#[derive(Debug, Parser)]
struct Args {
    /// Folder that the files are written to.
    #[arg(long, default_value = "crates/data/datasets/debian-packages")]
    out: PathBuf,
    /// A `Packages` file, plain or .gz, or `-` for standard input; without it, apt's index of bookworm main/amd64.
    #[arg(long)]
    packages: Option<PathBuf>,
}

/// The thresholds for classes and words, and the width of the features; tests use smaller numbers.
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

fn main() -> Result<()> {
    let args = Args::parse();
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

/// Converts the text of an index to the arrays of the data set.
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
