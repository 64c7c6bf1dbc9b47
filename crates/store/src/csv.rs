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

/// Returns the lines of a text without their ends. A field in quotes may have ends of lines itself.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    unquoted_parts(text.strip_suffix('\n').unwrap_or(text), '\n')
}

/// Returns the fields of a line. Those in quotes keep them.
pub fn fields(line: &str) -> impl Iterator<Item = &str> {
    unquoted_parts(line, ',')
}

/// Returns the parts of a text between separators that are outside of quotes.
fn unquoted_parts(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |c| {
        is_quoted ^= c == '"';
        c == separator && !is_quoted
    })
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
    fn quoted_fields_may_have_separators_and_ends_of_lines() {
        let text = format!("item,name\n0,{}\n1,b\n", quoted("a \"\n\", c"));
        let lines: Vec<&str> = lines(&text).collect();
        assert_eq!(lines, ["item,name", "0,\"a \"\"\n\"\", c\"", "1,b"]);
        assert_eq!(fields(lines[1]).collect::<Vec<_>>(), ["0", "\"a \"\"\n\"\", c\""]);
        assert_eq!(fields("1,,").count(), 3);
    }

    #[test]
    fn values_that_are_not_finite_are_empty_fields() {
        let mut csv = "7".to_owned();
        push_finite(&mut csv, &[0.5, f32::NAN, f32::INFINITY, -2.0]);
        assert_eq!(csv, "7,0.5,,,-2\n");
        assert_eq!([Some(0.25), Some(f32::NEG_INFINITY), None].map(finite), ["0.25", "", ""]);
    }
}
