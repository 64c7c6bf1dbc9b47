//! Generates the built-in data set `debian-packages` from Debian's index of binary packages.
//!
//! ```text
//! cargo run --release --manifest-path xtask/debian-packages/Cargo.toml -- [--packages FILE] [--out DIR]
//! cargo run --release --manifest-path xtask/debian-packages/Cargo.toml -- [--packages FILE] [--out DIR] --tags TAGS
//! cargo run --release --manifest-path xtask/debian-packages/Cargo.toml -- [--packages FILE] [--out DIR] --archive ARCHIVE
//! ```
//!
//! The second form reads the data set in `DIR` and writes the Debtags of its packages to the folder `TAGS`, the third form
//! writes their source packages and maintainers to `ARCHIVE`, for the data set `debian-archive`. The index may be newer
//! than that of the data set, so adding these does not change the data set.
//!
//! The output is deterministic: the same index always gives identical files.

mod archive;
mod arcs;
mod control;
mod features;
mod files;
mod index;
mod labels;
mod packages;
mod rules;
mod svd;
mod tags;
mod version;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;

use self::archive::Archive;
use self::arcs::Arcs;
use self::features::Features;
use self::files::DataSet;
use self::index::Index;
use self::labels::Labels;
use self::packages::Packages;
use self::rules::{RULES, Rules};
use self::tags::Tags;

/// Generates the data set `debian-packages` from Debian's index of binary packages.
#[derive(Debug, Parser)]
struct Args {
    /// Output folder.
    #[arg(long, default_value = "crates/data/datasets/debian-packages")]
    out: PathBuf,
    /// A `Packages` file, plain or .gz, or `-` for standard input. Default: apt's index of bookworm main/amd64.
    #[arg(long)]
    packages: Option<PathBuf>,
    /// Writes the Debtags of the packages of the data set in the output folder to this folder, and leaves the data set
    /// as it is.
    #[arg(long)]
    tags: Option<PathBuf>,
    /// Writes the source packages and maintainers of the packages of the data set in the output folder to this folder,
    /// and leaves the data set as it is.
    #[arg(long, conflicts_with = "tags")]
    archive: Option<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let index = match &args.packages {
        Some(path) => Index::from_file(path)?,
        None => Index::from_apt()?,
    };
    println!("read: {}", index.origin);
    if let Some(folder) = &args.tags {
        return write_tags(&index, &args.out, folder);
    }
    if let Some(folder) = &args.archive {
        return write_archive(&index, &args.out, folder);
    }
    let set = make(&index, RULES)?;
    set.write(&args.out).with_context(|| format!("cannot write to {}", args.out.display()))?;
    print!("{}", set.summary());
    println!("written: {}", args.out.display());
    Ok(())
}

/// Writes the Debtags of the packages of the data set in `packages`.
fn write_tags(index: &Index, packages: &Path, out: &Path) -> Result<()> {
    let names = files::read_names(packages)?;
    let tags = Tags::new(index, &names.lines().collect::<Vec<_>>(), RULES)?;
    tags.write(out).with_context(|| format!("cannot write to {}", out.display()))?;
    print!("{}", tags.summary());
    println!("written: {}", out.display());
    Ok(())
}

/// Writes the source packages and maintainers of the packages of the data set in `packages`.
fn write_archive(index: &Index, packages: &Path, out: &Path) -> Result<()> {
    let names = files::read_names(packages)?;
    let archive = Archive::new(index, &names, RULES)?;
    archive.write(out).with_context(|| format!("cannot write to {}", out.display()))?;
    print!("{}", archive.summary());
    println!("written: {}", out.display());
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
