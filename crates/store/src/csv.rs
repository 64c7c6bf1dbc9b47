//! Fields of comma-separated text (RFC 4180).
//!
//! ```
//! use kiln_store::csv;
//! let mut line = format!("7,{}", csv::quoted("a, b"));
//! csv::push_finite(&mut line, &[0.5, f32::NAN]);
//! assert_eq!(line, "7,\"a, b\",0.5,\n");
//! ```

use std::fmt::Write as _;

/// Appends the values of a row as fields and ends the line. Text is read back to the same f32.
pub fn push_values(csv: &mut String, row: &[f32]) {
    for value in row {
        let _ = write!(csv, ",{value}");
    }
    csv.push('\n');
}

/// Appends the values of a row as fields, empty if they are not finite, and ends the line.
pub fn push_finite(csv: &mut String, row: &[f32]) {
    for &value in row {
        let _ = write!(csv, ",{}", finite(Some(value)));
    }
    csv.push('\n');
}

/// Returns the field of a number, empty if it is missing or not finite.
pub fn finite(value: Option<f32>) -> String {
    value.filter(|value| value.is_finite()).map(|value| value.to_string()).unwrap_or_default()
}

/// Returns the field of a text, in quotes if it needs them.
pub fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_fields_that_contain_separators() {
        assert_eq!(quoted("admin"), "admin");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }

    #[test]
    fn values_that_are_not_finite_are_empty_fields() {
        let mut csv = "7".to_owned();
        push_finite(&mut csv, &[0.5, f32::NAN, f32::INFINITY, -2.0]);
        assert_eq!(csv, "7,0.5,,,-2\n");
        assert_eq!([Some(0.25), Some(f32::NEG_INFINITY), None].map(finite), ["0.25", "", ""]);
    }
}
