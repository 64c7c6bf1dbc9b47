//! Readers of single flags: each gives the value or a message that says what was expected.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use burn::tensor::Device;
use clap::{CommandFactory, FromArgMatches, ValueEnum};
use kiln_data::{Dataset, synthetic};
use kiln_sample::Fanout;
use kiln_train::RunFolder;

/// Reads the command line; ends the process with a message where it is wrong. Beside the flags comes what
/// each of them was set to, defaults included, as text.
pub fn parse<A: CommandFactory + FromArgMatches>() -> (A, BTreeMap<String, String>) {
    let matches = A::command().get_matches();
    let args = A::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let text = |id: &clap::Id| {
        let values = matches.get_raw(id.as_str()).into_iter().flatten();
        values.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",")
    };
    let settings = matches.ids().map(|id| (id.to_string(), text(id))).collect();
    (args, settings)
}

/// Data sets that an example can train on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DataName {
    /// The packages of Debian bookworm, built in: 63,437 nodes, real.
    DebianPackages,
    /// A stochastic block model of 10,000 nodes, made on the spot.
    Sbm,
}

/// Loads or makes a data set, and scales its feature columns where asked to.
///
/// # Errors
/// What the data crate says.
pub fn dataset(name: DataName, standardize: bool, seed: u64) -> anyhow::Result<Dataset> {
    let data = match name {
        DataName::DebianPackages => kiln_data::debian_packages().context("loading debian-packages")?,
        DataName::Sbm => {
            let config = synthetic::SbmConfig {
                n_nodes: 10_000,
                n_classes: 8,
                degree: 10,
                homophily: 0.8,
                dim: 32,
                noise: 2.0,
                seed,
            };
            synthetic::sbm(config).context("making the stochastic block model")?
        }
    };
    Ok(if standardize { data.standardize()? } else { data })
}

/// The folder that a run writes to: the one asked for, or else the next number under `runs`.
///
/// # Errors
/// When it cannot be made, or holds something already.
pub fn run_folder(out: Option<&Path>, name: &str) -> kiln_train::Result<RunFolder> {
    match out {
        Some(path) => RunFolder::create(path),
        None => RunFolder::create_numbered("runs", name),
    }
}

/// Reads one fanout of a list: a number, or `all`.
///
/// # Errors
/// A message that says what is expected.
pub fn fanouts(text: &str) -> Result<Fanout, String> {
    match text.trim() {
        "all" => Ok(Fanout::All),
        number => number
            .parse()
            .map(Fanout::UpTo)
            .map_err(|_| "expected one number a layer, or `all`, separated by commas".into()),
    }
}

/// Reads a device's name.
///
/// # Errors
/// A message that says which devices this build has.
pub fn device(text: &str) -> Result<Device, String> {
    match text {
        "cpu" => Ok(Device::flex()),
        _ => Err("this build has the device `cpu` only".into()),
    }
}

/// Reads a number of threads that compute.
///
/// # Errors
/// A message that says what is expected.
pub fn threads(text: &str) -> Result<usize, String> {
    whole(text, 1, 1024)
}

/// Reads a number of threads that sample and gather.
///
/// # Errors
/// A message that says what is expected.
pub fn workers(text: &str) -> Result<usize, String> {
    whole(text, 0, 1024)
}

/// Reads a width, a batch size or a number of epochs.
///
/// # Errors
/// A message that says what is expected.
pub fn size(text: &str) -> Result<usize, String> {
    whole(text, 1, 1_000_000)
}

fn whole(text: &str, min: usize, max: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(value) if (min..=max).contains(&value) => Ok(value),
        _ => Err(format!("expected a whole number from {min} to {max}")),
    }
}

/// Reads a probability of dropping, below 1.
///
/// # Errors
/// A message that says what is expected.
pub fn rate(text: &str) -> Result<f64, String> {
    number(text, |value| (0.0..1.0).contains(&value), "expected a number from 0 up to, not including, 1")
}

/// Reads a number above zero.
///
/// # Errors
/// A message that says what is expected.
pub fn positive(text: &str) -> Result<f64, String> {
    number(text, |value| value > 0.0, "expected a number above 0")
}

/// Reads a number that is not below zero.
///
/// # Errors
/// A message that says what is expected.
pub fn non_negative(text: &str) -> Result<f64, String> {
    number(text, |value| value >= 0.0, "expected 0 or a number above it")
}

fn number(text: &str, is_good: impl Fn(f64) -> bool, expected: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if f64::is_finite(value) && is_good(value) => Ok(value),
        _ => Err(expected.into()),
    }
}
