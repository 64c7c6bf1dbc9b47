//! Readers of single flags: each gives the value or a message that says what was expected.

use std::path::PathBuf;

use kiln_kernels::{DeviceError, Devices};
use kiln_sample::Fanout;

use crate::args::DataSource;
use crate::graphs::GraphSource;
use crate::run::RankCount;

/// Reads where a data set comes from.
///
/// # Errors
/// A message that says what is expected.
pub fn data(text: &str) -> Result<DataSource, String> {
    match text {
        "debian-packages" => return Ok(DataSource::DebianPackages),
        "sbm" => return Ok(DataSource::Sbm),
        "fake" => return Ok(DataSource::Fake(1000)),
        _ => {}
    }
    if let Some(n_nodes) = text.strip_prefix("fake:") {
        return Ok(DataSource::Fake(whole(n_nodes, 10, 10_000_000)?));
    }
    let path = PathBuf::from(text);
    match path.exists() {
        true => Ok(DataSource::Path(path)),
        false => Err("expected debian-packages, sbm, fake:NODES or a path that exists".into()),
    }
}

/// Reads where a set of graphs comes from.
///
/// # Errors
/// A message that says what is expected.
pub fn graphs(text: &str) -> Result<GraphSource, String> {
    let path = PathBuf::from(text);
    match text {
        "mutag" => Ok(GraphSource::Mutag),
        _ if path.exists() => Ok(GraphSource::Path(path)),
        _ => Err("expected mutag or a path that exists".into()),
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

/// Reads the devices of a machine's ranks.
///
/// # Errors
/// Why there are none.
pub fn devices(names: &str) -> Result<Devices, DeviceError> {
    Devices::open(names)
}

/// Reads a number of ranks, or `auto`.
///
/// # Errors
/// A message that says what is expected.
pub fn ranks(text: &str) -> Result<RankCount, String> {
    match text {
        "auto" => Ok(RankCount::Auto),
        number => threads(number).map(RankCount::Exactly).map_err(|message| format!("{message}, or `auto`")),
    }
}

/// Reads the name or address of a machine.
///
/// # Errors
/// A message that says what is expected.
pub fn host(text: &str) -> Result<String, String> {
    let is_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    match !text.is_empty() && (is_v6 || !text.contains([':', '[', ' '])) {
        true => Ok(text.to_owned()),
        false => Err("expected a name or an address, without a port".into()),
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

/// Reads a number of layers.
///
/// # Errors
/// A message that says what is expected.
pub fn layers(text: &str) -> Result<usize, String> {
    whole(text, 1, 1000)
}

/// Reads a number of layers, the input counted as one.
///
/// # Errors
/// A message that says what is expected.
pub fn gin_layers(text: &str) -> Result<usize, String> {
    whole(text, 2, 1000)
}

/// Reads a number of folds: one to judge on, one to choose by, and one to learn from.
///
/// # Errors
/// A message that says what is expected.
pub fn folds(text: &str) -> Result<usize, String> {
    whole(text, 3, 1_000_000)
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

/// Reads a number above 0 and up to 1.
///
/// # Errors
/// A message that says what is expected.
pub fn share(text: &str) -> Result<f64, String> {
    number(text, |value| 0.0 < value && value <= 1.0, "expected a number above 0 and up to 1")
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
