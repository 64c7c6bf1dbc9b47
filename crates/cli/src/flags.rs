//! Readers of single flags: each returns the value, or a message that says what is expected.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use kiln::sample::Fanout;

use crate::ranks::RankCount;
use crate::source::DataSource;

/// The flags of a command by their long names.
pub(crate) struct GivenFlags {
    /// What each was set to, defaults included, as text.
    pub(crate) all: BTreeMap<String, String>,
    /// Those that stand on the command line.
    pub(crate) on_command_line: BTreeSet<String>,
}

/// The flags that a command was given.
pub(crate) fn given(command: &clap::Command, matches: &clap::ArgMatches) -> GivenFlags {
    let text = |id: &str| {
        let values = matches.get_raw(id).into_iter().flatten();
        values.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",")
    };
    let (mut all, mut on_command_line) = (BTreeMap::new(), BTreeSet::new());
    for flag in command.get_arguments() {
        let (Some(name), id) = (flag.get_long(), flag.get_id().as_str()) else { continue };
        if matches.contains_id(id) {
            all.insert(name.to_owned(), text(id));
        }
        if matches.value_source(id) == Some(ValueSource::CommandLine) {
            on_command_line.insert(name.to_owned());
        }
    }
    GivenFlags { all, on_command_line }
}

/// One of some names, each with its help and its value.
pub(crate) fn choice<T: Clone + Send + Sync + 'static>(
    choices: impl IntoIterator<Item = (&'static str, &'static str, T)>,
) -> impl TypedValueParser<Value = T> {
    let choices: Vec<_> = choices.into_iter().collect();
    let possible = choices.iter().map(|(name, help, _)| match help.is_empty() {
        true => PossibleValue::new(name),
        false => PossibleValue::new(name).help(*help),
    });
    PossibleValuesParser::new(possible).try_map(move |text| {
        let found = choices.iter().find(|(name, ..)| *name == text).map(|(.., value)| value.clone());
        found.ok_or("not one of the possible values")
    })
}

/// Where data comes from.
pub(crate) fn data(text: &str) -> Result<DataSource, String> {
    match text {
        "debian-packages" => return Ok(DataSource::DebianPackages),
        "mutag" => return Ok(DataSource::Mutag),
        "sbm" => return Ok(DataSource::Sbm),
        "fake" => return Ok(DataSource::Fake(1000)),
        _ => {}
    }
    if let Some(n_nodes) = text.strip_prefix("fake:") {
        return Ok(DataSource::Fake(within(n_nodes, 10, 10_000_000)?));
    }
    let path = PathBuf::from(text);
    match path.exists() {
        true => Ok(DataSource::Path(path)),
        false => Err("expected debian-packages, mutag, sbm, fake:NODES or a path that exists".into()),
    }
}

/// One fanout of a list: a number, or `all`.
pub(crate) fn fanouts(text: &str) -> Result<Fanout, String> {
    match text.trim() {
        "all" => Ok(Fanout::All),
        number => number
            .parse()
            .map(Fanout::UpTo)
            .map_err(|_| "expected one number a layer, or `all`, separated by commas".into()),
    }
}

/// A number of ranks, or `auto`.
pub(crate) fn ranks(text: &str) -> Result<RankCount, String> {
    match text {
        "auto" => Ok(RankCount::Auto),
        number => threads(number).map(RankCount::Exactly).map_err(|message| format!("{message}, or `auto`")),
    }
}

/// The name or address of a machine.
pub(crate) fn host(text: &str) -> Result<String, String> {
    let is_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    match !text.is_empty() && (is_v6 || !text.contains([':', '[', ' '])) {
        true => Ok(text.to_owned()),
        false => Err("expected a name or an address, without a port".into()),
    }
}

/// A number of threads that compute.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    within(text, 1, 1024)
}

/// A number of threads that sample and gather.
pub(crate) fn workers(text: &str) -> Result<usize, String> {
    within(text, 0, 1024)
}

/// A number of layers.
pub(crate) fn layers(text: &str) -> Result<usize, String> {
    within(text, 1, 1000)
}

/// A number of folds: one to judge on, one to choose by, and one to learn from.
pub(crate) fn folds(text: &str) -> Result<usize, String> {
    within(text, 3, 1_000_000)
}

/// A width, a batch size or a number of epochs.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    within(text, 1, 1_000_000)
}

fn within<T: FromStr + PartialOrd + Display>(text: &str, min: T, max: T) -> Result<T, String> {
    match text.parse() {
        Ok(value) if (&min..=&max).contains(&&value) => Ok(value),
        _ => Err(format!("expected a whole number from {min} to {max}")),
    }
}

/// A probability of dropping, below 1.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    number(text, |value| (0.0..1.0).contains(&value), "expected a number from 0 up to, not including, 1")
}

/// A number above zero.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    number(text, |value| value > 0.0, "expected a number above 0")
}

/// A number above 0 and up to 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    number(text, |value| 0.0 < value && value <= 1.0, "expected a number above 0 and up to 1")
}

/// A number that is not below zero.
pub(crate) fn non_negative(text: &str) -> Result<f64, String> {
    number(text, |value| value >= 0.0, "expected 0 or a number above it")
}

fn number(text: &str, is_good: impl Fn(f64) -> bool, expected: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if f64::is_finite(value) && is_good(value) => Ok(value),
        _ => Err(expected.into()),
    }
}
