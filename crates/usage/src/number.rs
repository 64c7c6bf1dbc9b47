//! Parsers of numbers and of host names. Each returns the value, or a message with the expected values.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Returns a parser of whole numbers from `min` to `max`.
pub fn whole(min: usize, max: usize) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| within(text, min, max)
}

/// Parses a size or a count, such as a layer width, a batch size or a number of epochs, from 1 to 1,000,000.
pub fn size(text: &str) -> Result<usize, String> {
    within(text, 1, 1_000_000)
}

/// Parses a dropout rate: at least 0 and below 1.
pub fn rate(text: &str) -> Result<f64, String> {
    number(text, |value| (0.0..1.0).contains(&value), "expected a number of at least 0 and below 1")
}

/// Parses a number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    number(text, |value| value > 0.0, "expected a number above 0")
}

/// Parses a learning rate. No optimizer learns with a larger one, which is a typing error such as 100 for 1e-2.
pub fn learning_rate(text: &str) -> Result<f64, String> {
    number(
        text,
        |value| 0.0 < value && value <= 10.0,
        "expected a number above 0 and at most 10, such as 0.001",
    )
}

/// Parses a number above 0 and at most 1.
pub fn share(text: &str) -> Result<f64, String> {
    number(text, |value| 0.0 < value && value <= 1.0, "expected a number above 0 and at most 1")
}

/// Parses a number of at least 0.
pub fn non_negative(text: &str) -> Result<f64, String> {
    number(text, |value| value >= 0.0, "expected a number of at least 0")
}

fn number(text: &str, is_good: impl Fn(f64) -> bool, expected: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if f64::is_finite(value) && is_good(value) => Ok(value),
        _ => Err(expected.into()),
    }
}
fn within<T: FromStr + PartialOrd + Display>(text: &str, min: T, max: T) -> Result<T, String> {
    match text.parse() {
        Ok(value) if (&min..=&max).contains(&&value) => Ok(value),
        _ => Err(describe_range(min..=max)),
    }
}

/// Returns the message that a whole number is not in a range.
pub fn describe_range<T: Display>(range: RangeInclusive<T>) -> String {
    format!("expected a whole number from {} to {}", range.start(), range.end())
}

/// Parses a host name or an IP address, without a port.
pub fn host(text: &str) -> Result<String, String> {
    let is_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    match !text.is_empty() && (is_v6 || !text.contains([':', '[', ' '])) {
        true => Ok(text.to_owned()),
        false => Err("expected a host name or an IP address, without a port".into()),
    }
}
