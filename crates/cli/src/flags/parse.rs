//! Parsers of flag values. Each returns the value, or a message with the expected values.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use kiln::comm::MasterAddress;
use kiln::data::NodeFeatures;
use kiln::train::TrainingLength;

/// Returns a parser of an enumeration, whose choices are triples of a name, a help text (which may be empty) and a
/// value.
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
        found.ok_or("the value is not one of the possible values")
    })
}

/// Returns the name of a value among the choices of [`choice`].
pub(crate) fn name_of<T: PartialEq>(choices: &[(&'static str, &'static str, T)], value: &T) -> &'static str {
    choices.iter().find(|(.., other)| other == value).map_or("", |(name, ..)| name)
}

/// Returns words separated by commas, with another word before the last of them, such as `a, b or c`.
pub(crate) fn join_words<S: AsRef<str>>(words: impl IntoIterator<Item = S>, last: &str) -> String {
    let words: Vec<S> = words.into_iter().collect();
    let words: Vec<&str> = words.iter().map(S::as_ref).collect();
    match &words[..] {
        [others @ .., word] if !others.is_empty() => format!("{} {last} {word}", others.join(", ")),
        _ => words.concat(),
    }
}

/// Returns the parser of `--node-features`.
pub(crate) fn node_features() -> impl TypedValueParser<Value = NodeFeatures> {
    choice(NodeFeatures::ALL.map(|kind| {
        let help = match kind {
            NodeFeatures::Auto => "The stored features, else the node labels, else a constant",
            NodeFeatures::Stored => "The stored features",
            NodeFeatures::Labels => "One-hot node labels",
            NodeFeatures::Degrees => "One-hot node degrees",
            NodeFeatures::Constant => "The number 1",
        };
        (kind.name(), help, kind)
    }))
}

/// Parses a host name or an IP address, without a port.
pub(crate) fn host(text: &str) -> Result<String, String> {
    let is_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    match !text.is_empty() && (is_v6 || !text.contains([':', '[', ' '])) {
        true => Ok(text.to_owned()),
        false => Err("expected a host name or an IP address, without a port".into()),
    }
}

/// Parses the address of a server.
pub(crate) fn address(text: &str) -> Result<String, String> {
    match text.parse::<MasterAddress>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("expected HOST:PORT, such as node1:7400 or [::1]:7400".into()),
    }
}

/// Returns a parser of whole numbers from `min` to `max`.
pub(crate) fn whole(min: usize, max: usize) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| within(text, min, max)
}

/// Parses a size or a count, such as a layer width, a batch size or a number of epochs, from 1 to 1,000,000.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    within(text, 1, 1_000_000)
}

/// Parses a length of training: a number of steps, or of epochs with the suffix `epochs`.
pub(crate) fn length(text: &str) -> Result<TrainingLength, String> {
    let length = match text.strip_suffix("epochs") {
        Some(n_epochs) => size(n_epochs).map(TrainingLength::Epochs),
        None => size(text).map(TrainingLength::Steps),
    };
    length.map_err(|_| "expected a number of steps of at least 1, or of epochs, such as `2epochs`".into())
}

fn within<T: FromStr + PartialOrd + Display>(text: &str, min: T, max: T) -> Result<T, String> {
    match text.parse() {
        Ok(value) if (&min..=&max).contains(&&value) => Ok(value),
        _ => Err(describe_range(min..=max)),
    }
}

pub(super) fn describe_range<T: Display>(range: RangeInclusive<T>) -> String {
    format!("expected a whole number from {} to {}", range.start(), range.end())
}

/// Parses a dropout rate: at least 0 and below 1.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    number(text, |value| (0.0..1.0).contains(&value), "expected a number of at least 0 and below 1")
}

/// Parses a number above 0.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    number(text, |value| value > 0.0, "expected a number above 0")
}

/// Parses a number above 0 and at most 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    number(text, |value| 0.0 < value && value <= 1.0, "expected a number above 0 and at most 1")
}

/// Parses a number of at least 0.
pub(crate) fn non_negative(text: &str) -> Result<f64, String> {
    number(text, |value| value >= 0.0, "expected a number of at least 0")
}

fn number(text: &str, is_good: impl Fn(f64) -> bool, expected: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if f64::is_finite(value) && is_good(value) => Ok(value),
        _ => Err(expected.into()),
    }
}
