//! The value that a text stands for, and the one text of each value, so that a value has the same category, key and number in
//! every format of tables (docs/formats.md).

use std::fmt::Write as _;

use super::cell::Cell;
use kiln_data::calendar::{YEARS, parse_time, write_time};

const CATEGORY: &str = "a text, a number, a boolean or a time";
const HUGE: &str = "a text or a number below 2^64, which is exact in all formats";
pub(crate) const TIME_IN_YEARS: &str = "a time from the year 1 to the year 9999";

/// The first floating-point number that no 64-bit integer holds.
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

/// Returns the value that a text stands for: a boolean, a number or a time as programs write them, and else the text itself.
/// Texts that only look like numbers, such as `007`, `+1`, ` 1`, `1e5` and `1_000`, are texts.
pub(super) fn value_of(text: &str) -> Cell<'_> {
    match text.as_bytes() {
        [b'0'..=b'9' | b'-', ..] => number_of(text).or_else(|| time_of(text)).unwrap_or(Cell::Text(text)),
        [b't' | b'T' | b'f' | b'F', ..] => match text {
            "true" | "True" | "TRUE" => Cell::Bool(true),
            "false" | "False" | "FALSE" => Cell::Bool(false),
            _ => Cell::Text(text),
        },
        _ => Cell::Text(text),
    }
}

/// Returns the number of a text in the grammar of JSON, whose exponent, however, needs a sign: Python, C and JavaScript write
/// it, and keys such as `12e4` have none.
fn number_of(text: &str) -> Option<Cell<'_>> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let rest = unsigned.trim_start_matches(is_digit);
    let n_whole = unsigned.len() - rest.len();
    if n_whole == 0 || (n_whole > 1 && unsigned.starts_with('0')) {
        return None;
    }
    if rest.is_empty() {
        return text.parse().ok().map(Cell::Int);
    }
    let rest = match rest.strip_prefix('.') {
        Some(fraction) if fraction.starts_with(is_digit) => fraction.trim_start_matches(is_digit),
        Some(_) => return None,
        None => rest,
    };
    let exponent = rest.strip_prefix(['e', 'E']).and_then(|rest| rest.strip_prefix(['+', '-']));
    let is_number =
        rest.is_empty() || exponent.is_some_and(|digits| !digits.is_empty() && digits.chars().all(is_digit));
    match is_number.then(|| text.parse().ok()).flatten()? {
        value if f64::is_finite(value) => Some(Cell::Float(value)),
        _ => Some(Cell::Other("a number of more than 64 bits".into())),
    }
}

/// Returns true for the text of a number with a comma before its fraction: digits, a comma, digits, and an exponent or none.
pub(crate) fn has_decimal_comma(text: &str) -> bool {
    let Some((whole, rest)) = text.split_once(',') else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (fraction, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    digits(whole.trim_start().trim_start_matches(['-', '+']))
        && digits(fraction.trim_end())
        && digits(exponent)
}

/// Returns true for the text of a number with a point, which separates thousands where the fraction follows a comma.
pub(super) fn has_decimal_point(text: &str) -> bool {
    text.contains('.') && text.trim().parse::<f64>().is_ok()
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

fn time_of(text: &str) -> Option<Cell<'_>> {
    let is_date = text.as_bytes().get(4) == Some(&b'-') && !text.ends_with(char::is_whitespace);
    let micros = is_date.then(|| parse_time(text)).flatten()?;
    YEARS.contains(&micros).then_some(Cell::Time(micros))
}

impl Cell<'_> {
    /// Returns the value that a text stands for, and other values as they are. A 32-bit number becomes the 64-bit one with
    /// the same shortest text.
    pub(crate) fn value(&self) -> Cell<'_> {
        match self {
            Cell::Text(text) => value_of(text),
            Cell::Single(value) => Cell::Float(value.to_string().parse().unwrap_or(f64::from(*value))),
            other => other.clone(),
        }
    }

    /// Returns the text of the value, which is the same for equal values of all types and formats; `None` if it is missing.
    /// `buffer` holds it. The error is the expected value.
    pub(crate) fn text<'a>(&'a self, buffer: &'a mut String) -> Result<Option<&'a str>, &'static str> {
        buffer.clear();
        let value = match self {
            Cell::Missing => return Ok(None),
            Cell::Text(text) => match value_of(text) {
                Cell::Text(_) => return Ok(Some(text)),
                value => value,
            },
            other => other.value(),
        };
        // Writing to a string cannot fail.
        let _ = match value {
            Cell::Bool(value) => write!(buffer, "{value}"),
            Cell::Int(value) => write!(buffer, "{value}"),
            Cell::Float(value) if value.is_infinite() || value.fract() != 0.0 => write!(buffer, "{value:?}"),
            Cell::Float(value) if value.abs() < TWO_TO_64 => write!(buffer, "{}", value as i128),
            Cell::Float(_) => return Err(HUGE),
            Cell::Time(micros) if YEARS.contains(&micros) => {
                write_time(micros, buffer);
                Ok(())
            }
            Cell::Time(_) => return Err(TIME_IN_YEARS),
            _ => return Err(CATEGORY),
        };
        Ok(Some(buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(cell: Cell<'_>) -> String {
        let mut buffer = String::new();
        cell.text(&mut buffer).map_or_else(str::to_owned, |text| text.unwrap_or("missing").to_owned())
    }

    #[test]
    fn texts_of_equal_values_are_equal() {
        for (text, expected) in [
            ("True", "true"),
            ("FALSE", "false"),
            ("1.0", "1"),
            ("-0.0", "0"),
            ("-0", "0"),
            ("2.50", "2.5"),
            ("1e-05", "1e-5"),
            ("1e+16", "10000000000000000"),
            ("9007199254740993", "9007199254740993"),
            ("18446744073709551615", "18446744073709551615"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("5e-324", "5e-324"),
            ("1e+300", HUGE),
            ("1e+400", CATEGORY),
            ("2024-01-31 00:00:00", "2024-01-31"),
            ("2024-01-31 13:00:00.500+01:00", "2024-01-31T12:00:00.5Z"),
        ] {
            assert_eq!(text_of(Cell::Text(text)), expected, "{text}");
            if ![HUGE, CATEGORY].contains(&expected) {
                assert_eq!(text_of(Cell::Text(expected)), expected, "a canonical text should be its own");
            }
        }
    }

    #[test]
    fn texts_that_look_like_values_only_are_texts() {
        for text in [
            "007",
            "+1",
            " 1",
            "1 ",
            "1e5",
            "12E4",
            "1_000",
            "0x10",
            ".5",
            "1.",
            "1.e+5",
            "-",
            "--1",
            "1e+",
            "inf",
            "tRue",
            "truely",
            "NA",
            "2024-13-01",
            "2024-01-31 ",
            "0000-01-01",
            "1.2.3",
            "１",
        ] {
            assert_eq!(text_of(Cell::Text(text)), text);
        }
    }

    #[test]
    fn numbers_of_32_bits_have_the_shortest_text() {
        assert_eq!(text_of(Cell::Single(0.1)), "0.1");
        assert_eq!(text_of(Cell::Single(16_777_216.0)), "16777216");
        assert_eq!(text_of(Cell::Single(f32::INFINITY)), "inf");
        assert_eq!(text_of(Cell::Float(-0.0)), "0");
        assert_eq!(text_of(Cell::Float(1e300)), HUGE);
    }
}
